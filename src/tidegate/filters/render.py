"""Writes a tree as text that parses back to an equal tree."""

from __future__ import annotations

import math
import re
from ctypes import c_float
from typing import Any, assert_never

from tidegate.expressions.parser import UntypedCall, UntypedConstant, UntypedNode, UntypedParameter, UntypedPath
from tidegate.filters.nodes import (
    LEAST_DEGREE,
    LEAST_MEMBERSHIP,
    WEIGHT,
    And,
    Area,
    Between,
    Compare,
    ComputedValue,
    FuzzyShape,
    Group,
    In,
    Inside,
    IsNull,
    Item,
    Literal,
    Member,
    Node,
    Not,
    Operand,
    Or,
    Param,
    Path,
    Pattern,
    Predicate,
    Query,
    Semantic,
    StrLike,
)
from tidegate.filters.token_reader import RESERVED_WORDS
from tidegate.model import timestamps
from tidegate.model.types import Scalar, Type

_FLOAT32 = Scalar("float32")


def render(query: Query) -> str:
    """Return the text of a whole filter; empty for a filter that matches every event."""
    parts = [render_node(query.root)] if query.root != And(()) else []
    if query.themes:
        parts.append(f"WITH THEME ({', '.join(map(_string, query.themes))})")
    if query.threshold is not None:
        parts.append(f"THRESHOLD {operand(query.threshold)}")
    return " ".join(parts)


def render_node(node: Node, inside_and: bool = False) -> str:
    """Return the text of a tree with only the parentheses that it needs."""
    match node:
        case And(terms):
            parts = []
            for term in terms:
                parts.append(render_node(term, True))
            return " AND ".join(parts) if parts else "TRUE"
        case Or(terms):
            parts = []
            for term in terms:
                parts.append(render_node(term))
            if not parts:
                return "FALSE"
            joined = " OR ".join(parts)
            return f"({joined})" if inside_and else joined
        case Not(And() | Or() as term):
            return f"NOT ({render_node(term)})"
        case Not(term):
            return f"NOT {render_node(term)}"
    return predicate(node)


def predicate(node: Predicate | Member) -> str:
    """Return the text of one predicate with its negation."""
    match node:
        case Compare(path, relation, other):
            return f"{path_text(path)} {relation} {operand(other, path.type)}"
        case Between(path, low, high, negated):
            return f"{path_text(path)}{_not(negated)} BETWEEN {operand(low, path.type)} AND {operand(high, path.type)}"
        case Pattern():
            sides = operand(node.subject), operand(node.pattern)
            return f"{sides[0]}{_not(node.negated)} {node.operator} {sides[1]}"
        case In(path, values, negated):
            return f"{path_text(path)}{_not(negated)} IN ({', '.join(operand(v, path.type) for v in values)})"
        case IsNull(path, negated):
            return f"{path_text(path)} IS{_not(negated)} NULL"
        case Inside():
            place = f"({path_text(node.longitude)}, {path_text(node.latitude)})"
            return f"{place}{_not(node.negated)} INSIDE {area(node.area)}"
        case StrLike(path, text, bound, negated):
            limit = ""
            if bound is not None:
                limit = f" {'WITHIN ' if bound.unit == 'EDITS' else 'SIMILARITY '}{operand(bound.number)}"
                limit += " EDITS" if bound.unit == "EDITS" else ""
            return f"{path_text(path)}{_not(negated)} STRLIKE {operand(text)}{limit}"
        case Semantic(path, value, soft_path, soft_value, negated):
            sides = path_text(path) + "~" * soft_path, operand(value, path.type) + "~" * soft_value
            return f"{'NOT ' * negated}{sides[0]} = {sides[1]}"
        case Member(path, shape_):
            return f"{path_text(path)} IS {shape(shape_)}"
        case Group():
            return "NOT " * node.negated + _group(node)
    assert_never(node)


def _group(group: Group) -> str:
    match group.items:
        case (Item(Member() as member, negated=False) as only,) if only == Item(member) and group.least == LEAST_DEGREE:
            return predicate(member)
    mode = " MIN" if group.mode == "MIN" else ""
    least = "" if group.least == LEAST_DEGREE else f" >= {operand(group.least)}"
    return f"FUZZY{mode}({', '.join(map(_item, group.items))}){least}"


def _item(item: Item) -> str:
    least = "" if item.least == LEAST_MEMBERSHIP else f" AT LEAST {operand(item.least)}"
    weight = "" if item.weight == WEIGHT else f" WEIGHT {operand(item.weight)}"
    return f"{'NOT ' * item.negated}{predicate(item.predicate)}{least}{weight}"


def shape(shape_: FuzzyShape) -> str:
    """Return the text of a membership function, or of the term that names one."""
    if shape_.is_term:
        return path_text(Path((shape_.name,)))
    return f"{shape_.name}({', '.join(map(operand, shape_.numbers))})"


def area(area_: Area) -> str:
    """Return the text of an area."""
    numbers = [operand(number) for number in area_.numbers]
    if area_.name == "POLYGON":
        numbers = [f"{x} {y}" for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
    return f"{area_.name}({', '.join(numbers)})"


def operand(operand_: Operand, kind: Type | None = None) -> str:
    """Return the text of a path, a value or a parameter; `kind` is the type of the field that it is compared with."""
    match operand_:
        case Path():
            return path_text(operand_)
        case Param(index):
            return f"%{index}"
        case Literal(value, "time"):
            return _string(timestamps.to_text(int(value)))
        case Literal(bool() as value):
            return "TRUE" if value else "FALSE"
        case Literal(str() as value):
            return _string(value)
        case Literal(int() as value):
            return str(value)
        case Literal(float() as value):
            return _float32(value) if kind == _FLOAT32 else _float(value)
    raise AssertionError(operand_)


def _float(value: float) -> str:
    if math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    return repr(value + 0.0)  # no negative zero


def _float32(value: float) -> str:
    """Return the shortest text that rounds to the same float32."""
    for digits in range(6, 9):
        text = f"{value:.{digits}g}"
        if c_float(float(text)).value == value and math.isfinite(value):
            return _float(float(text))
    return _float(value)


def _string(text: str) -> str:
    # Three quotes before a blank or a parenthesis would be read as one quote character, so such a text starts with a
    # backquote.
    opening = "`" if re.match(r"'[\s)]", text) else "'"
    return opening + text.replace("'", "''") + "'"


def _not(negated: bool) -> str:
    return " NOT" if negated else ""


def path_text(path: Path) -> str:
    """Return the text of a path as a filter writes it: `pos.x`, `wheels[3]`, `"my field"`, `speed * 3.6`."""
    if isinstance(path, ComputedValue):
        return term_text(path.term)
    out = ""
    for part in path.parts:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            plain = part.upper() not in RESERVED_WORDS and re.fullmatch(r"[^\W\d]\w*", part)
            out += ("." if out else "") + (part if plain else '"' + part.replace('"', '""') + '"')
    return out


_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "negative": 3}
"""How strongly each operator binds."""


def term_text(term: UntypedNode, least: int = 0) -> str:
    """Return the text of an expression, in parentheses if it binds less strongly than `least`."""
    match term:
        case UntypedConstant():
            return _constant_text(term.value)
        case UntypedParameter(index):
            return f"%{index}"
        case UntypedPath(parts):
            return path_text(Path(parts))
        case UntypedCall("negative", (inner,)):
            return f"-{term_text(inner, 3)}"
        case UntypedCall(name, (left, right)) if name in _STRENGTH:
            strength = _STRENGTH[name]
            text = f"{term_text(left, strength)} {name} {term_text(right, strength + 1)}"
            return f"({text})" if strength < least else text
    assert isinstance(term, UntypedCall)
    return f"{term.name}({', '.join(map(term_text, term.arguments))})"


def _constant_text(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return _string(value)
    return _float(value) if isinstance(value, float) else str(value)
