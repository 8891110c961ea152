"""What one caller sees of all services and streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.delivery.encoding import Encoding
from tidegate.delivery.pacing import paced
from tidegate.delivery.subscriber import Sink
from tidegate.filters import Filter
from tidegate.filters.meaning import Meaning
from tidegate.gateway.auth.callers import Caller
from tidegate.gateway.auth.policy import Policies
from tidegate.gateway.auth.quotas import Meter
from tidegate.gateway.http import parameters
from tidegate.model import Schema


@dataclass(frozen=True, slots=True)
class View:
    """The policies and quotas as they apply to one caller."""

    policies: Policies
    meter: Meter
    caller: Caller

    def schema(self, service: str) -> Schema:
        """Return the visible part of a service's output schema. Raises if the caller does not see the service."""
        return self.policies.schema(self.caller, service)

    def key(self, service: str) -> str | None:
        """Return the key attribute of a service; None if there is none, or the caller does not see it."""
        return self.policies.key(self.caller, service)

    def meaning(self, service: str) -> Meaning | None:
        """Return the semantics for filters with ~ over a service; None if there are none."""
        return self.policies.meaning(service)

    def filter_(self, text: str | None, params: Sequence[str] | None, service: str) -> Filter | None:
        """Compile a filter over the visible attributes; None means all events. Raises if it exceeds a quota."""
        self.meter.need_filter(self.caller, text)
        return parameters.filter_(text, params, self.schema(service), self.meaning(service))

    def encoding(self, encoding: Encoding, service: str) -> Encoding:
        """Return an encoding without the attributes that the caller does not see."""
        return self.policies.visible_encoding(encoding, self.caller, service)

    def shown_event(self, event: Mapping[str, Any], service: str) -> dict[str, Any]:
        """Return an event without hidden attributes, and with its id hashed if the caller may not see ids."""
        hidden, ids = self.hidden(service), self.policies.ids(self.caller, service)
        shown = {name: value for name, value in event.items() if name not in hidden}
        if ids is not None and isinstance(shown.get("_id"), str):
            shown["_id"] = ids.render(shown["_id"])
        return shown

    def knows_stream(self, name: str) -> bool:
        """True if the caller may know that a raw stream exists."""
        return self.policies.streams.knows(self.caller, name)

    def named(self, names: Iterable[str]) -> list[str]:
        """Return the streams and services among `names` that the caller may know of."""
        return [name for name in names if self.knows_stream(name) or self.policies.sees(self.caller, name)]

    def hidden(self, service: str) -> frozenset[str]:
        """Return the attributes of a service that the caller does not see."""
        return self.policies.hidden(self.caller, service)

    def withheld(self, service: str) -> frozenset[str]:
        """Return the hidden attributes, and `_id` if the caller sees ids only hashed."""
        return self.policies.withheld(self.caller, service)

    def paced(self, sink: Sink) -> Sink:
        """Wrap a sink so that it stays within the caller's delivery rate."""
        return paced(sink, self.meter.pace(self.caller))

    def services(self, names: Iterable[str]) -> list[str]:
        """Return the services among `names` that the caller sees."""
        return [name for name in names if self.policies.sees(self.caller, name)]
