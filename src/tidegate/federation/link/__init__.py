"""Links between brokers over WebSocket: authentication, routes, and the forwarding of events, each once.

`Federation` holds the links of one broker. It knows no HTTP server and no subscriber: its caller passes it connected
sockets, requests the filters that subscribers need, and states which services each neighbour may see (`LocalServices`).
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
