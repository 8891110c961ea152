"""Reads the patterns of LIKE: `%` is any text, `_` any character, and `\\` escapes both."""

from __future__ import annotations

from typing import Any

ANY, ONE = object(), object()
"""The wildcards `%` and `_` in a list of LIKE elements."""


def like_elements(pattern: str, star: bool = False) -> list[Any]:
    """Split a LIKE pattern into literal texts, `ANY` and `ONE`, in simplest form.

    >>> like_elements(r"10\\%%") == ["10%", ANY]
    True
    """
    wild = {"%": ANY, "_": ONE, **({"*": ANY, "?": ONE} if star else {})}
    elements: list[Any] = []
    literal: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            literal.append(next(characters, "\\"))
        elif character in wild:
            if literal:
                elements.append("".join(literal))
                literal = []
            elements.append(wild[character])
        else:
            literal.append(character)
    if literal:
        elements.append("".join(literal))
    return _simplest(elements)


def _simplest(elements: list[Any]) -> list[Any]:
    """Order each run of wildcards as `__%`, because `%_` and `_%%` mean the same."""
    out: list[Any] = []
    ones, many = 0, False
    for element in [*elements, None]:
        if element is ONE:
            ones += 1
        elif element is ANY:
            many = True
        else:
            out += [ONE] * ones + [ANY] * many
            ones, many = 0, False
            if element is not None:
                out.append(element)
    return out


def fits(text: str, pattern: str) -> bool:
    """Return True if a text fits a LIKE pattern. Takes at most the product of both lengths in steps.

    >>> fits("B17", "B%"), fits("B17", "B_")
    (True, False)
    """
    steps: list[Any] = []
    for element in like_elements(pattern):
        steps += element if isinstance(element, str) else [element]
    at = step = 0
    retry: tuple[int, int] | None = None
    while at < len(text):
        if step < len(steps) and steps[step] is ANY:
            retry, step = (at, step), step + 1
        elif step < len(steps) and (steps[step] is ONE or steps[step] == text[at]):
            at, step = at + 1, step + 1
        elif retry is not None:
            retry = (retry[0] + 1, retry[1])
            at, step = retry[0], retry[1] + 1
        else:
            return False
    return all(rest is ANY for rest in steps[step:])


def spark_pattern(pattern: str) -> str:
    """Return a LIKE pattern with the only escapes that Spark accepts."""
    out = ""
    for element in like_elements(pattern):
        if isinstance(element, str):
            out += element.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        else:
            out += "%" if element is ANY else "_"
    return out
