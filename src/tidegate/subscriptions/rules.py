"""What a consumer asks for, made a record: checked against the service's schema, every problem at once."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from tidegate.errors import DefinitionProblem, SubscriptionError, did_you_mean
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.filters.tokens import tokenize
from tidegate.model import Schema, units
from tidegate.subscriptions.subscription import Deliver, Pull, Subscription, Webhook

FORMATS = ("cloudevents", "plain")
MOST_BATCH = 1_000
"""Events in one request of a webhook: a receiver has to read the body as a whole."""
MOST_TEXT = 10_000
"""Characters of a filter or a description."""
MOST_URL = 2_000
MOST_S = 86_400.0
BEGINNINGS = ("from", "cursor")
"""Fields that say where a subscription begins."""
LEAST_S = 0.01
"""Of what is done every so often: a timer that never rests serves nobody."""
MOST_SECRETS = 4
"""Secrets that sign at once: each costs a header's room in every request."""


class _BadValue(Exception):  # noqa: N818 - caught right here
    """A value that can't be used, and where in the field it is."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message, self.path = message, path


def changed(
    record: Subscription,
    said: Any,
    schema: Schema,
    *,
    beside: tuple[str, ...] = (),
    meaning: Meaning | None = None,
    key: str | None = None,
) -> Subscription:
    """A record with what a document says put in the place of what it had; null is a field's default.

    A filter that comes without parameters keeps those of the old one that it names. `beside` are fields that the
    document may have and others read; `meaning` is what ~ is evaluated by; `key` is what a new conflation tells events
    apart by where the document does not say it. Raises a `SubscriptionError` with every field that can't be used; then
    a `FilterError` where the filter does not fit the schema.

    >>> schema = Schema({"speed": "float64"})
    >>> changed(Subscription("s", "gps"), {"filter": "speed > %0", "params": [60]}, schema).params
    (60,)
    """
    if not isinstance(said, Mapping):
        raise SubscriptionError([DefinitionProblem("", f"expected an object with fields, not {said!r:.60}")])
    known = (*_READERS, *beside)
    problems = [DefinitionProblem(name, _unknown(name, known)) for name in said if name not in known]
    values: dict[str, Any] = {}
    for name, (target, read) in _READERS.items():
        if name in said:
            try:
                values[target] = read(said[name], record, schema)
            except _BadValue as bad:
                problems.append(DefinitionProblem(name + bad.path, bad.message))
    if not problems:
        if record.params and "filter" in values:
            values.setdefault("params", record.params[: _named(values["filter"])])
        if "every" in said and said.get("key") is None and (values["every_s"] is None or record.every_s is None):
            values["key"] = None if values["every_s"] is None else key
        record = replace(record, **values)
        problems = _together(record)
    if problems:
        raise SubscriptionError(problems)
    compiled(record, schema, meaning)
    return record


def compiled(
    record: Subscription, schema: Schema, meaning: Meaning | None = None, hidden: Collection[str] = ()
) -> Filter | None:
    """The filter of a record; None: everything.

    `meaning` is what ~ is evaluated by. Whoever asks by meaning names no attribute, and so must not find any that are
    `hidden` from them.
    """
    if not record.filter.strip():
        return None
    made = Filter(record.filter, schema, list(record.params), strict_params=True, semantics=meaning)
    if hidden and made.tree.is_semantic:
        return compiled(record, schema.without(hidden), meaning)
    made.require_evaluable()
    return made


def new_secret() -> str:
    """A secret for Standard Webhooks.

    >>> new_secret().startswith("whsec_")
    True
    """
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def _named(text: str) -> int:
    """How many parameters a filter's text wants.

    >>> _named("speed > %0 AND vid LIKE 'B%9'")
    1
    """
    return max((int(word[1:]) + 1 for kind, word, _ in tokenize(text) if kind == "param"), default=0)


def _unknown(name: str, known: tuple[str, ...]) -> str:
    if name in BEGINNINGS:
        return "expected none: where a subscription begins is said when it is made, and `ack` moves its cursor"
    return f"unknown field {name!r}{_hint(name, known)}"


def _hint(name: str, known: tuple[str, ...]) -> str:
    return did_you_mean(name, known) or f"; expected {', '.join(known)}"


def _together(record: Subscription) -> list[DefinitionProblem]:
    """What can't be beside something else."""
    found = []
    if record.params and not record.filter.strip():
        found.append(DefinitionProblem("params", "expected no parameters, as there is no filter"))
    if record.key is not None and record.every_s is None:
        found.append(DefinitionProblem("key", "expected `every` beside it: a key tells apart what is conflated"))
    if isinstance(record.deliver, Webhook) and record.idle_s is not None:
        found.append(DefinitionProblem("idle", "expected deliver `pull` beside it: a webhook is not told of idleness"))
    return found


# The fields -------------------------------------------------------------------------

_Reader = Callable[[Any, Subscription, Schema], Any]


def _text(said: Any, _: Subscription, __: Schema) -> str:
    if said is None:
        return ""
    if not isinstance(said, str):
        raise _BadValue(f"expected a text, not {said!r:.60}")
    if len(said) > MOST_TEXT:
        raise _BadValue(f"expected at most {MOST_TEXT:,} characters, not {len(said):,}")
    return said


def _params(said: Any, _: Subscription, __: Schema) -> tuple[Any, ...]:
    if said is None:
        return ()
    if not isinstance(said, list):
        raise _BadValue(f"expected a list of values for %0, %1, ..., not {said!r:.60}")
    for n, each in enumerate(said):
        if not isinstance(each, str | int | float | bool):
            raise _BadValue(f"expected a text, a number or a boolean, not {each!r:.60}", f"[{n}]")
    return tuple(said)


def _select(said: Any, _: Subscription, schema: Schema) -> tuple[str, ...] | None:
    if said is None:
        return None
    if isinstance(said, str):  # as a query has it
        said = [each.strip() for each in said.split(",") if each.strip()]
    if not isinstance(said, list):
        raise _BadValue(f"expected a list of attributes, not {said!r:.60}")
    for n, each in enumerate(said):
        _attribute(each, schema, f"[{n}]")
    if not said:
        raise _BadValue("expected at least one attribute, or null for all of them")
    return tuple(said)


def _key(said: Any, _: Subscription, schema: Schema) -> str | None:
    return None if said is None or said == "" else _attribute(said, schema)


def _attribute(said: Any, schema: Schema, path: str = "") -> str:
    known = tuple(field.name for field in schema.root)
    if not isinstance(said, str) or said not in known:
        hint = did_you_mean(said, known) if isinstance(said, str) else ""
        raise _BadValue(f"unknown attribute {said!r:.60}{hint or '; expected one of ' + ', '.join(known)}", path)
    return said


def _format(said: Any, _: Subscription, __: Schema) -> str:
    if said is None:
        return FORMATS[0]
    if said not in FORMATS:
        raise _BadValue(f"expected {' or '.join(FORMATS)}, not {said!r:.60}")
    return str(said)


def _seconds(said: Any, _: Subscription, __: Schema) -> float | None:
    if said is None:
        return None
    is_number = isinstance(said, int | float) and not isinstance(said, bool)
    found = float(said) if is_number else units.seconds(said) if isinstance(said, str) else None
    if found is None or not LEAST_S <= found <= MOST_S:
        raise _BadValue(f"expected a length of time from 10ms to 1d, such as '500ms', not {said!r:.60}")
    return found


def _deliver(said: Any, record: Subscription, _: Schema) -> Deliver:
    found = _named_way(said)
    if found == "pull":
        return Pull()
    if not isinstance(found, Mapping):
        raise _BadValue(f"expected 'pull' or {{'webhook': {{'url': ...}}}}, not {said!r:.60}")
    return _webhook(found["webhook"], record.deliver)


PULLED = ("pull", "sse", "websocket", "poll")
"""What a consumer who asks for its events calls it: how it asks is said when it does."""


def _named_way(said: Any) -> Any:
    """`pull`, or an object that has just `webhook`, of all ways to write them; None: neither.

    >>> _named_way({"type": "webhook", "url": "https://example.com/in"})
    {'webhook': {'url': 'https://example.com/in'}}
    """
    match said:
        case None:
            return "pull"
        case str():
            is_address = said.startswith(("http://", "https://"))
            return {"webhook": {"url": said}} if is_address else "pull" if said in PULLED else None
        case {"webhook": str() as url} if len(said) == 1 and "://" in url:
            return {"webhook": {"url": url}}
        case {"webhook": _} if len(said) == 1:
            return said
        case {"type": str() as way, **rest} if not isinstance(rest.get("webhook"), Mapping):
            return {"webhook": rest} if way == "webhook" else "pull" if way in PULLED and not rest else None
        case {"url": _, **rest} if "webhook" not in rest:
            return {"webhook": said}
    return None


def _webhook(said: Any, before: Deliver) -> Webhook:
    known = ("url", "batch", "handshake")
    if not isinstance(said, Mapping):
        raise _BadValue(f"expected an object with a url, not {said!r:.60}", ".webhook")
    for name in said:
        if name not in known:
            raise _BadValue(f"unknown field {name!r}{_hint(name, known)}", f".webhook.{name}")
    old = before if isinstance(before, Webhook) else None
    batch = said.get("batch", old.batch if old else 1)
    if type(batch) is not int or not 1 <= batch <= MOST_BATCH:
        raise _BadValue(f"expected a whole number from 1 to {MOST_BATCH:,}, not {batch!r:.60}", ".webhook.batch")
    if not isinstance(said.get("handshake", True), bool):
        raise _BadValue(f"expected true or false, not {said['handshake']!r:.60}", ".webhook.handshake")
    url = _url(said.get("url", old.url if old else None))
    return Webhook(url, old.secrets if old else (new_secret(),), batch)


def _url(said: Any) -> str:
    where = ".webhook.url"
    if not isinstance(said, str) or len(said) > MOST_URL or not said.isascii() or not said.isprintable():
        raise _BadValue(f"expected an address such as https://example.com/events, not {said!r:.60}", where)
    try:
        parts = urlsplit(said)
        port = parts.port
    except ValueError as error:
        raise _BadValue(f"{said!r:.60} is no address: {error}", where) from error
    if parts.scheme not in ("http", "https"):
        raise _BadValue(f"expected http or https, not {parts.scheme or said!r:.60}", where)
    if not parts.hostname or port == 0 or " " in said:
        raise _BadValue(f"expected a host, as in https://example.com/events, not {said!r:.60}", where)
    if parts.username is not None or parts.password is not None:
        raise _BadValue("expected no user or password in the address: requests are signed", where)
    if parts.fragment:
        raise _BadValue("expected no #fragment: it is never sent", where)
    return said


def wants_handshake(said: Any) -> bool:
    """Whether a document's webhook is to be asked whether it wants events at all."""
    deliver = _named_way(said.get("deliver")) if isinstance(said, Mapping) else None
    webhook = deliver.get("webhook") if isinstance(deliver, Mapping) else None
    return bool(webhook.get("handshake", True)) if isinstance(webhook, Mapping) else False


_READERS: dict[str, tuple[str, _Reader]] = {
    "filter": ("filter", _text),
    "params": ("params", _params),
    "deliver": ("deliver", _deliver),
    "select": ("select", _select),
    "format": ("format", _format),
    "every": ("every_s", _seconds),
    "key": ("key", _key),
    "idle": ("idle_s", _seconds),
    "description": ("description", _text),
}
