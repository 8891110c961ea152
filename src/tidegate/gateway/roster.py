"""The gateways that share a registry: says that this one runs, and knows which others do.

    this gateway ── report, each second ──▶ registry ── reports of the others ──▶ peers, use, needs

A report is a JSON object. Gateways of other versions may leave out members of it, or add some.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import structlog

from tidegate.delivery.push.placement import Peer
from tidegate.registry import Registry
from tidegate.timing import periodic

REPORT_INTERVAL_S = 1.0
REPORT_VALID_S = 6.0
"""How long a gateway that reports no more counts as running."""

_log = structlog.get_logger("tidegate.gateway")

Report = Mapping[str, Any]


class Roster:
    """Reports this gateway to the others that share its registry, and reads their reports. Runs on the event loop."""

    def __init__(
        self, registry: Registry, name: str, *, has_semantics: bool = False, interval_s: float = REPORT_INTERVAL_S
    ) -> None:
        """`name` is for messages; each process has another id.

        `has_semantics`: this gateway evaluates filters with ~.
        """
        self.id = f"gateway_{secrets.token_hex(8)}"
        self.parts: dict[str, Callable[[], Any]] = {}
        """Further members of the report: each is what its function returns, a JSON value."""
        self.has_links: Callable[[], bool] = lambda: False
        """Returns whether this gateway holds the links to other brokers."""
        self.listeners: list[Callable[[Mapping[str, Report]], None]] = []
        """Called with the reports of the other gateways, by id, when they were read."""
        self.others: Mapping[str, Report] = {}
        """The newest reports of the other gateways, by id."""
        self._registry, self._name, self._interval_s = registry, name, interval_s
        self._has_semantics = has_semantics
        self._follower: asyncio.Task[None] | None = None

    @property
    def peers(self) -> list[Peer]:
        """All gateways that run, this one included."""
        reports = {self.id: self._features(), **self.others}
        return [
            Peer(id_, has_semantics=report.get("semantics") is True, has_links=report.get("links") is True)
            for id_, report in reports.items()
        ]

    async def start(self) -> None:
        """Report this gateway and read the others, then do so periodically in a task until `close`."""
        await self._exchange_or_log()
        self._follower = asyncio.create_task(periodic(self._exchange_or_log, self._interval_s))

    async def close(self) -> None:
        """End the task, and tell the others that this gateway has ended."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._registry.remove_gateway, self.id)
        except Exception as problem:  # the others notice it a few seconds later
            _log.warning("can't remove this gateway from the registry", problem=str(problem))

    async def _exchange_or_log(self) -> None:
        try:
            await self.exchange()
        except Exception as problem:  # no gateway can report now, so keep the last reports
            _log.warning("can't exchange reports with other gateways", problem=str(problem))

    async def exchange(self) -> None:
        """Report this gateway, and read the reports of the others. Raises what the registry raises."""
        document = orjson.dumps(self._report()).decode()
        documents = await asyncio.get_running_loop().run_in_executor(None, self._write_and_read, document)
        documents.pop(self.id, None)
        self.others = {id_: _parsed(text) for id_, text in documents.items()}
        for listener in self.listeners:
            listener(self.others)

    def _write_and_read(self, document: str) -> dict[str, str]:
        self._registry.report_gateway(self.id, document, REPORT_VALID_S)
        return self._registry.gateways()

    def _report(self) -> dict[str, Any]:
        return {"name": self._name, **self._features()} | {name: part() for name, part in self.parts.items()}

    def _features(self) -> dict[str, bool]:
        return {"semantics": self._has_semantics, "links": self.has_links()}


def _parsed(text: str) -> Report:
    """Return a report; an empty one if it is not a JSON object, as of a newer version."""
    try:
        report = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return report if isinstance(report, dict) else {}
