"""Hooks for schemathesis: it can't write bodies other than JSON itself."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-lines")
def lines(_: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
