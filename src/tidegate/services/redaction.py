"""Finds secrets in definitions, to refuse them and to hide them from messages and documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from tidegate.services.definitions import Definitions, Path
from tidegate.services.findings import Findings
from tidegate.services.operators import Custom, Enrich
from tidegate.services.sources.registry import addresses_of

HIDDEN = "***"
"""Replaces a secret."""

# Each pattern must run in linear time, because strangers choose the text. A repeat that could run to the end of the
# text from every position has a bound.
_WORD = re.compile(r"password|passwd|pwd|passphrase|secret|token|credential|api[_-]?key|access[_-]?key", re.IGNORECASE)
_USERINFO = re.compile(r"//[^/?#\s'\"@:]*+:(?P<secret>[^/?#\s'\"]+)(?=@)")
"""`scheme://user:password@host`."""
_ORACLE = re.compile(r"\bjdbc:oracle:\w++:[^\s/@]{0,256}+/(?P<secret>[^\s@]{1,256}+)(?=@)", re.IGNORECASE)
"""`jdbc:oracle:thin:user/password@host`."""
_SETTING = re.compile(r"[?&;:,(]\s*+(?P<key>[\w.-]++)\s*+=\s*+")
"""`?key=value`, also after other separators."""
_VALUE = re.compile(r"[^&;,)\s'\"]++")
_NAME = re.compile(
    r"(?:.*[_.-])?(?:password|passwd|pwd|passphrase|secret|token|credentials?|(?:api|access|private|secret)[_-]?key)"
)
_EXPRESSIONS = ("filter", "project", "constraints", "terms", "having", "steps")
"""Keys of expressions. They contain no secrets, but may compare an attribute of such a name: `(token = other)`."""
_ADDRESSES = ("broker", "brokers")
"""Keys of host addresses, which may contain user and password without a scheme: `user:password@host`."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_REMEDY = (
    "must not contain a password, because everyone who may read the definition could read it: give host and secret a "
    "name under connections in the profile, and use that name here"
)
_OPTION_REMEDY = (
    "must not contain a secret, as {key!r} does, because everyone who may read the definition could read it: let the "
    "function read it from a file or the environment of the machine that it runs on"
)


def names_secret(key: str) -> bool:
    """Return True if an option of this name holds a secret.

    >>> names_secret("dbPassword"), names_secret("api_key"), names_secret("max_tokens"), names_secret("token_column")
    (True, True, False, False)
    """
    return _NAME.fullmatch(_HUMP.sub("_", key).lower()) is not None


def has_secret(text: str) -> bool:
    """Return True if a text contains a password in the form of a URL.

    >>> has_secret("jdbc:postgresql://db/city?user=a&password=b"), has_secret("jdbc:postgresql://db:5432/city?user=a")
    (True, False)
    """
    if "=" not in text and "@" not in text and "%" not in text:  # fast path: all texts of all definitions are searched
        return False
    return any(True for variant in {text, unquote(unquote(text))} for _ in _secrets(variant))


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each secret in a text."""
    for pattern in (_USERINFO, _ORACLE):
        for match in pattern.finditer(text):
            yield match.span("secret")
    end = 0
    for match in _SETTING.finditer(text):
        if match.end() >= end and _WORD.search(match["key"]):
            value = _VALUE.match(text, match.end())
            if value is not None:
                end = value.end()
                yield value.span()


def redact(text: str) -> str:
    """Return a text with three stars in place of every password.

    >>> redact("jdbc:mysql://root:hunter2@db/city")
    'jdbc:mysql://root:***@db/city'
    """
    if not has_secret(text):
        return text
    parts, at = [], 0
    for begin, end in sorted(_secrets(text)):
        if end > at:
            parts += [text[at:begin], HIDDEN] if begin >= at else []
            at = end
    shown = "".join([*parts, text[at:]])
    return shown if not _is_escaped(shown) else HIDDEN


def _is_escaped(text: str) -> bool:
    """Return True if percent escapes hide a secret."""
    plain = unquote(unquote(text))
    return plain != text and any(plain[begin:end] != HIDDEN for begin, end in _secrets(plain))


def redacted(value: Any) -> Any:
    """Return a document of `to_dict` with three stars in place of every password."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        is_function = "function" in value
        return {key: _redacted_entry(key, inner, is_function) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item) for item in value]
    return value


def _redacted_entry(key: str, value: Any, is_function: bool) -> Any:
    if key in _EXPRESSIONS:
        return value
    if key in _ADDRESSES and isinstance(value, str) and "@" in value:
        return HIDDEN + value[value.rindex("@") :]
    return _redacted_options(value) if is_function and key == "options" else redacted(value)


def _redacted_options(value: Any) -> Any:
    match value:
        case Mapping():
            return {
                key: HIDDEN if isinstance(inner, str) and names_secret(key) else _redacted_options(inner)
                for key, inner in value.items()
            }
        case list() | tuple():
            return [_redacted_options(item) for item in value]
    return redacted(value)


def note_secrets(definitions: Definitions, findings: Findings) -> None:
    """Report every password in a source, a table or an option."""
    for path, text in _texts(definitions):
        if has_secret(text) or (path[-1] in _ADDRESSES and "@" in text):
            findings.report(path, _REMEDY)
    for service in definitions.services.values():
        for n, operator in enumerate(service.pipeline):
            if isinstance(operator, Custom):
                for key in _secret_options(operator.options):
                    path = ("services", service.name, "pipeline", n, "custom", "options")
                    findings.report(path, _OPTION_REMEDY.format(key=key))


def _texts(definitions: Definitions) -> Iterator[tuple[Path, str]]:
    for name, stream in definitions.streams.items():
        for path, text in addresses_of(stream.source):
            yield ("streams", name, "source", *path), text
    for name, service in definitions.services.items():
        for n, operator in enumerate(service.pipeline):
            at: Path = ("services", name, "pipeline", n)
            match operator:
                case Enrich(table):
                    yield (*at, "enrich", "jdbc", "url"), table.url or ""
                    yield (*at, "enrich", "table"), f"{table.path or ''} {table.table or ''}"
                case Custom():
                    for text in _strings(operator.options):
                        yield (*at, "custom", "options"), text


def _secret_options(value: Any) -> Iterator[str]:
    """Yield the names of options, at any depth, that hold a secret."""
    match value:
        case Mapping():
            for key, inner in value.items():
                if isinstance(inner, str) and inner and names_secret(key):
                    yield key
                else:
                    yield from _secret_options(inner)
        case list() | tuple():
            for item in value:
                yield from _secret_options(item)


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for inner in value.values():
                yield from _strings(inner)
        case list() | tuple():
            for item in value:
                yield from _strings(item)
