"""What subscribers at several gateways of one broker need of other brokers: the gateway with the links requests it.

Each gateway reports the filters of its own ad-hoc subscribers. Durable subscriptions are in the registry, where all
gateways read them. The gateway with the links saves sync points in the registry, where the others find them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from tidegate.errors import TidegateError
from tidegate.federation.link.context import LinkContext
from tidegate.federation.link.filters import filter_from_json, filter_to_json
from tidegate.federation.link.needs import Needs
from tidegate.federation.link.remote_subscriptions import RemoteSubscriptions
from tidegate.filters import Filter

MAX_REPORT_BYTES = 64 * 1024
"""Filters of a report, which is written once a second. A gateway with more asks for all events of these services."""
GATEWAY, DURABLE = "gateway", "durable"
"""First items of the holders of filters that other gateways, or durable subscriptions, need."""


class SharedNeeds:
    """The filters that gateways of one broker need for each other. Used on the event loop only."""

    def __init__(self, context: LinkContext, subscriptions: RemoteSubscriptions, needs: Needs) -> None:
        self._context, self._subscriptions, self._needs = context, subscriptions, needs
        self._held: set[Hashable] = set()

    def report(self) -> list[dict[str, Any]]:
        """Return the filters that subscribers at this gateway need, for the gateway that holds the links."""
        wanted = self._needs.filters_held_by(_is_own)
        entries = [
            {"service": service, "filter": filter_to_json(filter_)}
            for service, filters in sorted(wanted.items())
            for filter_ in filters
        ]
        if len(orjson.dumps(entries)) <= MAX_REPORT_BYTES:
            return entries
        return [{"service": service, "filter": None} for service in sorted(wanted)]

    def note(self, reports: Mapping[str, object]) -> None:
        """Request what the other gateways need, by their id, if this one holds the links; else release all of it."""
        held: set[Hashable] = set()
        for gateway, entries in reports.items() if self._context.has_lease else ():
            for entry in entries if isinstance(entries, list) else ():
                with suppress(TidegateError, KeyError, TypeError):  # of another version
                    holder: Hashable = GATEWAY, gateway, entry["service"], orjson.dumps(entry["filter"])
                    self._subscriptions.hold(holder, entry["service"], self._filter(entry))
                    held.add(holder)
        for holder in self._held - held:
            self._subscriptions.release(holder)
        self._held = held

    def _filter(self, entry: Mapping[str, Any]) -> Filter | None:
        """Return a reported filter; None: all events."""
        remote = self._context.remotes.get(entry["service"])
        if remote is None or entry["filter"] is None:
            return None
        return filter_from_json(entry["filter"], remote.schema)


def _is_own(holder: Hashable) -> bool:
    """True for a subscriber at this gateway that other gateways do not know."""
    return not (isinstance(holder, tuple) and holder[:1] in ((GATEWAY,), (DURABLE,)))
