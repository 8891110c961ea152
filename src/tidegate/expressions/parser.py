"""Parses the text of an expression into an untyped tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.expressions.tokens import ExpressionTokens

MAX_OPERATORS = 100
"""The largest number of operators in an expression."""
MAX_DEPTH = 24
"""The deepest nesting of parentheses and calls: the SQL of some functions repeats an argument."""

Span = tuple[int, int]
"""Start and end of a part of the text."""


@dataclass(frozen=True, slots=True)
class UntypedConstant:
    """A literal value; None is null."""

    value: str | float | None
    span: Span = field(compare=False)
    kind: str = field(init=False, repr=False)
    """The class of the value: 1 and 1.0 are different constants."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", type(self.value).__name__)


@dataclass(frozen=True, slots=True)
class UntypedPath:
    """A path into the event: names of attributes, and indexes of arrays."""

    parts: tuple[str | int, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class UntypedParameter:
    """`%n` in a filter: a constant that is passed separately from the text."""

    index: int
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class UntypedCall:
    """A function, in lower case, or an operator; the unary minus is `negative`.

    `case` has a condition and a value for each WHEN, and last the value of ELSE.
    """

    name: str
    arguments: tuple[UntypedNode, ...]
    span: Span = field(compare=False)


UntypedNode = UntypedConstant | UntypedPath | UntypedParameter | UntypedCall
"""A node before type checking. Equality ignores spans."""


def parse(text: str) -> UntypedNode:
    """Parse an expression. Raises `ExpressionError` at the first syntax error."""
    return _Parser(text).parse()


def names(text: str) -> frozenset[str]:
    """Return the top-level attributes that an expression reads. Raises `ExpressionError` for a syntax error.

    >>> sorted(names("concat(cid, '-', pos.x) + 1"))
    ['cid', 'pos']
    """
    return frozenset(str(path.parts[0]) for path in paths_of(parse(text)))


def paths_of(root: UntypedNode) -> list[UntypedPath]:
    """Return the paths of a tree without duplicates, in the order of the text."""
    distinct: dict[UntypedPath, None] = {}
    stack = [root]
    while stack:
        match stack.pop():
            case UntypedPath() as path:
                distinct[path] = None
            case UntypedCall(_, arguments):
                stack += reversed(arguments)
    return list(distinct)


RELATIONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
"""The comparisons, and the name of each."""

KEYWORDS = frozenset({"and", "or", "not", "in", "like", "between", "is", "case"})
"""Words that are not called as functions."""

_CONSTANTS = {"true": True, "false": False, "null": None}


class _Parser:
    """A recursive-descent parser of one text. Each method parses one rule of the grammar and consumes its tokens."""

    def __init__(self, text: str) -> None:
        self.tokens, self.depth, self.operators = ExpressionTokens(text), 0, 0

    def parse(self) -> UntypedNode:
        root = self.condition()
        if self.tokens.kind != "end":
            self.tokens.fail("an operator or the end")
        return root

    def condition(self) -> UntypedNode:
        """Parse a whole expression: conditions that OR joins, or just a value."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.tokens.fail(f"an expression that nests at most {MAX_DEPTH} deep")
        node = self.logic("or", lambda: self.logic("and", self.negation))
        self.depth -= 1
        return node

    def logic(self, word: str, operand: Callable[[], UntypedNode]) -> UntypedNode:
        left = operand()
        while self.tokens.take_word(word):
            self.count_operator()
            right = operand()
            left = UntypedCall(word, (left, right), (left.span[0], right.span[1]))
        return left

    def negation(self) -> UntypedNode:
        starts = []
        while self.tokens.is_word("not"):
            starts.append(self.tokens.start)
            self.count_operator()
            self.tokens.advance()
        node = self.comparison()
        for start in reversed(starts):
            node = UntypedCall("not", (node,), (start, node.span[1]))
        return node

    def comparison(self) -> UntypedNode:
        left = self.sum()
        if self.tokens.kind == "mark" and self.tokens.piece in RELATIONS:
            self.count_operator()
            relation = RELATIONS[self.tokens.take(*RELATIONS)]
            right = self.sum()
            return UntypedCall(relation, (left, right), (left.span[0], right.span[1]))
        if self.tokens.take_word("is"):
            return self.is_null(left)
        negated = self.tokens.take_word("not")
        for word, parse_rest in (("in", self.members), ("like", self.pattern), ("between", self.between)):
            if self.tokens.take_word(word):
                self.count_operator()
                node = parse_rest(left)
                return UntypedCall("not", (node,), node.span) if negated else node
        if negated:
            self.tokens.fail("IN, LIKE or BETWEEN after NOT")
        return left

    def is_null(self, value: UntypedNode) -> UntypedNode:
        self.count_operator()
        negated = self.tokens.take_word("not")
        span = (value.span[0], self.tokens.start + len(self.tokens.piece))
        self.tokens.expect_word("null")
        node = UntypedCall("is null", (value,), span)
        return UntypedCall("not", (node,), span) if negated else node

    def members(self, value: UntypedNode) -> UntypedNode:
        self.tokens.expect("(")
        members = [self.sum()]
        while self.tokens.take(","):
            self.count_operator()
            members.append(self.sum())
        end = self.tokens.at
        self.tokens.expect(")")
        return UntypedCall("in", (value, *members), (value.span[0], end))

    def pattern(self, value: UntypedNode) -> UntypedNode:
        pattern = self.value()
        return UntypedCall("like", (value, pattern), (value.span[0], pattern.span[1]))

    def between(self, value: UntypedNode) -> UntypedNode:
        low = self.sum()
        self.tokens.expect_word("and")
        high = self.sum()
        span = (value.span[0], high.span[1])
        return UntypedCall("and", (UntypedCall(">=", (value, low), span), UntypedCall("<=", (value, high), span)), span)

    def sum(self) -> UntypedNode:
        return self.chain(self.product, "+", "-")

    def product(self) -> UntypedNode:
        return self.chain(self.sign, "*", "/", "%")

    def chain(self, operand: Callable[[], UntypedNode], *operators: str) -> UntypedNode:
        """Parse operands that left-associative operators join."""
        left = operand()
        while operator := self.tokens.take(*operators):
            self.count_operator()
            right = operand()
            left = UntypedCall(operator, (left, right), (left.span[0], right.span[1]))
        return left

    def sign(self) -> UntypedNode:
        starts = []
        while self.tokens.kind == "mark" and self.tokens.piece == "-":
            starts.append(self.tokens.start)
            self.count_operator()
            self.tokens.advance()
        node = self.value()
        for start in reversed(starts):
            span = (start, node.span[1])
            match node:
                case UntypedConstant(int() | float() as number) if not isinstance(number, bool):
                    node = UntypedConstant(-number, span)
                case _:
                    node = UntypedCall("negative", (node,), span)
        return node

    def count_operator(self) -> None:
        self.operators += 1
        if self.operators > MAX_OPERATORS:
            self.tokens.fail(f"at most {MAX_OPERATORS} operators")

    def value(self) -> UntypedNode:
        kind, piece, start = self.tokens.kind, self.tokens.piece, self.tokens.start
        span = (start, start + len(piece))
        if self.tokens.take("("):
            node = self.condition()
            self.tokens.expect(")")
            return node
        if kind not in ("number", "string", "name", "quoted"):
            self.tokens.fail("a value or an attribute")
        self.tokens.advance()
        if kind == "number":
            return UntypedConstant(int(piece) if piece.isdecimal() else float(piece), span)
        if kind == "string":
            return UntypedConstant(piece[1:-1].replace("''", "'"), span)
        if kind == "name":
            if piece.lower() in _CONSTANTS:
                return UntypedConstant(_CONSTANTS[piece.lower()], span)
            if (
                self.tokens.kind == "mark"
                and self.tokens.piece == "("
                and piece.lower() not in KEYWORDS
                and self.tokens.take("(")
            ):
                return self.call(piece, start)
            if piece.lower() == "case" and self.tokens.kind in ("name", "quoted", "number", "string"):
                return self.case(start)
        return self.path(piece, start)

    def call(self, name: str, start: int) -> UntypedCall:
        arguments: list[UntypedNode] = []
        while not arguments or self.tokens.take(","):
            arguments.append(self.condition())
        end = self.tokens.at
        self.tokens.expect(")")
        return UntypedCall(name.lower(), tuple(arguments), (start, end))

    def case(self, start: int) -> UntypedCall:
        """Parse `WHEN ... THEN ... [ELSE ...] END`; with a value before WHEN, each WHEN is compared with it."""
        subject = None if self.tokens.is_word("when") else self.condition()
        arguments: list[UntypedNode] = []
        self.tokens.expect_word("when")
        while not arguments or self.tokens.take_word("when"):
            self.count_operator()
            condition = self.condition()
            if subject is not None:
                condition = UntypedCall("=", (subject, condition), condition.span)
            self.tokens.expect_word("then")
            arguments += [condition, self.condition()]
        otherwise: UntypedNode = UntypedConstant(None, (self.tokens.start, self.tokens.start))
        if self.tokens.take_word("else"):
            otherwise = self.condition()
        end = self.tokens.start + len(self.tokens.piece)
        self.tokens.expect_word("end")
        return UntypedCall("case", (*arguments, otherwise), (start, end))

    def path(self, first: str, start: int) -> UntypedPath:
        parts: list[str | int] = [_unquote(first)]
        end = start + len(first)
        while mark := self.tokens.take(".", "["):
            end = self.tokens.start + len(self.tokens.piece)
            if mark == ".":
                if self.tokens.kind not in ("name", "quoted"):
                    self.tokens.fail("a name after the dot")
                parts.append(_unquote(self.tokens.piece))
                self.tokens.advance()
                continue
            if self.tokens.kind != "number" or not self.tokens.piece.isdecimal() or len(self.tokens.piece) > 9:
                self.tokens.fail("an index, such as [3]")
            parts.append(int(self.tokens.piece))
            self.tokens.advance()
            end = self.tokens.start + 1
            self.tokens.expect("]")
        return UntypedPath(tuple(parts), (start, end))


def _unquote(piece: str) -> str:
    return piece[1:-1].replace('""', '"') if piece.startswith('"') else piece
