"""The default engine and the scan pass the matcher contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings

from tests.conftest import LARGE_EXAMPLES
from tests.matching.contract import LOW_LIMITS, MatcherContract, MatcherMachine
from tidegate.errors import EventError, MatcherError
from tidegate.matching import Matcher, events


class TestScan(MatcherContract):
    engine = "scan"
    few = 20


class TestColumnar(MatcherContract):
    """With limits so low that a few filters use every part of the engine."""

    engine = "columnar"
    few = 40

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def low_limits(cls) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module, name, value in LOW_LIMITS:
                patch.setattr(module, name, value)
            yield


class ColumnarMachine(MatcherMachine):
    engine = "columnar"


TestScanMachine = MatcherMachine.TestCase
TestScanMachine.settings = settings(max_examples=LARGE_EXAMPLES // 5, stateful_step_count=12, deadline=None)
TestColumnarMachine = ColumnarMachine.TestCase
TestColumnarMachine.settings = settings(max_examples=LARGE_EXAMPLES // 5, stateful_step_count=15, deadline=None)


def test_unknown_engine_is_refused_by_name() -> None:
    with pytest.raises(MatcherError, match="unknown engine 'colunar'; did you mean 'columnar'"):
        Matcher(engine="colunar")


@pytest.mark.parametrize(
    "batch",
    [
        lambda size: [{}] * size,
        lambda size: ({},) * size,
        lambda size: b"{}\n" * size,
        lambda size: pa.record_batch({"x": pa.nulls(size)}),
        lambda size: pa.table({"x": pa.nulls(size)}),
    ],
    ids=["list", "tuple", "NDJSON", "batch", "table"],
)
def test_batch_with_too_many_events_is_refused(batch: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", 3)
    with pytest.raises(EventError, match="batch: expected at most 3 events, not 4"):
        Matcher().match(batch(4))
    assert len(Matcher().match(batch(3))) == 0


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (5, "batch: expected a pyarrow.RecordBatch, a list of dicts or NDJSON bytes, not int"),
        ("x", "batch: expected a pyarrow.RecordBatch, a list of dicts or NDJSON bytes, not str"),
        ([{}, 5], "event 1: expected a dict of attributes, not 5"),
    ],
)
def test_unsupported_batch_is_refused_by_type(batch: object, message: str) -> None:
    with pytest.raises(EventError) as caught:
        Matcher().match(batch)
    assert message in str(caught.value)
