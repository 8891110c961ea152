"""docs/spec/discovery.md agrees with the code: its request parses, its example runs, its words are the vocabulary."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from tidegate import Schema
from tidegate.discovery import Directory, Offer, Request, exchange
from tidegate.discovery.answer import Answer, DiscoveryResult
from tidegate.discovery.request import _KEYS
from tidegate.model.units import seconds
from tidegate.services.definitions import Service
from tidegate.services.quality import METRICS

TEXT = (Path(__file__).parents[2] / "docs/spec/discovery.md").read_text()


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def test_example_finds_the_service() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, Any] = {"Directory": Directory, "Offer": Offer, "Request": Request, "time": time}
    names |= {"service": Service("gps", ("raw",)), "output_schema": Schema({"speed": "float64", "vid": "string"})}
    exec(code, names)
    assert [each.name for each in names["answer"].results] == ["gps"]


def test_example_request_is_valid_and_complete() -> None:
    (document,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    request = Request.from_dict(json.loads(document))
    assert request.limits == {"availability": 0.99}
    rows = re.findall(r"^\| (`.*?) \|", section("A request"), re.MULTILINE)
    named = {name.partition(".")[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert named == set(_KEYS)


def test_all_fields_of_an_answer_are_named() -> None:
    named = set(re.findall(r"`(\w+)`", section("An answer")))
    assert set(Answer.__dataclass_fields__) | set(DiscoveryResult.__dataclass_fields__) <= named | {"version"}


def test_words_of_quality_agree_with_the_code() -> None:
    vocabulary = {}
    for metric, words in re.findall(r"^\| `(\w+)`.*?\| (?:less|more) \| (.*?) \|$", TEXT, re.MULTILINE):
        pairs = re.findall(r"`(\w+)` ([\d.,]+)(ms|s|h|d| per minute)?", words)
        vocabulary[metric] = {word: _figure(number.replace(",", ""), unit) for word, number, unit in pairs}
    assert vocabulary == {name: dict(metric.words) for name, metric in METRICS.items()}


def _figure(number: str, unit: str) -> float:
    if unit == " per minute":
        return float(number) / 60
    return float(number.rstrip(".")) if not unit else seconds(number + unit) or 0.0


def test_exchange_format_names_its_magic_and_version() -> None:
    assert f"`{exchange.MAGIC.decode()}`" in TEXT
    assert f"version: {exchange.VERSION};" in TEXT
