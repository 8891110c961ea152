"""`Schema`: the attributes of a stream's events, with constraints and fuzzy terms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from tidegate.errors import MissingDependency, SchemaError
from tidegate.model.types import Array, Field, Scalar, Struct, Type, notation, parse_struct

if TYPE_CHECKING:
    import pyarrow as pa

RESERVED: dict[str, Type] = {
    "_id": Scalar("string"),
    "_time": Scalar("timestamp"),
    "_themes": Array("string"),
    "_src": Scalar("string"),
}
"""Keys that every event may have in addition to its attributes, and their types."""


class Schema:
    """The attributes of a stream's events; immutable and hashable.

    `constraints` has for each attribute a condition, as the rest of a filter that starts with the attribute's name.
    `terms` names fuzzy shapes for an attribute. Raises `SchemaError`.

    >>> schema = Schema({"vid": "string", "speed": "float64", "pos": {"x": "float64?"}},
    ...                 constraints={"speed": ">= 0"})
    >>> schema
    Schema({'vid': 'string', 'speed': 'float64', 'pos': {'x': 'float64?'}}, constraints={'speed': '>= 0'})
    """

    __slots__ = ("_hash", "absent", "constraints", "event_time", "root", "terms")

    root: Struct
    constraints: Mapping[str, str]
    terms: Mapping[str, Mapping[str, str]]
    event_time: str | None
    absent: frozenset[str]
    """Reserved keys that a filter can't name: readers with this schema do not see them."""
    _hash: int | None

    def __init__(
        self,
        attributes: Mapping[str, Any] | Struct,
        *,
        constraints: Mapping[str, str] | None = None,
        terms: Mapping[str, Mapping[str, str]] | None = None,
        event_time: str | None = None,
        absent: Collection[str] = (),
    ) -> None:
        if not isinstance(attributes, Struct | Mapping):
            raise SchemaError(f"expected a dict of attributes, such as {{'speed': 'float64'}}, not {attributes!r:.60}")
        root = attributes if isinstance(attributes, Struct) else parse_struct(attributes)
        for field in root:
            if field.name.startswith("_"):
                raise SchemaError("names that start with _ are reserved", field.name)
        set_ = object.__setattr__
        set_(self, "root", root)
        set_(self, "constraints", _texts("constraints", constraints or {}, "'> 0'"))
        set_(
            self,
            "terms",
            MappingProxyType({n: _texts(f"terms.{n}", terms_of, "'S(0, 10)'") for n, terms_of in _items(terms)}),
        )
        set_(self, "event_time", event_time)
        set_(self, "absent", frozenset(absent))
        set_(self, "_hash", None)
        if event_time is not None:
            timed = root.get(event_time)
            if timed is None or timed.type != Scalar("timestamp"):
                raise SchemaError(f"expected the name of a timestamp attribute, not {event_time!r}", "event_time")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Schema is immutable; create a new one to set {name}")

    def get(self, name: str) -> Field | None:
        """Return a top-level attribute or a reserved key; None if there is none of this name."""
        field = self.root.get(name)
        if field is None and name in RESERVED and name not in self.absent:
            return Field(name, RESERVED[name], required=False)
        return field

    def without(self, names: Collection[str]) -> Schema:
        """Return the schema as seen by a caller who may not see some attributes or reserved keys.

        Drops all constraints: they only refuse filters that can't match, and they may reveal hidden values.
        """
        root = Struct(tuple(item for item in self.root if item.name not in names))
        terms = {name: item for name, item in self.terms.items() if name.partition(".")[0] not in names}
        absent = self.absent | (RESERVED.keys() & set(names))
        return Schema(root, terms=terms, event_time=self.event_time, absent=absent)

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as a dict of JSON values; `Schema` reads it back."""
        return _struct_dict(self.root)

    @classmethod
    def from_json_schema(cls, document: Mapping[str, Any]) -> Self:
        """Read a JSON Schema (2020-12) of an object; see `model.jsonschema`. Raises `SchemaError`."""
        from tidegate.model import jsonschema

        return cls(jsonschema.read(document))

    def to_json_schema(self) -> dict[str, Any]:
        """Return a JSON Schema (2020-12) that `from_json_schema` reads back."""
        from tidegate.model import jsonschema

        return jsonschema.write(self.root)

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> Self:
        """Read an Arrow schema; see `model.arrow`. Raises `SchemaError`, or `MissingDependency` without pyarrow."""
        return cls(_arrow().read_schema(schema))

    def to_arrow(self) -> pa.Schema:
        """Return an Arrow schema that `from_arrow` reads back, without reserved keys. Raises `MissingDependency`."""
        return _arrow().write_schema(self.root)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._key() == other._key()

    def __hash__(self) -> int:
        hashed = self._hash
        if hashed is None:
            hashed = hash((self.root, self.event_time))
            object.__setattr__(self, "_hash", hashed)
        return hashed

    def _key(self) -> tuple[object, ...]:
        return self.root, self.event_time, self.constraints, self.terms, self.absent

    def __reduce__(self) -> tuple[object, ...]:
        terms = {name: dict(terms_of) for name, terms_of in self.terms.items()}
        return _rebuild, (type(self), self.root, dict(self.constraints), terms, self.event_time, self.absent)

    def __repr__(self) -> str:
        terms = {name: dict(terms_of) for name, terms_of in self.terms.items()}
        extras = {"constraints": dict(self.constraints), "terms": terms, "event_time": self.event_time}
        shown = "".join(f", {key}={value!r}" for key, value in extras.items() if value)
        return f"Schema({self.to_dict()!r}{shown})"


def _arrow() -> Any:
    """Return the module for Arrow. Raises `MissingDependency` in an install without pyarrow."""
    try:
        from tidegate.model import arrow
    except ImportError as exc:
        raise MissingDependency("pyarrow", "arrow") from exc
    return arrow


def _items(terms: Mapping[str, Mapping[str, str]] | None) -> list[tuple[str, Mapping[str, str]]]:
    if terms is not None and not isinstance(terms, Mapping):
        raise SchemaError(
            f"expected terms by attribute, such as {{'speed': {{'slow': 'Z(20, 40)'}}}}, not {terms!r}", "terms"
        )
    return list((terms or {}).items())


def _texts(where: str, texts: Mapping[str, str], example: str) -> Mapping[str, str]:
    if not isinstance(texts, Mapping):
        raise SchemaError(f"expected names with text such as {example}, not {texts!r}", where)
    for name, text in texts.items():
        if not isinstance(text, str):
            raise SchemaError(f"expected text such as {example}, not {text!r}", f"{where}.{name}")
    return MappingProxyType(dict(texts))


def _struct_dict(struct: Struct) -> dict[str, Any]:
    """Return required structs as nested dicts, and every other type as text."""
    return {
        field.name: _struct_dict(field.type) if isinstance(field.type, Struct) and field.required else notation(field)
        for field in struct
    }


def _rebuild(cls: type[Schema], root: Struct, constraints: Any, terms: Any, event_time: Any, absent: Any) -> Schema:
    return cls(root, constraints=constraints, terms=terms, event_time=event_time, absent=absent)
