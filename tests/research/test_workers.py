"""Several processes give what one gives, and say so when they can't."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests import generate
from tests.matching.contract import drawn, expected, found
from tidegate import Filter, Schema
from tidegate.errors import EventError, MatcherError, Violation
from tidegate.matching import Matcher
from tidegate.model import arrow
from tidegate.research.improved_tree import ImprovedTreeIndex
from tidegate.research.workers import Workers


@pytest.fixture(scope="module")
def matcher() -> Iterator[Matcher]:
    """One for all tests: processes start slowly."""
    made = Matcher(engine="improved-tree", workers=2)
    yield made
    made.close()


def refilled(matcher: Matcher, filters: dict[str, Filter]) -> None:
    for name in matcher:
        matcher.remove(name)
    for name, each in filters.items():
        matcher.add(name, each)


class TestMatching:
    def test_it_agrees_with_each_filter(self, matcher: Matcher) -> None:
        for seed in range(12):
            rng = Random(seed)
            of = generate.schema(rng)
            filters = {f"s{n}": drawn(rng, of, None) for n in range(rng.choice([0, 1, 5, 30]))}
            refilled(matcher, filters)
            batch = arrow.to_batch([generate.event(rng, of) for _ in range(12)], of)
            assert found(matcher, batch, 12) == expected(filters, batch.to_pylist())
            events = [generate.wild_event(rng, of) for _ in range(12)]
            assert found(matcher, events, 12) == expected(filters, events)

    def test_a_filter_whose_conjuncts_lie_in_both_parts_matches_once(self, matcher: Matcher) -> None:
        refilled(matcher, {"both": Filter("a = 1 OR b = 1"), "all": Filter("")})
        assert matcher.match([{"a": 1, "b": 1}]).for_event(0) == ["both", "all"]

    def test_threads_take_turns_and_see_changes_whole(self, matcher: Matcher) -> None:
        refilled(matcher, {f"s{n}": Filter(f"y = {n}") for n in range(10)})
        matcher.add("watched", "x < 0")
        failed: list[object] = []

        def ask() -> None:
            for _ in range(20):
                ids = matcher.match([{"x": -10, "y": 3}]).for_event(0)
                if sorted(ids) != ["s3", "watched"]:
                    failed.append(ids)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for n in range(20):
            matcher.replace("watched", f"x < {-(n % 5)}")
        for thread in threads:
            thread.join()
        assert failed == []

    def test_a_sliced_batch_travels_as_its_slice(self, matcher: Matcher) -> None:
        refilled(matcher, {"low": Filter("x < 3")})
        batch = arrow.to_batch([{"x": n} for n in range(10)], Schema({"x": "int32"}))
        assert matcher.match(batch.slice(2, 4)).pairs()[0].tolist() == [0]

    def test_a_pickled_matcher_carries_no_processes(self, matcher: Matcher) -> None:
        refilled(matcher, {"low": Filter("x < 3"), "high": Filter("x > 5")})
        matcher.match([{"x": 1}])
        again = pickle.loads(pickle.dumps(matcher))
        assert again.describe() == matcher.describe()
        assert again.describe()["workers"] == 2
        assert again._index._workers.pids == []

    def test_events_that_cannot_travel_are_refused(self, matcher: Matcher) -> None:
        with pytest.raises(MatcherError, match=r"these events can't be sent to a worker: .*lambda"):
            matcher.match([{"x": lambda: 1}])

    def test_a_worker_that_dies_is_named_and_replaced(self, matcher: Matcher) -> None:
        refilled(matcher, {"low": Filter("x < 3"), "high": Filter("x > 5")})
        assert matcher.match([{"x": 1}]).for_event(0) == ["low"]
        index = matcher._index
        assert isinstance(index, ImprovedTreeIndex)
        first, second = index._workers.pids
        assert first is not None
        os.kill(first, signal.SIGKILL)
        with pytest.raises(
            MatcherError, match=rf"a worker \(process {first}\) has died with exit code -9; match again"
        ):
            matcher.match([{"x": 1}])
        assert matcher.match([{"x": 1}, {"x": 9}]).pairs()[1].tolist() == ["low", "high"]
        assert index._workers.pids[1] == second

    def test_after_close_the_next_match_starts_them_again(self, matcher: Matcher) -> None:
        refilled(matcher, {"low": Filter("x < 3")})
        matcher.match([{"x": 1}])
        matcher.close()
        matcher.close()
        index = matcher._index
        assert isinstance(index, ImprovedTreeIndex)
        assert index._workers.pids == []
        assert matcher.match([{"x": 1}]).for_event(0) == ["low"]


class TestMisuse:
    def test_an_engine_of_one_process_takes_no_workers(self) -> None:
        message = "engine 'columnar' matches in one process: use workers=1, not 4, or the engine 'improved-tree'"
        with pytest.raises(MatcherError, match=message):
            Matcher(workers=4)
        Matcher(engine="scan", workers=1).close()

    @pytest.mark.parametrize("workers", [0, -1, 1.5, "2", None])
    def test_a_number_of_workers_is_whole_and_positive(self, workers: Any) -> None:
        with pytest.raises(MatcherError, match=f"workers: expected a whole number from 1, not {workers!r}"):
            Matcher(engine="improved-tree", workers=workers)

    def test_an_unknown_split_is_named_at_once(self) -> None:
        with pytest.raises(MatcherError, match="unknown split 'counts'; did you mean 'count'"):
            ImprovedTreeIndex(2, "counts")  # type: ignore[arg-type]

    def test_a_script_without_a_guard_is_told(self, tmp_path: Any) -> None:
        """A spawned process imports the script, which must not start workers again."""
        script = tmp_path / "script.py"
        script.write_text(
            "from tidegate.matching import Matcher\n"
            "matcher = Matcher(engine='improved-tree', workers=2)\n"
            "matcher.add('low', 'x < 3')\n"
            "matcher.match([{'x': 1}])\n"
        )
        ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
        assert "has died with exit code 1 before its first answer; a script that uses workers must" in ended.stderr


# Workers that know nothing of matching -----------------------------------------------


def answer(held: bytes, question: Any) -> Any:
    """Fails as it is told; module level, because it travels by name."""
    if isinstance(question, Exception):
        raise question
    return held, question


class Unsendable(Exception):  # noqa: N818 - named for what it is
    """Can be pickled, not unpickled: its text is no longer what its constructor takes."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def fail(_: bytes, question: Any) -> Any:
    raise Unsendable(question, question)


def interrupted(_: Workers, n: int) -> Any:
    raise KeyboardInterrupt


class TestWorkers:
    def test_each_holds_its_part_and_errors_come_back(self) -> None:
        workers = Workers(bytes.upper, answer)
        try:
            assert workers.ask([b"a", b"b"], 1) == [(b"A", 1), (b"B", 1)]
            with pytest.raises(EventError, match="x: bad"):
                workers.ask([b"a", b"c"], EventError([Violation("x", "bad")]))
            assert workers.ask([b"a", b"c"], 2) == [(b"A", 2), (b"C", 2)]
            assert workers.ask([], 3) == []
        finally:
            workers.close()

    def test_an_interrupted_question_leaves_no_answer_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        workers = Workers(bytes.upper, answer)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(Workers, "_received", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    workers.ask([b"a"], 1)
            assert workers.ask([b"a"], 2) == [(b"A", 2)]
        finally:
            workers.close()

    def test_an_error_that_cannot_travel_is_told(self) -> None:
        workers = Workers(bytes.upper, fail)
        try:
            with pytest.raises(MatcherError, match=r"a worker failed: Unsendable\('no no'\)"):
                workers.ask([b"a"], "no")
        finally:
            workers.close()

    def test_they_end_with_whoever_owned_them(self) -> None:
        workers = Workers(bytes.upper, answer)
        workers.ask([b"a"], 1)
        (worker,) = workers._running
        assert worker is not None
        process = worker.process
        del workers
        gc.collect()
        assert process.exitcode == 0
