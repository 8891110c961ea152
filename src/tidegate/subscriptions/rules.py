"""Checks a consumer's document against the service's schema and turns it into a subscription record.

All problems of a document are reported at once.
"""

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
"""Maximum number of events in one request of a webhook: the receiver reads the body as a whole."""
MOST_TEXT = 10_000
"""Maximum number of characters of a filter or a description."""
MOST_URL = 2_000
MOST_S = 86_400.0
BEGINNINGS = ("from", "cursor")
"""Fields that set the start position of a subscription."""
LEAST_S = 0.01
"""Minimum interval of a timer, so that it can't run all the time."""
MOST_SECRETS = 4
"""Maximum number of secrets that sign at the same time: each makes the header of every request longer."""


class _BadValue(Exception):  # noqa: N818 - caught right here
    """A value that can't be used, and its path inside the field."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message, self.path = message, path


def changed(
    record: Subscription,
    document: Any,
    schema: Schema,
    *,
    beside: tuple[str, ...] = (),
    meaning: Meaning | None = None,
    key: str | None = None,
) -> Subscription:
    """Return a record with the fields of a document; null resets a field to its default.

    A new filter without parameters keeps those parameters of the old one that it names. `beside` are fields of the
    document that others read. `meaning` evaluates predicates with ~. `key` is the default conflation key. Raises
    `SubscriptionError` with every field that can't be used, or `FilterError` if the filter does not fit the schema.

    >>> schema = Schema({"speed": "float64"})
    >>> changed(Subscription("s", "gps"), {"filter": "speed > %0", "params": [60]}, schema).params
    (60,)
    """
    if not isinstance(document, Mapping):
        raise SubscriptionError([DefinitionProblem("", f"expected an object with fields, not {document!r:.60}")])
    known = (*_READERS, *beside)
    problems = [DefinitionProblem(name, _unknown(name, known)) for name in document if name not in known]
    values: dict[str, Any] = {}
    for name, (target, read) in _READERS.items():
        if name in document:
            try:
                values[target] = read(document[name], record, schema)
            except _BadValue as bad:
                problems.append(DefinitionProblem(name + bad.path, bad.message))
    if not problems:
        if record.params and "filter" in values:
            values.setdefault("params", record.params[: _named(values["filter"])])
        if (
            "every" in document
            and document.get("key") is None
            and (values["every_s"] is None or record.every_s is None)
        ):
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
    """Return the filter of a record; None if it has none and so matches everything.

    `meaning` evaluates predicates with ~. A predicate with ~ may match any attribute, so `hidden` attributes are
    removed from the schema first. Raises `FilterError`.
    """
    if not record.filter.strip():
        return None
    filter_ = Filter(record.filter, schema, list(record.params), strict_params=True, semantics=meaning)
    if hidden and filter_.tree.is_semantic:
        return compiled(record, schema.without(hidden), meaning)
    filter_.require_evaluable()
    return filter_


def new_secret() -> str:
    """Return a new secret for Standard Webhooks.

    >>> new_secret().startswith("whsec_")
    True
    """
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def _named(text: str) -> int:
    """Return how many parameters a filter's text needs.

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
    """Return the problems of fields that exclude each other."""
    problems = []
    if record.params and not record.filter.strip():
        problems.append(DefinitionProblem("params", "expected no parameters, as there is no filter"))
    if record.key is not None and record.every_s is None:
        problems.append(DefinitionProblem("key", "expected `every` beside it: a key tells apart what is conflated"))
    if isinstance(record.deliver, Webhook) and record.idle_s is not None:
        problems.append(
            DefinitionProblem("idle", "expected deliver `pull` beside it: a webhook is not told of idleness")
        )
    return problems


# Fields -----------------------------------------------------------------------------

_Reader = Callable[[Any, Subscription, Schema], Any]


def _text(value: Any, _: Subscription, __: Schema) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _BadValue(f"expected a text, not {value!r:.60}")
    if len(value) > MOST_TEXT:
        raise _BadValue(f"expected at most {MOST_TEXT:,} characters, not {len(value):,}")
    return value


def _params(value: Any, _: Subscription, __: Schema) -> tuple[Any, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _BadValue(f"expected a list of values for %0, %1, ..., not {value!r:.60}")
    for n, param in enumerate(value):
        if not isinstance(param, str | int | float | bool):
            raise _BadValue(f"expected a text, a number or a boolean, not {param!r:.60}", f"[{n}]")
    return tuple(value)


def _select(value: Any, _: Subscription, schema: Schema) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):  # as in a query string
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list):
        raise _BadValue(f"expected a list of attributes, not {value!r:.60}")
    for n, name in enumerate(value):
        _attribute(name, schema, f"[{n}]")
    if not value:
        raise _BadValue("expected at least one attribute, or null for all of them")
    return tuple(value)


def _key(value: Any, _: Subscription, schema: Schema) -> str | None:
    return None if value is None or value == "" else _attribute(value, schema)


def _attribute(name: Any, schema: Schema, path: str = "") -> str:
    known = tuple(field.name for field in schema.root)
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(name, known) if isinstance(name, str) else ""
        raise _BadValue(f"unknown attribute {name!r:.60}{hint or '; expected one of ' + ', '.join(known)}", path)
    return name


def _format(value: Any, _: Subscription, __: Schema) -> str:
    if value is None:
        return FORMATS[0]
    if value not in FORMATS:
        raise _BadValue(f"expected {' or '.join(FORMATS)}, not {value!r:.60}")
    return str(value)


def _seconds(value: Any, _: Subscription, __: Schema) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    seconds = float(value) if is_number else units.seconds(value) if isinstance(value, str) else None
    if seconds is None or not LEAST_S <= seconds <= MOST_S:
        raise _BadValue(f"expected a length of time from 10ms to 1d, such as '500ms', not {value!r:.60}")
    return seconds


def _deliver(value: Any, record: Subscription, _: Schema) -> Deliver:
    way = _named_way(value)
    if way == "pull":
        return Pull()
    if not isinstance(way, Mapping):
        raise _BadValue(f"expected 'pull' or {{'webhook': {{'url': ...}}}}, not {value!r:.60}")
    return _webhook(way["webhook"], record.deliver)


PULLED = ("pull", "sse", "websocket", "poll")
"""Names of pull delivery; the transport is chosen when the consumer connects."""


def _named_way(value: Any) -> Any:
    """Return `pull`, or an object with only `webhook`, for every accepted notation; None for anything else.

    >>> _named_way({"type": "webhook", "url": "https://example.com/in"})
    {'webhook': {'url': 'https://example.com/in'}}
    """
    match value:
        case None:
            return "pull"
        case str():
            is_address = value.startswith(("http://", "https://"))
            return {"webhook": {"url": value}} if is_address else "pull" if value in PULLED else None
        case {"webhook": str() as url} if len(value) == 1 and "://" in url:
            return {"webhook": {"url": url}}
        case {"webhook": _} if len(value) == 1:
            return value
        case {"type": str() as way, **rest} if not isinstance(rest.get("webhook"), Mapping):
            return {"webhook": rest} if way == "webhook" else "pull" if way in PULLED and not rest else None
        case {"url": _, **rest} if "webhook" not in rest:
            return {"webhook": value}
    return None


def _webhook(value: Any, before: Deliver) -> Webhook:
    known = ("url", "batch", "handshake")
    if not isinstance(value, Mapping):
        raise _BadValue(f"expected an object with a url, not {value!r:.60}", ".webhook")
    for name in value:
        if name not in known:
            raise _BadValue(f"unknown field {name!r}{_hint(name, known)}", f".webhook.{name}")
    old = before if isinstance(before, Webhook) else None
    batch = value.get("batch", old.batch if old else 1)
    if type(batch) is not int or not 1 <= batch <= MOST_BATCH:
        raise _BadValue(f"expected a whole number from 1 to {MOST_BATCH:,}, not {batch!r:.60}", ".webhook.batch")
    if not isinstance(value.get("handshake", True), bool):
        raise _BadValue(f"expected true or false, not {value['handshake']!r:.60}", ".webhook.handshake")
    url = _url(value.get("url", old.url if old else None))
    return Webhook(url, old.secrets if old else (new_secret(),), batch)


def _url(value: Any) -> str:
    where = ".webhook.url"
    if not isinstance(value, str) or len(value) > MOST_URL or not value.isascii() or not value.isprintable():
        raise _BadValue(f"expected an address such as https://example.com/events, not {value!r:.60}", where)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise _BadValue(f"{value!r:.60} is no address: {error}", where) from error
    if parts.scheme not in ("http", "https"):
        raise _BadValue(f"expected http or https, not {parts.scheme or value!r:.60}", where)
    if not parts.hostname or port == 0 or " " in value:
        raise _BadValue(f"expected a host, as in https://example.com/events, not {value!r:.60}", where)
    if parts.username is not None or parts.password is not None:
        raise _BadValue("expected no user or password in the address: requests are signed", where)
    if parts.fragment:
        raise _BadValue("expected no #fragment: it is never sent", where)
    return value


def wants_handshake(document: Any) -> bool:
    """Return True if the webhook of a document must confirm that it wants events."""
    deliver = _named_way(document.get("deliver")) if isinstance(document, Mapping) else None
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
