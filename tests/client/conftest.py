from __future__ import annotations

from tests.gateway.conftest import world

__all__ = ["world"]
