"""Random schemas, filters and events, at their worst where it matters.

Everything is drawn from one `random.Random`, so that a seed makes a case.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

from tidegate.model import Array, Enum, Scalar, Schema, Struct, Type
from tidegate.model.types import INTEGER_RANGES, SCALARS

NAMES = ["a", "b", "speed", "vid", "s", "fuzzy", "in", "my field", "and", 'q"x', "größe", "min"]
TEXTS = [
    "",
    "a",
    "B",
    "ab",
    "abc",
    "B17",
    "b17",
    "it's",
    "100%",
    "a_b",
    "a\\b",
    "*",
    "?",
    "ä",
    "日本",
    "🚕",
    "🚕x",
    " ",
    "ZZZ",
]
PATTERNS = [
    "",
    "%",
    "_",
    "a%",
    "%b",
    "%1%",
    "_b_",
    "100\\%",
    "a\\_b",
    "%%",
    "_%",
    "B1_",
    "🚕%",
    "it''s",
    "a\\\\b",
    "a*",
]
REGEXES = ["", ".*", "[a-z]+", "B\\d+", "(a|b)*", "(?:ab)?c", ".", "\\w+", "[^a]+", "a.b", "a{2,3}", "\\s", "x|", "^a$"]
TIMES = ["1970-01-01T00:00:00Z", "2010-01-01", "2026-11-15T12:00:00.000001Z", "2026-11-15T12:00:00+02:00", "0001-01-01"]
SHAPES = [
    "TRAPEZOID(0, 1, 2, 5)",
    "TRAPEZOID(0, 0, 3, 3)",
    "TRIANGLE(-1, 0, 1)",
    "TRIANGLE(0, 0, 10)",
    "RECTANGLE(1, 2)",
    "BELL(2, 1.5, 1)",
    "S(0, 4)",
    "S(2, 2)",
    "Z(0, 4)",
    "Z(1, 1)",
    "GAUSS(1, 2)",
]
AREAS = [
    "BOX(-1, -1, 2, 2)",
    "BOX(170, -10, -170, 10)",
    "CIRCLE(0, 0, 200000)",
    "CIRCLE(1, 1, 0)",
    "POLYGON(0 0, 4 0, 4 4, 0 4)",
    "POLYGON(0 0, 4 4, 4 0, 0 4)",
    "POLYGON(-1 -1, 3 -1, 1 1, 3 3, -1 3)",
]
INTEGERS = [0, 1, -1, 2, 3, 100, 127, 128, 255, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**64 - 1]
FLOATS = [0.0, -0.0, 0.5, 1.0, 1.5, 2.0, -1.0, 3.14159, 100.25, 1e300, float(2**53), float(2**63), float(2**64), 7.1]
ODD_FLOATS = [math.nan, math.inf, -math.inf, 5e-324, -1e300]


def schema(rng: Random, size: int = 5) -> Schema:
    """A schema of some attributes, nested and arrays included."""
    names = rng.sample(NAMES, k=rng.randint(1, min(size, len(NAMES))))
    return Schema({name: _type(rng, 0) for name in names})


def _type(rng: Random, depth: int) -> Any:
    choice = rng.random()
    if choice < 0.08 and depth < 2:
        return {name: _type(rng, depth + 1) for name in rng.sample(["x", "y", "my part"], k=2)}
    if choice < 0.2 and depth < 2:
        return Array(_type(rng, depth + 1), rng.choice([None, 1, 3]))
    if choice < 0.3:
        return Enum("RED", "GREEN", "it's blue")
    return rng.choice(["float64", "int64", "string", rng.choice(list(SCALARS))])


def fields(kind: Type, path: str = "") -> Iterator[tuple[str, Scalar | Enum]]:
    """Every path of a type that a filter may read, as text, with its type."""
    match kind:
        case Struct():
            for field in kind:
                name = (
                    field.name
                    if field.name.isidentifier() and field.name.upper() not in ("AND",)
                    else _quote(field.name)
                )
                yield from fields(field.type, f"{path}.{name}" if path else name)
        case Array():
            for index in (0, 2 if kind.bound is None or kind.bound > 2 else 0):
                yield from fields(kind.item, f"{path}[{index}]")
        case _:
            yield path, kind


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def value(rng: Random, kind: Type, odd: bool = True) -> Any:
    """A value of a type; an odd one may be null, NaN or missing inside."""
    if odd and rng.random() < 0.12:
        return None
    match kind:
        case Struct():
            return {field.name: value(rng, field.type, odd) for field in kind if not odd or rng.random() < 0.9}
        case Array():
            length = rng.randint(0, kind.bound if kind.bound is not None else 4)
            return [value(rng, kind.item, odd) for _ in range(length)]
        case Enum(labels):
            return rng.choice(labels)
    match kind.kind:
        case "bool":
            return rng.random() < 0.5
        case "int":
            low, high = INTEGER_RANGES[kind.name]
            return rng.choice([n for n in INTEGERS if low <= n <= high] + [low, high])
        case "float":
            found = rng.choice(FLOATS + ODD_FLOATS if odd and rng.random() < 0.5 else FLOATS)
            return _as_float32(found) if kind.name == "float32" else found
        case "char":
            return rng.choice([text for text in TEXTS if len(text) == 1])
        case "time":
            return rng.choice(TIMES)
    return rng.choice(TEXTS)


def _as_float32(number: float) -> float:
    from ctypes import c_float

    return c_float(number).value


def event(rng: Random, of: Schema) -> dict[str, Any]:
    """An event that fits a schema, with attributes missing or null."""
    return {f.name: found for f in of.root if (found := value(rng, f.type)) is not None or rng.random() < 0.3}


def wild_event(rng: Random, of: Schema) -> dict[str, Any]:
    """An event whose values may be of any type at all."""
    found = event(rng, of)
    for name in list(found):
        if rng.random() < 0.3:
            found[name] = rng.choice([True, 1, 1.5, math.nan, "1", "abc", [], {}, [1], {"x": 1}, None, 2**70])
    return found


def filter_text(rng: Random, of: Schema, depth: int = 3, fuzzy: bool = True) -> str:
    """A filter that fits a schema, in no particular style."""
    if depth == 0 or rng.random() < 0.35:
        return predicate(rng, of, fuzzy)
    left, right = filter_text(rng, of, depth - 1, fuzzy), filter_text(rng, of, depth - 1, fuzzy)
    return rng.choice(
        ["{} AND {}", "{} or {}", "({} OR {}) and not {}", "NOT ({} AND {})", "not {} AND ({} OR {})"]
    ).format(left, right, filter_text(rng, of, 0, fuzzy))


def predicate(rng: Random, of: Schema, fuzzy: bool = True) -> str:
    """One predicate over a schema's fields."""
    paths = list(fields(of.root))
    path, kind = rng.choice(paths)
    numeric = [each for each, found in paths if found.kind in ("int", "float")]
    choices = ["compare", "compare", "between", "in", "null", "fields", "in fields"]
    choices += ["computed"] if kind.kind in ("int", "float", "string", "time") else []
    if kind.kind == "string":
        choices += ["like", "like", "match", "strlike"]
    if kind.kind in ("int", "float"):
        choices += ["inside"] + ["member", "group"] * fuzzy
    match rng.choice(choices):
        case "compare":
            relation, other = rng.choice(["=", "<>", "!=", "<", "<=", ">", ">="]), literal(rng, kind)
            return f"{path} {relation} {other}" if rng.random() < 0.8 else f"{other}{relation}{path}"
        case "between":
            return f"{path} {_not(rng)}BETWEEN {literal(rng, kind)} AND {literal(rng, kind)}"
        case "in":
            values = ", ".join(literal(rng, kind) for _ in range(rng.randint(1, 4)))
            return f"{path} {_not(rng)}IN ({values})"
        case "null":
            return f"{path} IS {_not(rng)}NULL"
        case "like":
            return f"{path} {_not(rng)}LIKE '{rng.choice(PATTERNS)}'"
        case "match":
            return f"{path} {_not(rng)}MATCH '{rng.choice(REGEXES)}'"
        case "strlike":
            return f"{path} {_not(rng)}{strlike(rng)}"
        case "inside":
            return f"({path}, {rng.choice(numeric)}) {_not(rng)}INSIDE {rng.choice(AREAS)}"
        case "member":
            return f"{path} IS {rng.choice(SHAPES)}"
        case "group":
            return group(rng, of)
        case "computed":
            return computed(rng, path, kind.kind, numeric)
        case "in fields":
            elements = [literal(rng, kind), rng.choice([each for each, other in paths if _compares(kind, other)])]
            rng.shuffle(elements)
            return f"{path} {_not(rng)}IN ({', '.join(elements)})"
    other_path, _ = rng.choice([each for each in paths if _compares(kind, each[1])])
    return f"{path} {rng.choice(['=', '<>', '<', '>='])} {other_path}"


def computed(rng: Random, path: str, kind: str, numeric: list[str]) -> str:
    """A comparison of a value that is computed from a field of a kind, and perhaps of others."""
    if kind == "string":
        if rng.random() < 0.5:
            return f"{rng.choice(['upper', 'lower', 'trim'])}({path}) {_not(rng)}LIKE '{rng.choice(PATTERNS)}'"
        return f"length({path}) {rng.choice(['=', '<', '>='])} {rng.randint(0, 4)}"
    if kind == "time":
        zone = rng.choice(["", ", 'UTC'", ", 'Asia/Kathmandu'"])
        part = rng.choice(["hour", "weekday", "year"])
        return f"{part}({path}{zone}) {rng.choice(['=', '<>', '>='])} {rng.choice([0, 5, 12])}"
    text = term(rng, path, numeric)
    match rng.randrange(5):
        case 0:
            return f"{text} {_not(rng)}BETWEEN {number(rng)} AND {number(rng)}"
        case 1:
            return f"{text} {_not(rng)}IN ({number(rng)}, {number(rng)})"
        case 2:
            return f"{text} IS {_not(rng)}NULL"
        case 3:
            return f"{text} {rng.choice(['=', '<', '>='])} {rng.choice(numeric)}"
    relation = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    return f"{text} {relation} {number(rng)}" if rng.random() < 0.8 else f"{number(rng)}{relation}{text}"


def term(rng: Random, path: str, numeric: list[str], depth: int = 2) -> str:
    """An expression over a numeric field, linear or not."""
    inner = path if depth == 0 or rng.random() < 0.5 else f"({term(rng, path, numeric, depth - 1)})"
    constant = rng.choice(["3.6", "2", "-3", "0.1", "1", "1e300", "9223372036854775807", "0", "-.5"])
    return rng.choice(
        [
            f"{inner} * {constant}",
            f"{inner} + {constant}",
            f"{inner} - {constant}",
            f"{constant} - {inner}",
            f"{constant} * {inner}",
            f"{inner} / {constant}",
            f"{constant} / {inner}",
            f"{inner} % {constant}",
            f"-{inner}",
            f"{inner} + {rng.choice(numeric)}",
            f"abs({inner})",
            f"floor({inner})",
            f"coalesce({inner}, {rng.choice(numeric)}, 7)",
        ]
    )


def number(rng: Random) -> str:
    """A number to compare a computed value with."""
    return rng.choice(["0", "1", "80", "-3", "2.5", "0.1", "7.2", "360.0", "1e300", "9223372036854775807", "1e999"])


def strlike(rng: Random) -> str:
    """The rest of a STRLIKE."""
    bound = rng.choice(["", " WITHIN 1", " WITHIN 2 EDITS", " SIMILARITY 0.5", " SIMILARITY 0.75"])
    return f"STRLIKE '{rng.choice(['a', 'abc', 'B17', 'abcdef', '🚕xy', ''])}'{bound}"


def group(rng: Random, of: Schema) -> str:
    """A fuzzy group of some members and other items."""
    paths = list(fields(of.root))
    items = []
    for _ in range(rng.randint(1, 3)):
        path, kind = rng.choice(paths)
        if kind.kind in ("int", "float"):
            item = f"{path} IS {rng.choice(SHAPES)}"
        elif kind.kind == "string" and rng.random() < 0.5:
            item = f"{path} {strlike(rng)}"
        else:
            item = f"{path} = {literal(rng, kind)}"
        least = rng.choice(["", "", f" AT LEAST {rng.choice(['0', '0.25', '0.7'])}"])
        weight = rng.choice(["", "", " WEIGHT 2", " WEIGHT 0.5"])
        items.append(f"{rng.choice(['', '', 'NOT '])}{item}{least}{weight}")
    alpha = rng.choice(["", " >= 0.5", " >= 0.3", " >= 0"])
    return f"FUZZY{rng.choice(['', ' MEAN', ' MIN'])}({', '.join(items)}){alpha}"


def literal(rng: Random, kind: Scalar | Enum) -> str:
    """A value that a field of a type compares with, as text."""
    if isinstance(kind, Enum):
        return rng.choice([quoted(rng.choice(kind.labels)), str(rng.randint(-1, 4))])
    match kind.kind:
        case "bool":
            return rng.choice(["TRUE", "false", "1", "0", "2"])
        case "int" | "float":
            whole = rng.choice([*INTEGERS, 2**64, -(2**64), 10**30])
            texts = [str(whole), repr(rng.choice(FLOATS)), hex(whole), "1e999", ".5", "5."]
            return rng.choice(texts + ["TRUE"] * (kind.kind == "int"))
        case "time":
            return quoted(rng.choice(TIMES))
    return quoted(rng.choice(TEXTS))


def quoted(text: str) -> str:
    """A string as SQL writes it; the quote before a blank is DDS's."""
    return "'" + text.replace("'", "''") + "'"


def _not(rng: Random) -> str:
    return rng.choice(["", "", "NOT "])


def _compares(one: Scalar | Enum, other: Scalar | Enum) -> bool:
    if isinstance(one, Enum) and isinstance(other, Enum):
        return one == other
    pairs = [{"bool", "int"}, {"int", "float"}, {"int", "enum"}, {"char", "string"}]
    return one.kind == other.kind or {one.kind, other.kind} in pairs
