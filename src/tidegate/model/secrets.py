"""The protocol of secrets that are read at the time of use."""

from __future__ import annotations

from typing import Protocol


class Secret(Protocol):
    """A password or key that is kept elsewhere: in an environment variable or a file.

    Its `repr` never shows the value.
    """

    def reveal(self) -> str:
        """Read the value now. Raises an `EnvironmentProblem` that names the place, never the value."""
