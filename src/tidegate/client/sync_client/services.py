# Generated from async_client/services.py by scripts/generate_sync_client.py; do not edit.
"""Calls about services: list, discover, apply, quarantine."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import httpx

from tidegate.client.discovery_watch import DiscoveryWatch
from tidegate.client.publish_session import Mode
from tidegate.client.requests import services as service_requests
from tidegate.client.requests.request import Since
from tidegate.client.sync_client.connection import GatewayConnection
from tidegate.errors import ClientError


class ServiceCalls:
    """The methods of `Client` about services."""

    _connection: GatewayConnection

    def services(self) -> list[dict[str, Any]]:
        """Return all services, each with its definition, version, schema and status."""
        document = self._connection.send(service_requests.list_all())
        services: list[dict[str, Any]] = document["services"]
        return services

    def service(self, name: str) -> dict[str, Any]:
        """Return one service."""
        return self._connection.send(service_requests.get(name))

    def status(self, name: str) -> dict[str, Any]:
        """Return the running state of a service, and how many subscribers it has."""
        return self._connection.send(service_requests.status(name))

    def discover(self, **request: Any) -> dict[str, Any]:
        """Search for services by `attributes`, `filter`, `themes`, `qos` and the other fields of a request.

        The answer has `results`, the best first, and `hints` if few or none fit: see docs/spec/discovery.md.
        """
        return self._connection.send(service_requests.discover(request))

    def watch(self, *, used: str | None = None, **request: Any) -> Iterator[dict[str, Any]]:
        """Search for services and yield the answer, then every change of it, without end.

        `kind` is `answer` for a whole answer, also after a reconnect, and `changes` for services that `appeared`,
        `changed`, `left` or are `better` than `used`, the service that the caller uses now.
        """
        watch = DiscoveryWatch(self._connection.reconnect, random.random)
        while True:
            try:
                stream = self._connection.open_stream(service_requests.discover(request, watch=True, used=used))
                with closing(stream):
                    for chunk in stream.iter_raw():
                        for answer in watch.feed(chunk):
                            yield answer
            except (ClientError, httpx.TransportError) as error:
                watch.connection_failed(error)
            time.sleep(watch.next_backoff_s())

    def quarantine(
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
        return self._connection.send(service_requests.quarantine_page(service, rule, since, replayed, cursor, most))

    def replay(self, service: str, said: Mapping[str, Any], *, mode: Mode = "all") -> dict[str, Any]:
        """Ingest quarantined events again. `said` is `{"events": [...]}` or `{"all": {...}}`, as in the HTTP API."""
        return self._connection.send(service_requests.replay(service, said, mode))

    def apply(
        self, files: str | Mapping[str, str], *, force: bool = False, prune: bool = False, backfill: bool = False
    ) -> dict[str, dict[str, int]]:
        """Apply service files, all or nothing. `files` is one text, or texts by file name. Needs a provider's key.

        Returns the names that were `added`, `changed`, `unchanged` and `removed`, each with its version. `prune`
        removes services that the files do not define; `force` and `backfill` are those of `tidegate apply`.
        """
        return self._connection.send(service_requests.apply(files, force=force, prune=prune, backfill=backfill))
