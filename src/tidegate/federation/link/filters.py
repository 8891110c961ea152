"""The JSON form of filters, in the registry and in requests for history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.filters import Filter
from tidegate.model import Schema


def filter_to_json(filter_: Filter) -> dict[str, Any]:
    """Return a filter as a JSON object with its text and parameters."""
    return {"text": filter_.text, "params": list(filter_.params), "like_star": filter_.like_star}


def filter_from_json(document: Mapping[str, Any], schema: Schema) -> Filter:
    """Read what `filter_to_json` wrote. Raises a `FilterError` if the filter does not fit the schema."""
    return Filter(document["text"], schema, document["params"], like_star=document["like_star"])
