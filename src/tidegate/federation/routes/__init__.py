"""Routing: which filters a broker requests from its neighbours, and which neighbours an event is forwarded to.

`Broker` takes changes and messages, and returns the messages to send. It opens no socket, starts no thread and reads
no clock: `federation.link` sends the messages and calls it.
"""

from tidegate.federation.routes.adaptive import Adaptive, AdaptiveSettings, FilterFigures
from tidegate.federation.routes.broker import Broker
from tidegate.federation.routes.link_tables import LinkTables, may_match
from tidegate.federation.routes.messages import (
    Hello,
    LinkRefusal,
    Message,
    Reach,
    RouteEntry,
    RouteTable,
    Sent,
    TableState,
    Update,
)
from tidegate.federation.routes.strategies import STRATEGIES

__all__ = [
    "STRATEGIES",
    "Adaptive",
    "AdaptiveSettings",
    "Broker",
    "FilterFigures",
    "Hello",
    "LinkRefusal",
    "LinkTables",
    "Message",
    "Reach",
    "RouteEntry",
    "RouteTable",
    "Sent",
    "TableState",
    "Update",
    "may_match",
]
