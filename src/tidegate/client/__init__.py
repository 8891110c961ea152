"""Our HTTP API from Python, sync and async."""
