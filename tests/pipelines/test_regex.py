"""Which regular expressions Java may run, and what they become."""

from __future__ import annotations

import pytest

from tidegate.pipelines.regex import to_java


@pytest.mark.parametrize(
    ("pattern", "body"),
    [
        ("", ""),
        ("abc", "abc"),
        ("B[0-9]+", "B[0-9]{1,}"),
        (".*word.*", ".*word.*"),
        ("a?b{2,3}c{4}", "a{0,1}b{2,3}c{4,4}"),
        ("a+?", "a{1,}"),
        ("^a$", r"\Aa\z"),
        (r"\d\W\s", r"[0-9][^0-9A-Za-z_][\t\n\f\r ]"),
        (r"\.\-\t", r"\.-\t"),
        ("(a)+", "a{1,}"),
        ("(?:ab)?c", "(?:ab){0,1}c"),
        ("a|b|", "a|b|"),
        (r"[^a\d\]^-]", r"[^a0-9\]\^-]"),
        ("é🚕", "é🚕"),
    ],
)
def test_safe_patterns_are_written_for_java(pattern: str, body: str) -> None:
    assert to_java(pattern) == rf"(?d)\A(?:{body})\z"


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|b)*",  # recursion: overflows Java's stack on a long text
        "(a+)+",  # exponential
        "(a*)?",
        "((ab)?c)?",
        "a*b*c*",  # cubic
        "(?i)a",
        "(?P<x>a)",
        r"\pL",
        r"\bword",
        r"\Qa\E",
        r"\1",
        "[[:alpha:]]",
        "[a&&b]",
        "[]a]",
        "a{200}",
        "a{1,200}",
        "a{x}",
        "a**",
        "a{2}{3}",
        "(" * 60 + "a" + ")" * 60,
        "a)",
        "(a",
        "*a",
        "\\",
        "[a",
    ],
)
def test_pattern_that_is_unsafe_in_java_is_refused(pattern: str) -> None:
    assert to_java(pattern) is None


def test_nested_groups_are_read_once() -> None:
    # Read twice at every level this would take 2^49 steps.
    assert to_java("(" * 49 + "ab" + ")" * 49) is not None
