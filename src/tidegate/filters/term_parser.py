"""Reads the operand of a predicate: a field, a value, or an expression such as `distance(lon, lat, 116.4, 39.9)`.

    sum     = product { ("+" | "-") product } ;
    product = unary { ("*" | "/" | "%") unary } ;
    unary   = "-" unary | number | string | "TRUE" | "FALSE" | param | call | field | "(" sum ")" ;
    call    = name "(" sum { "," sum } ")" ;

`%` before a digit is a parameter: a remainder is written with a blank, `lane % 2`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal as Choice

from tidegate.expressions.parser import (
    KEYWORDS,
    MAX_DEPTH,
    MAX_OPERATORS,
    UntypedCall,
    UntypedConstant,
    UntypedNode,
    UntypedParameter,
    UntypedPath,
    paths_of,
)
from tidegate.filters.nodes import ComputedValue, Literal, Operand, Param, Path
from tidegate.filters.token_reader import RESERVED_WORDS, TokenReader

_AFTER_OPERAND = frozenset({"LIKE", "MATCH", "BETWEEN", "IN", "IS", "NOT", "STRLIKE"})
"""Words that may follow an operand, but not a condition in parentheses."""
_LITERAL_KINDS: dict[str, Choice["bool", "int", "float", "string"]] = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "str": "string",
}
_RELATIONS = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})


def parse_operand(reader: TokenReader, expected: str) -> Operand:
    """Read a field, a value or an expression."""
    start = reader.next
    if not _starts_term(reader):
        operand = reader.operand(expected)
        if not _at_operator(reader):
            return operand
        reader.rewind(start)
    return _parse_term(reader, expected)


def at_term(reader: TokenReader) -> bool:
    """Return True if the parenthesis that comes next opens an expression, not a condition."""
    closing = reader.closings.get(reader.next)
    if closing is None:
        return False
    kind, text, _ = reader.tokens[closing + 1]
    if kind == "word":
        return text.upper() in _AFTER_OPERAND
    return kind == "sign" or text in _RELATIONS or (kind == "number" and text[0] in "+-")


def _starts_term(reader: TokenReader) -> bool:
    if reader.kind == "word":
        return reader.tokens[reader.next + 1][1] == "(" and reader.word.upper() not in RESERVED_WORDS
    return reader.word == "(" or (reader.kind == "sign" and reader.word == "-")


def _at_operator(reader: TokenReader) -> bool:
    return reader.kind == "sign" or (reader.kind == "number" and reader.word[0] in "+-")


def _parse_term(reader: TokenReader, expected: str) -> Operand:
    start = reader.at
    term = _TermParser(reader, expected).sum()
    span = reader.since(start)
    match term:  # in parentheses, or with a sign
        case UntypedPath(parts):
            return Path(parts, None, term.span)
        case UntypedParameter(index):
            return Param(index, term.span)
        case UntypedConstant(value) if value is not None:
            return Literal(value, _LITERAL_KINDS[term.kind], term.span)
    paths = paths_of(term)
    if not paths:
        reader.fail_at(span, "a field in this expression")
    return ComputedValue((), None, span, term, None, tuple(Path(path.parts, None, path.span) for path in paths))


class _TermParser:
    """A recursive-descent parser of one expression; nesting and operators are bounded."""

    def __init__(self, reader: TokenReader, expected: str) -> None:
        self.reader, self.expected = reader, expected
        self.depth = self.operators = 0

    def sum(self) -> UntypedNode:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.reader.fail(f"an expression that nests at most {MAX_DEPTH} deep")
        node = self.chain(self.product, "+-")
        self.depth -= 1
        return node

    def product(self) -> UntypedNode:
        return self.chain(self.unary, "*/%")

    def chain(self, operand: Callable[[], UntypedNode], operators: str) -> UntypedNode:
        """Read operands that left-associative operators join."""
        reader = self.reader
        left = operand()
        while True:
            if reader.kind == "number" and reader.word[0] in operators:
                reader.split_sign()
            if reader.kind != "sign" or reader.word not in operators:
                return left
            operator = reader.word
            self.count()
            reader.advance()
            right = operand()
            left = UntypedCall(operator, (left, right), (left.span[0], right.span[1]))

    def count(self) -> None:
        self.operators += 1
        if self.operators > MAX_OPERATORS:
            self.reader.fail(f"at most {MAX_OPERATORS} operators in an expression")

    def unary(self) -> UntypedNode:
        reader = self.reader
        starts = []
        while reader.kind == "sign" and reader.word == "-":
            starts.append(reader.at)
            self.count()
            reader.advance()
        node = self.primary()
        for start in reversed(starts):
            span = (start, node.span[1])
            if isinstance(node, UntypedConstant) and isinstance(node.value, int | float) and node.kind != "bool":
                node = UntypedConstant(-node.value, span)
            else:
                node = UntypedCall("negative", (node,), span)
        return node

    def primary(self) -> UntypedNode:
        reader = self.reader
        if reader.take("("):
            node = self.sum()
            reader.want(")")
            return node
        if reader.kind == "word" and _starts_term(reader):
            return self.call()
        operand = reader.operand(self.expected)
        match operand:
            case Literal(value):
                return UntypedConstant(value, operand.span)
            case Param(index):
                return UntypedParameter(index, operand.span)
        return UntypedPath(operand.parts, operand.span)

    def call(self) -> UntypedNode:
        reader = self.reader
        name, start = reader.word, reader.at
        if not name.isidentifier() or name.lower() in KEYWORDS:
            reader.fail("the name of a function before (")
        reader.advance()
        reader.advance()
        arguments = [self.sum()]
        while reader.take(","):
            self.count()
            arguments.append(self.sum())
        reader.want(")", ", or )")
        return UntypedCall(name.lower(), tuple(arguments), reader.since(start))
