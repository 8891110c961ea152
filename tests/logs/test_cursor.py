"""Cursors are converted to text and back; other texts are refused."""

from __future__ import annotations

import base64

import pytest

from tidegate.errors import CursorError
from tidegate.logs import Cursor

TEXTS = ["", "!", "abc", "WzEsMl0", "W10", "WyJhIix7IjAiOi0xfV0"]
DOCUMENTS = [b'["a",{},[]]', b'["a",{},{"s/0":-1}]', b'["a",{},{"s/0":[1]}]', b'["a",{},{},{}]', b"[" * 100_000]
ENCODED = [base64.urlsafe_b64encode(document).decode().rstrip("=") for document in DOCUMENTS]


@pytest.mark.parametrize("text", [*TEXTS, *ENCODED])
def test_text_that_is_not_a_cursor_is_refused(text: str) -> None:
    with pytest.raises(CursorError, match="is no cursor; expected"):
        Cursor.from_text(text)


def test_cursor_with_marks_equals_the_one_from_its_text() -> None:
    marked = Cursor("a", {"0": 1}, {"gps/0": 7, "gps/1": (8, 2)})
    assert Cursor.from_text(marked.text) == marked
    assert marked.moved("0", 3).marks == marked.marks
    assert len({marked, marked.moved("0", 1)}) == 1


def test_text_of_a_cursor_without_marks_stays_the_same() -> None:
    assert Cursor("a", {"0": 1}).text == "WyJhIix7IjAiOjF9XQ"
    assert Cursor.from_text("WyJhIix7IjAiOjF9XQ") == Cursor("a", {"0": 1}, {})
