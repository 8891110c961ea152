"""Secrets that stand in definitions: found, refused, and never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from tidegate.services.definitions import Definitions, Files, Kafka, Mqtt, Path
from tidegate.services.findings import Findings
from tidegate.services.operators import Custom, Enrich

HIDDEN = "***"
"""What stands in the place of a secret."""

_WORD = r"(?:password|passwd|pwd|passphrase|secret|token|credential|api[_-]?key|access[_-]?key)"
_PATTERNS = (
    re.compile(r"(//[^/?#\s'\"@:]*:)(?P<secret>[^/?#\s'\"]+)(?=@)"),  # scheme://user:password@host
    re.compile(r"(\bjdbc:oracle:\w+:[^\s/@]*/)(?P<secret>[^\s@]+)(?=@)", re.IGNORECASE),  # user/password@host
    re.compile(rf"([?&;:,(]\s*[\w.-]*{_WORD}[\w.-]*\s*=\s*)(?P<secret>[^&;,)\s'\"]+)", re.IGNORECASE),
)
_NAME = re.compile(
    r"(?:.*[_.-])?(?:password|passwd|pwd|passphrase|secret|token|credentials?|(?:api|access|private|secret)[_-]?key)"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_REMEDY = (
    "is not allowed to hold a password: everybody who sees the definition would see it; let the profile bind host and "
    "secret to a name under connections, and name that here"
)


_OPTION_REMEDY = (
    "is not allowed to hold a secret, as {key!r} does: everybody who sees the definition would see it; let the "
    "function read it from a file or the environment of the machine that it runs on"
)


def names_secret(key: str) -> bool:
    """Say whether an option of this name holds a secret.

    >>> names_secret("dbPassword"), names_secret("api_key"), names_secret("max_tokens"), names_secret("token_column")
    (True, True, False, False)
    """
    return _NAME.fullmatch(_HUMP.sub("_", key).lower()) is not None


def has_secret(text: str) -> bool:
    """Say whether a text holds a password the way URLs do.

    >>> has_secret("jdbc:postgresql://db/city?user=a&password=b"), has_secret("jdbc:postgresql://db:5432/city?user=a")
    (True, False)
    """
    plain = unquote(unquote(text))
    return any(pattern.search(each) for pattern in _PATTERNS for each in {text, plain})


def redact(text: str) -> str:
    """Put three stars in the place of every password in a text.

    >>> redact("jdbc:mysql://root:hunter2@db/city")
    'jdbc:mysql://root:***@db/city'
    """
    if not has_secret(text):
        return text
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text if not _is_escaped(text) else HIDDEN


def _is_escaped(text: str) -> bool:
    """Whether percent escapes hide what a pattern would find."""
    plain = unquote(unquote(text))
    return plain != text and any(
        found["secret"] != HIDDEN for pattern in _PATTERNS for found in pattern.finditer(plain)
    )


def redacted(value: Any) -> Any:
    """Give a document, as `to_dict` writes it, with three stars in the place of every password."""
    match value:
        case str():
            return redact(value)
        case {"custom": {"options": Mapping() as options, **settings}} if "function" in settings:
            return {"custom": {**redacted(settings), "options": _redacted_options(options)}}
        case Mapping():
            return {key: redacted(each) for key, each in value.items()}
        case list() | tuple():
            return [redacted(each) for each in value]
    return value


def _redacted_options(value: Any) -> Any:
    match value:
        case Mapping():
            return {
                key: HIDDEN if isinstance(each, str) and names_secret(key) else _redacted_options(each)
                for key, each in value.items()
            }
        case list() | tuple():
            return [_redacted_options(each) for each in value]
    return redacted(value)


def note_secrets(definitions: Definitions, findings: Findings) -> None:
    """Note every password that stands in a source, a table or an option."""
    for path, text in _texts(definitions):
        if has_secret(text) or (path[-1] in ("broker", "brokers") and "@" in text):
            findings.blame(path, _REMEDY)
    for service in definitions.services.values():
        for n, operator in enumerate(service.pipeline):
            if isinstance(operator, Custom):
                for key in _secret_options(operator.options):
                    path = ("services", service.name, "pipeline", n, "custom", "options")
                    findings.blame(path, _OPTION_REMEDY.format(key=key))


def _texts(definitions: Definitions) -> Iterator[tuple[Path, str]]:
    for name, stream in definitions.streams.items():
        at: Path = ("streams", name, "source")
        match stream.source:
            case Mqtt(topic, broker):
                yield (*at, "mqtt", "broker"), broker
                yield (*at, "mqtt", "topic"), topic
            case Kafka(topic, brokers):
                yield (*at, "kafka", "brokers"), brokers
                yield (*at, "kafka", "topic"), topic
            case Files(path):
                yield (*at, "files", "path"), path
    for name, service in definitions.services.items():
        for n, operator in enumerate(service.pipeline):
            at = ("services", name, "pipeline", n)
            match operator:
                case Enrich(table):
                    yield (*at, "enrich", "jdbc", "url"), table.url or ""
                    yield (*at, "enrich", "table"), f"{table.path or ''} {table.table or ''}"
                case Custom():
                    for text in _strings(operator.options):
                        yield (*at, "custom", "options"), text


def _secret_options(value: Any) -> Iterator[str]:
    """The names of options, at any depth, that hold a secret."""
    match value:
        case Mapping():
            for key, each in value.items():
                if isinstance(each, str) and each and names_secret(key):
                    yield key
                else:
                    yield from _secret_options(each)
        case list() | tuple():
            for each in value:
                yield from _secret_options(each)


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for each in value.values():
                yield from _strings(each)
        case list() | tuple():
            for each in value:
                yield from _strings(each)
