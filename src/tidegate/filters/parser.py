"""Parses the text of a filter into a syntax tree.

Hand-written, not generated: it is faster (`benchmarks/filters`), and every error names the expected construct of the
language. Parentheses, NOT, AND and OR are kept on an explicit stack, so that no nesting overflows Python's.

    text ── tokens.tokenize ──▶ tokens ── token_reader, predicate_parser, parser ──▶ Query
"""

from __future__ import annotations

from tidegate.filters.nodes import EVERYTHING, And, FuzzyShape, Node, Not, Or, Query
from tidegate.filters.predicate_parser import at_position, parse_predicate, parse_shape_operand
from tidegate.filters.term_parser import at_term
from tidegate.filters.token_reader import TokenReader

MAX_NESTING = 256
"""Maximum nesting of parentheses and NOT."""


def parse(text: str) -> Query:
    """Return the syntax tree of a filter; that of an empty text matches every event.

    The tree is untyped, with parameters in it: `typing.resolve` is the next step. Raises `FilterSyntaxError`.
    """
    reader = TokenReader(text)
    root: Node = EVERYTHING
    if not reader.at_end() and not _at_clause(reader):
        root = _expression(reader)
    themes = _themes(reader) if reader.is_word("WITH") else ()
    threshold = reader.number() if reader.take_word("THRESHOLD") else None
    if not reader.at_end():
        reader.fail("AND, OR, WITH THEME, THRESHOLD or the end")
    return Query(root, themes, threshold, reader.is_semantic)


def parse_shape(text: str) -> FuzzyShape:
    """Return a membership function, as the terms of a schema define it. Raises `FilterSyntaxError`."""
    reader = TokenReader(text)
    shape = parse_shape_operand(reader)
    if shape.is_term or not reader.at_end():
        reader.fail("a shape such as TRIANGLE(a, b, c)")
    return shape


def _at_clause(reader: TokenReader) -> bool:
    """Return True if WITH THEME or THRESHOLD comes next; else such a word is a field."""
    kind, text, _ = reader.tokens[reader.next + 1]
    if reader.is_word("WITH"):
        return kind == "word" and text.upper() == "THEME"
    return reader.is_word("THRESHOLD") and kind in ("number", "param")


def _themes(reader: TokenReader) -> tuple[str, ...]:
    reader.advance()
    reader.want_word("THEME")
    reader.want("(")
    themes = [reader.string("a theme in quotes")]
    while reader.take(","):
        themes.append(reader.string("a theme in quotes"))
    reader.want(")", ", or )")
    return tuple(dict.fromkeys(themes))


class _Level:
    """The terms read so far inside one pair of parentheses."""

    __slots__ = ("alternatives", "conjuncts", "nots")

    def __init__(self) -> None:
        self.alternatives: list[Node] = []
        self.conjuncts: list[Node] = []
        self.nots = 0
        """How many NOTs precede the next term."""

    def close_conjunction(self) -> None:
        terms = self.conjuncts
        self.alternatives.append(terms[0] if len(terms) == 1 else And(_flat(And, terms)))
        self.conjuncts = []

    def close(self) -> Node:
        self.close_conjunction()
        terms = self.alternatives
        return terms[0] if len(terms) == 1 else Or(_flat(Or, terms))


def _flat(kind: type[And] | type[Or], terms: list[Node]) -> tuple[Node, ...]:
    flat: list[Node] = []
    for term in terms:
        if isinstance(term, kind):
            flat.extend(term.terms)
        else:
            flat.append(term)
    return tuple(flat)


def _expression(reader: TokenReader) -> Node:
    levels = [_Level()]
    depth = 0
    while True:
        level = levels[-1]
        if reader.is_word("NOT"):
            level.nots += 1
            depth += 1
            _check_depth(reader, depth)
            reader.advance()
            continue
        if reader.word == "(" and not at_position(reader) and not at_term(reader):
            levels.append(_Level())
            depth += 1
            _check_depth(reader, depth)
            reader.advance()
            continue
        node: Node = parse_predicate(reader)
        while True:
            level = levels[-1]
            level.conjuncts.append(_negate(node) if level.nots % 2 else node)
            depth -= level.nots
            level.nots = 0
            if reader.take_word("AND"):
                break
            if reader.take_word("OR"):
                level.close_conjunction()
                break
            if len(levels) == 1:
                return level.close()
            if not reader.take(")"):
                reader.fail("AND, OR or )")
            depth -= 1
            node = levels.pop().close()


def _check_depth(reader: TokenReader, depth: int) -> None:
    if depth > MAX_NESTING:
        reader.fail(f"at most {MAX_NESTING} levels of parentheses and NOT")


def _negate(node: Node) -> Node:
    return node.term if isinstance(node, Not) else Not(node)
