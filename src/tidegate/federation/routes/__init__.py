"""Which filters a broker asks its neighbours for, and where an event goes: pure, by covering.

`Broker` takes changes and messages and gives the messages that follow from them. It opens no
socket, starts no thread and reads no clock: whoever carries the messages decides when.
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
    Sent,
    Table,
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
    "Sent",
    "Table",
    "TableState",
    "Update",
    "may_match",
]
