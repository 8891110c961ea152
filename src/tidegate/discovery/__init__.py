"""Finds services by their attributes, properties and quality, and ranks them.

Does no I/O and reads no clock: the caller puts services and observations in and passes the current time. Knows neither
registry nor log nor network.
"""

from tidegate.discovery.answer import Answer, Changes, DiscoveryResult, changes
from tidegate.discovery.directory import Directory, DirectorySettings
from tidegate.discovery.request import Request
from tidegate.discovery.service_table import Offer
from tidegate.discovery.windows import Observation

__all__ = [
    "Answer",
    "Changes",
    "Directory",
    "DirectorySettings",
    "DiscoveryResult",
    "Observation",
    "Offer",
    "Request",
    "changes",
]
