"""Broker to broker over WebSocket: who they are, what they ask for, the events themselves, once each.

`Federation` holds a broker's links. It knows no HTTP server and no subscriber: whoever runs it hands it sockets,
tells it what is needed, and says what each neighbour may see.
"""

from tidegate.federation.link.context import LocalServices
from tidegate.federation.link.dialer import PATH
from tidegate.federation.link.federation import Federation
from tidegate.federation.link.forwarder import Supply
from tidegate.federation.link.offers import Remote, offered
from tidegate.federation.link.settings import LinkSettings
from tidegate.federation.link.wire import SUBPROTOCOL, LinkClosed, LinkSocket

__all__ = [
    "PATH",
    "SUBPROTOCOL",
    "Federation",
    "LinkClosed",
    "LinkSettings",
    "LinkSocket",
    "LocalServices",
    "Remote",
    "Supply",
    "offered",
]
