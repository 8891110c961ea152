"""Finds services: by what they offer, how well they fit, and how good they are.

Knows attributes, properties and figures of quality; no registry, log or network, and
no clock: whoever feeds it says what there is and what time it is.
"""

from tidegate.discovery.answer import Answer, Changes, Found, changes
from tidegate.discovery.directory import Directory, DirectorySettings
from tidegate.discovery.holdings import Offer
from tidegate.discovery.request import Request
from tidegate.discovery.windows import Observation

__all__ = [
    "Answer",
    "Changes",
    "Directory",
    "DirectorySettings",
    "Found",
    "Observation",
    "Offer",
    "Request",
    "changes",
]
