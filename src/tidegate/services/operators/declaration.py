"""The declaration of an operator: its name in a service file, and how to read it, write it and infer its schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidegate.model import Schema
from tidegate.services.findings import Spot
from tidegate.services.operators.state_layout import StateLayout

T = TypeVar("T")


@dataclass(frozen=True)
class OperatorInputs:
    """The schemas that an operator's schema inference starts from."""

    main: tuple[tuple[str, Schema], ...]
    """Name and schema of each input: those in `from` for the first operator, the previous operator for any other."""
    streams: Mapping[str, Schema]
    """The schemas of the streams and services that operators name, by name."""
    is_first: bool = True
    origins: frozenset[str] = frozenset()
    """The streams and services whose events the main inputs have, under their own ids."""

    @property
    def schema(self) -> Schema:
        """The schema of the first input, which is the only one of most operators."""
        return self.main[0][1]


@dataclass(frozen=True)
class Declaration(Generic[T]):
    """One kind of operator. `operators/registry.py` lists all of them."""

    name: str
    """The key in a service file."""
    type: type[T]
    example: str
    """A short example for error messages."""
    read: Callable[[Spot], T]
    """Reads the settings. Reports problems at the spot, and then returns a placeholder."""
    write: Callable[[T], Any]
    """Returns the settings in the form that `read` takes; None: there are none, and the bare name is enough."""
    infer: Callable[[T, OperatorInputs, Spot], Schema | None]
    """Returns the schema of the output. Reports problems at the spot; None if the schema is unknown."""
    has_bare_form: bool = False
    """True if the name alone, without settings, is valid."""
    state: Callable[[T, OperatorInputs], StateLayout | None] = lambda _operator, _inputs: None
    """Returns the layout of the operator's state; None: it has no state. The inputs are valid."""
