"""Ingest: parses, validates, deduplicates and appends events that producers send over HTTP.

Knows content types and headers, and nothing else of HTTP: a route of the gateway calls `Ingestor.ingest`, and turns the
receipt or the error into a response. Does not know services.
"""

from tidegate.ingress.http.core import Ingest, IngestRequest
from tidegate.ingress.http.direct import DirectIngest, Ingestor
from tidegate.ingress.http.formats import CONTENT_TYPES
from tidegate.ingress.http.process import OpenLog
from tidegate.ingress.http.receipt import MODES, EventRefusal, IngestReceipt, Mode
from tidegate.ingress.http.settings import IngestSettings
from tidegate.ingress.http.worker import IngestWorker

__all__ = [
    "CONTENT_TYPES",
    "MODES",
    "DirectIngest",
    "EventRefusal",
    "Ingest",
    "IngestReceipt",
    "IngestRequest",
    "IngestSettings",
    "IngestWorker",
    "Ingestor",
    "Mode",
    "OpenLog",
]
