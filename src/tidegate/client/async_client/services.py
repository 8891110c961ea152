"""Calls about services: list, discover, apply, quarantine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import httpx

from tidegate.client.async_client.connection import AsyncGatewayConnection
from tidegate.client.discovery_watch import DiscoveryWatch
from tidegate.client.publish_session import Mode
from tidegate.client.requests import services as service_requests
from tidegate.client.requests.request import Since
from tidegate.errors import ClientError


class AsyncServiceCalls:
    """The methods of `AsyncClient` about services."""

    _connection: AsyncGatewayConnection

    async def services(self) -> list[dict[str, Any]]:
        """Return all services, each with its definition, version, schema and status."""
        document = await self._connection.send(service_requests.list_all())
        services: list[dict[str, Any]] = document["services"]
        return services

    async def service(self, name: str) -> dict[str, Any]:
        """Return one service."""
        return await self._connection.send(service_requests.get(name))

    async def status(self, name: str) -> dict[str, Any]:
        """Return the running state of a service, and how many subscribers it has."""
        return await self._connection.send(service_requests.status(name))

    async def discover(self, **request: Any) -> dict[str, Any]:
        """Search for services by `attributes`, `filter`, `themes`, `qos` and the other fields of a request.

        The answer has `results`, the best first, and `hints` if few or none fit: see docs/spec/discovery.md.
        """
        return await self._connection.send(service_requests.discover(request))

    async def watch(self, *, used: str | None = None, **request: Any) -> AsyncIterator[dict[str, Any]]:
        """Search for services and yield the answer, then every change of it, without end.

        `kind` is `answer` for a whole answer, also after a reconnect, and `changes` for services that `appeared`,
        `changed`, `left` or are `better` than `used`, the service that the caller uses now.
        """
        watch = DiscoveryWatch(self._connection.reconnect, random.random)
        while True:
            try:
                stream = await self._connection.open_stream(service_requests.discover(request, watch=True, used=used))
                async with aclosing(stream):
                    async for chunk in stream.aiter_raw():
                        for answer in watch.feed(chunk):
                            yield answer
            except (ClientError, httpx.TransportError) as error:
                watch.connection_failed(error)
            await asyncio.sleep(watch.next_backoff_s())

    async def quarantine(
        self,
        service: str,
        *,
        rule: str | None = None,
        since: Since | None = None,
        replayed: bool | None = None,
        cursor: str | None = None,
        most: int = 100,
    ) -> dict[str, Any]:
        """Return a page of the events that violate the constraints of a service: `quarantined`, `cursor`, `more`.

        `rule` and `replayed` choose among them; `most` is the size of a page.
        """
        return await self._connection.send(
            service_requests.quarantine_page(service, rule, since, replayed, cursor, most)
        )

    async def replay(self, service: str, said: Mapping[str, Any], *, mode: Mode = "all") -> dict[str, Any]:
        """Ingest quarantined events again. `said` is `{"events": [...]}` or `{"all": {...}}`, as in the HTTP API."""
        return await self._connection.send(service_requests.replay(service, said, mode))

    async def apply(
        self, files: str | Mapping[str, str], *, force: bool = False, prune: bool = False, backfill: bool = False
    ) -> dict[str, dict[str, int]]:
        """Apply service files, all or nothing. `files` is one text, or texts by file name. Needs a provider's key.

        Returns the names that were `added`, `changed`, `unchanged` and `removed`, each with its version. `prune`
        removes services that the files do not define; `force` and `backfill` are those of `tidegate apply`.
        """
        return await self._connection.send(service_requests.apply(files, force=force, prune=prune, backfill=backfill))
