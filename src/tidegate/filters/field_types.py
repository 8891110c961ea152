"""Finds the type of each field that a filter names."""

from __future__ import annotations

from functools import lru_cache

from tidegate.errors import did_you_mean
from tidegate.filters.nodes import Path
from tidegate.filters.problems import ProblemCollector
from tidegate.filters.render import path_text
from tidegate.model.schema import RESERVED, Schema
from tidegate.model.types import Array, Struct, Type


@lru_cache(maxsize=256)
def _types_by_path(schema: Schema) -> dict[tuple[str | int, ...], Type]:  # noqa: ARG001 - the key of the cache
    """Return the cache of a schema's path types. Filters of one service name the same paths."""
    return {}


class FieldTypes:
    """Looks up paths in a schema; without a schema every path stays untyped."""

    __slots__ = ("_problems", "_schema", "_type_cache")

    def __init__(self, schema: Schema | None, problems: ProblemCollector) -> None:
        self._schema, self._problems = schema, problems
        self._type_cache = _types_by_path(schema) if schema is not None else {}

    def path(self, path: Path, beside: Path | None = None, *, whole: bool = False) -> Path:
        """Return a path with its type. If the schema has no such path, report a problem and return the path unchanged.

        `beside` is the operand that the path is compared with; it makes a better hint. `whole` also allows a path to a
        struct or an array, as IS NULL does.
        """
        if self._schema is None:
            return path
        kind = self._type_cache.get(path.parts)
        if kind is None or whole:
            kind = self._walk(path, beside)
            if kind is not None and not whole:
                kind = self._value_type(path, kind)
                if kind is not None:
                    self._type_cache[path.parts] = kind
        return Path(path.parts, kind, path.span) if kind is not None else path

    def _walk(self, path: Path, beside: Path | None) -> Type | None:
        """Return the type at the end of a path; None, with a problem reported, if there is none."""
        assert self._schema is not None
        here: Type = self._schema.root
        for n, part in enumerate(path.parts):
            so_far = path_text(Path(path.parts[:n])) if n else ""
            if isinstance(part, int):
                if not isinstance(here, Array):
                    self._problems.report(path.span, f"{so_far} ({here}) is no array: expected no index")
                    return None
                if here.bound is not None and part >= here.bound:
                    self._problems.report(
                        path.span, f"expected an index of {so_far} from 0 to {here.bound - 1}, not {part}"
                    )
                    return None
                here = here.item
                continue
            if isinstance(here, Array):
                self._problems.report(path.span, f"{so_far} is an array: expected an index, such as {so_far}[0]")
                return None
            if not isinstance(here, Struct):
                self._problems.report(path.span, f"{so_far} ({here}) has no fields: expected no .{part}")
                return None
            field = here.get(part)
            reserved = RESERVED.get(part) if n == 0 and part not in self._schema.absent else None
            kind = field.type if field is not None else reserved
            if kind is None:
                self._report_unknown(path, part, so_far, here, beside)
                return None
            here = kind
        return here

    def _value_type(self, path: Path, kind: Type) -> Type | None:
        if isinstance(kind, Array):
            self._problems.report(
                path.span, f"{path_text(path)} is an array: expected an index, such as {path_text(path)}[0]"
            )
            return None
        if isinstance(kind, Struct):
            inner = ", ".join(f"{path_text(path)}.{field.name}" for field in kind.fields[:4])
            self._problems.report(
                path.span, f"{path_text(path)} is a struct: expected one of its fields, such as {inner}"
            )
            return None
        return kind

    def _report_unknown(self, path: Path, part: str, so_far: str, struct: Struct, beside: Path | None) -> None:
        if beside is not None and len(path.parts) == 1:
            if part.upper() == "NULL":
                self._problems.report(path.span, "NULL compares with nothing: expected IS NULL or IS NOT NULL")
                return
            if self._is_text(beside):
                self._problems.report(
                    path.span, f"unknown field {part}; did you mean '{part}'? Text stands in single quotes"
                )
                return
        names = [field.name for field in struct]
        hint = did_you_mean(part, names) or (f"; expected one of {', '.join(names[:8])}" if names else "")
        self._problems.report(path.span, f"unknown field {part!r}{f' of {so_far}' if so_far else ''}{hint}")

    def _is_text(self, path: Path) -> bool:
        """Return True if a path leads to text; reports no problem."""
        kind = self._problems.attempt(lambda: self._walk(path, None))
        return kind is not None and kind.kind in ("string", "char", "enum")
