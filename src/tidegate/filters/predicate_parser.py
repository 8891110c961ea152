"""Reads one predicate of a filter: a comparison, BETWEEN, IN, LIKE, MATCH, STRLIKE, IS, INSIDE, ~ or FUZZY(...)."""

from __future__ import annotations

from typing import Literal as Choice

from tidegate.filters.nodes import (
    FLIPPED,
    LEAST_DEGREE,
    LEAST_MEMBERSHIP,
    WEIGHT,
    Area,
    Between,
    Bound,
    Compare,
    ComputedValue,
    FuzzyShape,
    Group,
    In,
    Inside,
    IsNull,
    Item,
    ItemPredicate,
    Literal,
    Member,
    Node,
    Not,
    Operand,
    Or,
    Path,
    Pattern,
    Predicate,
    Relation,
    Semantic,
    StrLike,
    Value,
)
from tidegate.filters.term_parser import parse_operand
from tidegate.filters.token_reader import RESERVED_WORDS, TokenReader, number_literal, path_parts, span_of
from tidegate.filters.tokens import string_value

SHAPES = {"TRAPEZOID": 4, "TRIANGLE": 3, "RECTANGLE": 2, "BELL": 3, "S": 2, "Z": 2, "GAUSS": 2}
"""The membership functions, and how many numbers each takes."""

_RELATIONS: dict[str, Relation] = {"!=": "<>", "=": "=", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SLIPS = {("=", "="): " (equality is one =)", ("=", ">"): " (at least is >=)", ("=", "<"): " (at most is <=)"}
"""Hints for operators of other languages (==, =>, =<), by the relation that was read and the mark after it."""
_OPERATORS = "an operator (=, <>, <, <=, >, >=, BETWEEN, LIKE, MATCH, IN, IS, STRLIKE)"


def parse_predicate(reader: TokenReader) -> Node:
    """Read one predicate, or a whole fuzzy group; raise `FilterSyntaxError` where there is none.

    An IN whose list has fields becomes an OR of comparisons.
    """
    common = _common_comparison(reader)
    if common is not None:
        return common
    start = reader.at
    if reader.word == "(" and at_position(reader):
        return _inside(reader, start)
    if _at_fuzzy_group(reader):
        return _group(reader, start)
    predicate = _simple(reader, start, _OPERATORS)
    if isinstance(predicate, In):
        return _with_fields(predicate)
    return _short_group(predicate) if isinstance(predicate, Member) else predicate


def at_position(reader: TokenReader) -> bool:
    """Return True if `(longitude, latitude) INSIDE` comes next, not an expression in parentheses."""
    ahead = reader.tokens[reader.next + 1 : reader.next + 3]
    return len(ahead) == 2 and ahead[0][0] == "word" and ahead[1][1] == ","


def _common_comparison(reader: TokenReader) -> Compare | None:
    """Read `name relation literal` in one step; None if the tokens have another form.

    Most predicates have this form, and this takes a third of the time of `_simple`.
    """
    ahead = reader.tokens[reader.next : reader.next + 4]
    if len(ahead) < 4:
        return None
    (kind, name, at), (_, mark, _), value, after = ahead
    relation = _RELATIONS.get(mark)
    if relation is None or value[0] not in ("number", "string") or after[1] == "~":
        return None
    if after[0] == "sign" or (after[0] == "number" and after[1][0] in "+-"):
        return None
    if kind != "word" or not name.isidentifier() or name.upper() in RESERVED_WORDS:
        return None
    reader.next += 3
    reader.kind, reader.word, reader.at = after
    is_number = value[0] == "number"
    literal = number_literal(value) if is_number else Literal(string_value(value[1]), "string", span_of(value))
    return Compare(Path((name,), None, (at, at + len(name))), relation, literal, (at, literal.span[1]))


def _at_fuzzy_group(reader: TokenReader) -> bool:
    """Return True if FUZZY comes next, then perhaps MEAN or MIN, then a parenthesis; else FUZZY is a field."""
    if not reader.is_word("FUZZY"):
        return False
    kind, text, _ = reader.tokens[reader.next + 1]
    if text == "(":
        return True
    return kind == "word" and text.upper() in ("MEAN", "MIN") and reader.tokens[reader.next + 2][1] == "("


def _simple(reader: TokenReader, start: int, expected: str) -> Predicate | Member:
    """Read a predicate that may also stand in a fuzzy group; `expected` says what may follow the operand."""
    left = parse_operand(reader, "a field, a value, NOT or (")
    if reader.word == "~" and isinstance(left, Path):
        _want_field(reader, left, "~")
        reader.advance()
        reader.want("=")
        return _semantic(reader, start, left, soft_path=True)
    if reader.kind == "mark" and (relation := _RELATIONS.get(reader.word)):
        reader.advance()
        return _comparison(reader, start, left, relation)
    if reader.kind != "word":
        reader.fail(expected)
    negated = reader.take_word("NOT")
    word = reader.word.upper() if reader.kind == "word" and reader.word.isascii() else ""
    if word in ("LIKE", "MATCH"):
        reader.advance()
        return _pattern(reader, start, word, left, negated)
    if not isinstance(left, Path):
        reader.fail_at(left.span, "a field before " + (word or "this operator"))
    match word:
        case "BETWEEN":
            reader.advance()
            return _between(reader, start, left, negated)
        case "IN":
            reader.advance()
            return _in_list(reader, start, left, negated)
        case "STRLIKE":
            _want_field(reader, left, word)
            reader.advance()
            return _strlike(reader, start, left, negated)
        case "IS" if not negated:
            reader.advance()
            return _null_or_member(reader, start, left)
    reader.fail("BETWEEN, LIKE, MATCH, IN or STRLIKE after NOT" if negated else expected)


def _comparison(reader: TokenReader, start: int, left: Operand, relation: Relation) -> Predicate:
    hint = _SLIPS.get((relation, reader.word), "")
    right = parse_operand(reader, f"a value or a field{hint}")
    if isinstance(left, Path):
        if reader.word == "~" and relation == "=" and not isinstance(right, Path):
            _want_field(reader, left, "~")
            reader.advance()
            reader.is_semantic = True
            return Semantic(left, right, False, True, span=reader.since(start))
        return Compare(left, relation, right, reader.since(start))
    if isinstance(right, Path):
        return Compare(right, FLIPPED[relation], left, reader.since(start))
    reader.fail_at(reader.since(start), "a field on one side of the comparison")


def _want_field(reader: TokenReader, path: Path, operator: str) -> None:
    if isinstance(path, ComputedValue):
        reader.fail_at(path.span, f"a field before {operator}, not an expression")


def _semantic(reader: TokenReader, start: int, path: Path, soft_path: bool) -> Semantic:
    value = reader.value()
    soft_value = reader.take("~")
    reader.is_semantic = True
    return Semantic(path, value, soft_path, soft_value, span=reader.since(start))


def _between(reader: TokenReader, start: int, path: Path, negated: bool) -> Between:
    low = reader.value()
    reader.want_word("AND")
    return Between(path, low, reader.value(), negated, reader.since(start))


def _pattern(reader: TokenReader, start: int, operator: str, subject: Operand, negated: bool) -> Pattern:
    pattern = parse_operand(reader, "a pattern in quotes or a field")
    if not isinstance(subject, Path) and not isinstance(pattern, Path):
        reader.fail_at(reader.since(start), f"a field on one side of {operator}")
    kind: Choice["LIKE", "MATCH"] = "LIKE" if operator == "LIKE" else "MATCH"
    return Pattern(kind, subject, pattern, negated, span=reader.since(start))


def _in_list(reader: TokenReader, start: int, path: Path, negated: bool) -> In:
    reader.want("(")
    values: list[Operand] = []
    tokens = reader.tokens
    while True:
        # Most long lists hold numbers: read each number and its comma in one step.
        if reader.kind == "number" and tokens[reader.next + 1][1] == ",":
            values.append(number_literal(tokens[reader.next]))
            reader.next += 2
            reader.kind, reader.word, reader.at = tokens[reader.next]
            continue
        values.append(parse_operand(reader, "a value or a field"))
        if not reader.take(","):
            break
    reader.want(")", ", or )")
    return In(path, tuple(values), negated, reader.since(start))


def _with_fields(node: In) -> Node:
    """Return an IN with fields in its list as an OR of comparisons; any other IN unchanged."""
    others = [value for value in node.values if isinstance(value, Path)]
    if not others:
        return node
    terms: list[Node] = [Compare(node.path, "=", other, node.span) for other in others]
    values = tuple(value for value in node.values if not isinstance(value, Path))
    if values:
        terms.append(In(node.path, values, span=node.span))
    whole = terms[0] if len(terms) == 1 else Or(tuple(terms))
    return Not(whole) if node.negated else whole


def _strlike(reader: TokenReader, start: int, path: Path, negated: bool) -> StrLike:
    text = reader.value()
    bound = None
    if reader.is_word("WITHIN"):
        reader.advance()
        bound = Bound("EDITS", reader.number())
        reader.take_word("EDITS")
    elif reader.is_word("SIMILARITY"):
        reader.advance()
        bound = Bound("SIMILARITY", reader.number())
    return StrLike(path, text, bound, negated, reader.since(start))


def _null_or_member(reader: TokenReader, start: int, path: Path) -> IsNull | Member:
    negated = reader.take_word("NOT")
    if reader.take_word("NULL"):
        return IsNull(path, negated, reader.since(start))
    if negated:
        reader.fail("NULL after IS NOT")
    _want_field(reader, path, "IS and a shape")
    return Member(path, parse_shape_operand(reader), reader.since(start))


def parse_shape_operand(reader: TokenReader) -> FuzzyShape:
    """Read a membership function with its numbers, or the name of a term of the schema."""
    token = reader.tokens[reader.next]
    if reader.kind != "word" or reader.word.upper() in RESERVED_WORDS:
        reader.fail("NULL, a shape such as TRIANGLE(a, b, c), or a term of the schema")
    reader.advance()
    if reader.word != "(":
        parts = path_parts(token[1])
        if len(parts) > 1:
            reader.fail_at(span_of(token), "the name of a term, without dots and brackets")
        return FuzzyShape(str(parts[0]), is_term=True, span=span_of(token))
    name = token[1].upper() if token[1].isascii() else token[1]
    if name not in SHAPES:
        reader.fail_at(span_of(token), f"a shape ({', '.join(SHAPES)})")
    numbers = reader.numbers()
    if len(numbers) != SHAPES[name]:
        reader.fail_at(reader.since(token[2]), f"{SHAPES[name]} numbers in {name}(...), not {len(numbers)}")
    return FuzzyShape(name, numbers, span=reader.since(token[2]))


def _inside(reader: TokenReader, start: int) -> Inside:
    reader.want("(")
    longitude = reader.field("the field of the longitude")
    reader.want(",")
    latitude = reader.field("the field of the latitude")
    reader.want(")")
    negated = reader.take_word("NOT")
    reader.want_word("INSIDE")
    area = _area(reader)
    return Inside(longitude, latitude, area, negated, reader.since(start))


def _area(reader: TokenReader) -> Area:
    start = reader.at
    if reader.take_word("BOX"):
        numbers = reader.numbers()
        if len(numbers) != 4:
            reader.fail_at(reader.since(start), f"BOX(west, south, east, north), not {len(numbers)} numbers")
        return Area("BOX", numbers, reader.since(start))
    if reader.take_word("CIRCLE"):
        numbers = reader.numbers()
        if len(numbers) != 3:
            reader.fail_at(reader.since(start), f"CIRCLE(longitude, latitude, metres), not {len(numbers)} numbers")
        return Area("CIRCLE", numbers, reader.since(start))
    reader.want_word("POLYGON", "BOX, CIRCLE or POLYGON")
    reader.want("(")
    corners = [reader.number(), reader.number()]
    while reader.take(","):
        corners += [reader.number(), reader.number()]
    reader.want(")", ", or )")
    if len(corners) < 6:
        reader.fail_at(reader.since(start), "a POLYGON of three corners or more")
    return Area("POLYGON", tuple(corners), reader.since(start))


def _group(reader: TokenReader, start: int) -> Group:
    reader.advance()
    mode = "MIN" if reader.is_word("MIN") else "MEAN"
    if reader.word != "(":
        reader.advance()
    reader.want("(")
    items = [_item(reader)]
    while reader.take(","):
        items.append(_item(reader))
    reader.want(")", ", or )")
    least: Value = LEAST_DEGREE
    if reader.word == ">=":
        reader.advance()
        least = reader.number()
    return Group("MIN" if mode == "MIN" else "MEAN", tuple(items), least, span=reader.since(start))


def _item(reader: TokenReader) -> Item:
    start = reader.at
    negated = reader.take_word("NOT")
    predicate = _simple(reader, start, f"{_OPERATORS} of a fuzzy item")
    is_match = isinstance(predicate, Pattern) and predicate.operator == "MATCH"
    if is_match or isinstance(predicate, IsNull | Inside | Group):
        reader.fail_at(predicate.span, "an item of a group: IS shape, a comparison, BETWEEN, LIKE, IN, STRLIKE or ~")
    if isinstance(predicate, In) and any(isinstance(value, Path) for value in predicate.values):
        reader.fail_at(predicate.span, "values in the list of IN, not fields, inside FUZZY(...)")
    item: ItemPredicate = predicate
    least: Value = LEAST_MEMBERSHIP
    weight: Value = WEIGHT
    if reader.take_word("AT"):
        reader.want_word("LEAST")
        least = reader.number()
    if reader.take_word("WEIGHT"):
        weight = reader.number()
    return Item(item, negated, least, weight)


def _short_group(member: Member) -> Group:
    """Return `x IS shape` outside of FUZZY(...) as a fuzzy group of one item."""
    return Group("MEAN", (Item(member),), span=member.span)
