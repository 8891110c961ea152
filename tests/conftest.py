"""Profiles of hypothesis: quick by default, deep in `make soak`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SOAK = bool(os.environ.get("TIDEGATE_SOAK"))
"""Whether this is the long run."""

_COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
settings.register_profile("quick", max_examples=400, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("soak", max_examples=10_000, **_COMMON)  # type: ignore[arg-type]
settings.load_profile("soak" if SOAK else "quick")
