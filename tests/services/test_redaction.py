"""Conditions of operators are not mistaken for secrets."""

from __future__ import annotations

from tidegate.services import loads, to_dict
from tidegate.services.redaction import redacted


def test_conditions_of_operators_are_shown_unchanged() -> None:
    pipeline = """
      - join: {on: vid, within: 1s, with: [{from: b, filter: "(token = other)"}]}
      - lookup: {from: c, on: vid, filter: "(token = other)"}
      - pattern: {steps: [{seen: "(token = other)"}]}
      - aggregate: {count: n, by: [token], window: {session: 5m}, having: "(token = other)"}
"""
    document = to_dict(loads(f"services:\n  s:\n    from: a\n    pipeline:{pipeline}"))
    assert redacted(document) == document
