"""Builds the push transport of each kind of push target, from the module of this package with the name of the kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tidegate.delivery.push.transport import PushTransport, PushTransports
from tidegate.gateway.telemetry.tracing import Tracing
from tidegate.gateway.transports.topics import OpenConnection
from tidegate.gateway.transports.webhook import WebhookSettings
from tidegate.services.definitions import NONE
from tidegate.subscriptions import PUSH_TARGETS


@dataclass(frozen=True, slots=True)
class TransportRequest:
    """What transports are built from."""

    webhooks: WebhookSettings = field(default_factory=WebhookSettings)
    tracing: Tracing | None = None
    """None: messages get no spans."""
    connections: Mapping[str, OpenConnection[Any]] = field(default_factory=lambda: NONE)
    """Connections of the profile that are open for subscriptions, by name."""


TransportFactory = Callable[[TransportRequest], PushTransport]
"""Builds a transport. Does no I/O: the transport connects when it sends, and then imports the library of an extra."""


def push_transports(request: TransportRequest) -> PushTransports:
    """Return the transports of all `PUSH_TARGETS`. The gateway calls it once."""
    return PushTransports({kind: _factory(kind)(request) for kind in PUSH_TARGETS})


def _factory(kind: str) -> TransportFactory:
    factory: TransportFactory = import_module(f"{__package__}.{kind}").make_transport
    return factory
