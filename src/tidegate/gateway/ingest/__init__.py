"""Events that are sent to raw streams: read, judged, appended, acknowledged.

Knows nothing of HTTP but content types and headers, and nothing of services: the
app routes a request here and turns what comes back into an answer.
"""

from tidegate.gateway.ingest.core import Ingest, Request
from tidegate.gateway.ingest.direct import DirectIngest, Ingesting
from tidegate.gateway.ingest.formats import CONTENT_TYPES
from tidegate.gateway.ingest.process import OpenLog
from tidegate.gateway.ingest.receipt import MODES, Mode, Receipt, Refusal
from tidegate.gateway.ingest.settings import IngestSettings
from tidegate.gateway.ingest.worker import IngestWorker

__all__ = [
    "CONTENT_TYPES",
    "MODES",
    "DirectIngest",
    "Ingest",
    "IngestSettings",
    "IngestWorker",
    "Ingesting",
    "Mode",
    "OpenLog",
    "Receipt",
    "Refusal",
    "Request",
]
