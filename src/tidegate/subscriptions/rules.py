"""Checks a consumer's document against the service's schema and turns it into a subscription record.

All problems of a document are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from tidegate.errors import DefinitionProblem, SubscriptionError, did_you_mean
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.filters.tokens import tokenize
from tidegate.model import Schema, units
from tidegate.subscriptions.push_target import BadValue, PushTarget
from tidegate.subscriptions.subscription import Deliver, Pull, SubscriptionRecord
from tidegate.subscriptions.topics import KafkaTopic, MqttTopic
from tidegate.subscriptions.webhook import Webhook

PUSH_TARGETS: dict[str, type[PushTarget]] = {target.kind: target for target in (Webhook, KafkaTopic, MqttTopic)}
"""All push targets, by the kind that documents and the registry use."""

FORMATS = ("cloudevents", "plain")
MAX_TEXT = 10_000
"""Maximum number of characters of a filter or a description."""
MAX_INTERVAL_S = 86_400.0
"""Maximum length of an interval: a day."""
BEGINNINGS = ("from", "cursor")
"""Fields that set the start position of a subscription."""
MIN_INTERVAL_S = 0.01
"""Minimum interval of a timer, so that it can't run all the time."""


def changed(
    record: SubscriptionRecord,
    document: Any,
    schema: Schema,
    *,
    beside: tuple[str, ...] = (),
    meaning: Meaning | None = None,
    key: str | None = None,
) -> SubscriptionRecord:
    """Return a record with the fields of a document; null resets a field to its default.

    A new filter without parameters keeps those parameters of the old one that it names. `beside` are fields of the
    document that others read. `meaning` evaluates predicates with ~. `key` is the default conflation key. Raises
    `SubscriptionError` with every field that can't be used, or `FilterError` if the filter does not fit the schema.

    >>> schema = Schema({"speed": "float64"})
    >>> changed(SubscriptionRecord("s", "gps"), {"filter": "speed > %0", "params": [60]}, schema).params
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
            except BadValue as bad:
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
    record: SubscriptionRecord, schema: Schema, meaning: Meaning | None = None, hidden: Collection[str] = ()
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


def _together(record: SubscriptionRecord) -> list[DefinitionProblem]:
    """Return the problems of fields that exclude each other."""
    problems = []
    if record.params and not record.filter.strip():
        problems.append(DefinitionProblem("params", "expected no parameters, as there is no filter"))
    if record.key is not None and record.every_s is None:
        problems.append(
            DefinitionProblem("key", "expected `every` with it: the latest event per key is sent in each interval")
        )
    if record.push_target is not None and record.idle_s is not None:
        problems.append(DefinitionProblem("idle", "expected deliver `pull` with it: a webhook gets no idle notices"))
    return problems


# Fields -----------------------------------------------------------------------------

_Reader = Callable[[Any, SubscriptionRecord, Schema], Any]


def _text(value: Any, _: SubscriptionRecord, __: Schema) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadValue(f"expected a text, not {value!r:.60}")
    if len(value) > MAX_TEXT:
        raise BadValue(f"expected at most {MAX_TEXT:,} characters, not {len(value):,}")
    return value


def _params(value: Any, _: SubscriptionRecord, __: Schema) -> tuple[Any, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadValue(f"expected a list of values for %0, %1, ..., not {value!r:.60}")
    for n, param in enumerate(value):
        if not isinstance(param, str | int | float | bool):
            raise BadValue(f"expected a text, a number or a boolean, not {param!r:.60}", f"[{n}]")
    return tuple(value)


def _select(value: Any, _: SubscriptionRecord, schema: Schema) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):  # as in a query string
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list):
        raise BadValue(f"expected a list of attributes, not {value!r:.60}")
    for n, name in enumerate(value):
        _attribute(name, schema, f"[{n}]")
    if not value:
        raise BadValue("expected at least one attribute, or null for all of them")
    return tuple(value)


def _key(value: Any, _: SubscriptionRecord, schema: Schema) -> str | None:
    return None if value is None or value == "" else _attribute(value, schema)


def _attribute(name: Any, schema: Schema, path: str = "") -> str:
    known = tuple(field.name for field in schema.root)
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(name, known) if isinstance(name, str) else ""
        raise BadValue(f"unknown attribute {name!r:.60}{hint or '; expected one of ' + ', '.join(known)}", path)
    return name


def _format(value: Any, _: SubscriptionRecord, __: Schema) -> str:
    if value is None:
        return FORMATS[0]
    if value not in FORMATS:
        raise BadValue(f"expected {' or '.join(FORMATS)}, not {value!r:.60}")
    return str(value)


def _seconds(value: Any, _: SubscriptionRecord, __: Schema) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    seconds = float(value) if is_number else units.seconds(value) if isinstance(value, str) else None
    if seconds is None or not MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
        raise BadValue(f"expected a length of time from 10ms to 1d, such as '500ms', not {value!r:.60}")
    return seconds


def _deliver(value: Any, record: SubscriptionRecord, _: Schema) -> Deliver:
    named = _kind_and_fields(value)
    if named is None:
        kinds = " or ".join(kind for kind in PUSH_TARGETS if kind != Webhook.kind)
        raise BadValue(f"expected 'pull' or {{'webhook': {{'url': ...}}}}, not {value!r:.60}; or {kinds} in its place")
    kind, fields = named
    if kind == "pull":
        return Pull()
    try:
        return PUSH_TARGETS[kind].parse(fields, record.push_target)
    except BadValue as bad:
        raise BadValue(bad.message, f".{kind}{bad.path}") from bad


PULLED = ("pull", "sse", "websocket", "poll")
"""Names of pull delivery; the transport is chosen when the consumer connects."""


def _kind_and_fields(value: Any) -> tuple[str, Any] | None:
    """Return `pull` or a kind of push target, and its fields, for every accepted notation; None for anything else.

    >>> _kind_and_fields({"type": "webhook", "url": "https://example.com/in"})
    ('webhook', {'url': 'https://example.com/in'})
    """
    if value is None or (isinstance(value, str) and value in PULLED):
        return "pull", {}
    for kind, target in PUSH_TARGETS.items():
        fields = target.shorthand(value)
        if fields is not None:
            return kind, fields
    if not isinstance(value, Mapping):
        return None
    if len(value) == 1 and (kind := next(iter(value))) in PUSH_TARGETS:
        return kind, value[kind]
    type_ = value.get("type")
    fields = {name: field for name, field in value.items() if name != "type"}
    if not isinstance(type_, str) or isinstance(fields.get(type_), Mapping):
        return None
    if type_ in PULLED:
        return None if fields else ("pull", {})
    return (type_, fields) if type_ in PUSH_TARGETS else None


def wants_handshake(document: Any) -> bool:
    """Return True if the push target of a document must confirm that it wants events."""
    named = _kind_and_fields(document.get("deliver")) if isinstance(document, Mapping) else None
    if named is None or named[0] == "pull" or not isinstance(named[1], Mapping):
        return False
    return bool(named[1].get("handshake", True))


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
