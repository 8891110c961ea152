"""Worker processes give the same result as one process, and report failures."""

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
from tests.matching.contract import drawn, expected, matched
from tidegate import Filter, Schema
from tidegate.errors import EventError, MatcherError, Violation
from tidegate.matching import Matcher
from tidegate.model import arrow
from tidegate.research.improved_tree import ImprovedTreeIndex
from tidegate.research.workers import MatchWorkers


@pytest.fixture(scope="module")
def matcher() -> Iterator[Matcher]:
    """One matcher for all tests, because processes start slowly."""
    built = Matcher(engine="improved-tree", workers=2)
    yield built
    built.close()


def refilled(matcher: Matcher, filters: dict[str, Filter]) -> None:
    for name in matcher:
        matcher.remove(name)
    for name, filter_ in filters.items():
        matcher.add(name, filter_)


class TestMatching:
    def test_improved_tree_agrees_with_each_filter(self, matcher: Matcher) -> None:
        for seed in range(12):
            rng = Random(seed)
            of = generate.schema(rng)
            filters = {f"s{n}": drawn(rng, of, None) for n in range(rng.choice([0, 1, 5, 30]))}
            refilled(matcher, filters)
            batch = arrow.to_batch([generate.event(rng, of) for _ in range(12)], of)
            assert matched(matcher, batch, 12) == expected(filters, batch.to_pylist())
            events = [generate.wild_event(rng, of) for _ in range(12)]
            assert matched(matcher, events, 12) == expected(filters, events)

    def test_filter_with_conjuncts_in_two_parts_matches_once(self, matcher: Matcher) -> None:
        refilled(matcher, {"both": Filter("a = 1 OR b = 1"), "all": Filter("")})
        assert matcher.match([{"a": 1, "b": 1}]).for_event(0) == ["both", "all"]

    def test_threads_take_turns_and_see_complete_changes(self, matcher: Matcher) -> None:
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

    def test_sliced_batch_is_sent_as_its_slice(self, matcher: Matcher) -> None:
        refilled(matcher, {"low": Filter("x < 3")})
        batch = arrow.to_batch([{"x": n} for n in range(10)], Schema({"x": "int32"}))
        assert matcher.match(batch.slice(2, 4)).pairs()[0].tolist() == [0]

    def test_pickled_matcher_has_no_processes(self, matcher: Matcher) -> None:
        refilled(matcher, {"low": Filter("x < 3"), "high": Filter("x > 5")})
        matcher.match([{"x": 1}])
        again = pickle.loads(pickle.dumps(matcher))
        assert again.describe() == matcher.describe()
        assert again.describe()["workers"] == 2
        assert again._index._workers.pids == []

    def test_events_that_cannot_be_pickled_are_refused(self, matcher: Matcher) -> None:
        with pytest.raises(MatcherError, match=r"these events can't be sent to a worker: .*lambda"):
            matcher.match([{"x": lambda: 1}])

    def test_dead_worker_is_named_and_replaced(self, matcher: Matcher) -> None:
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

    def test_match_after_close_restarts_workers(self, matcher: Matcher) -> None:
        refilled(matcher, {"low": Filter("x < 3")})
        matcher.match([{"x": 1}])
        matcher.close()
        matcher.close()
        index = matcher._index
        assert isinstance(index, ImprovedTreeIndex)
        assert index._workers.pids == []
        assert matcher.match([{"x": 1}]).for_event(0) == ["low"]


class TestMisuse:
    def test_single_process_engine_refuses_workers(self) -> None:
        message = "engine 'columnar' matches in one process: use workers=1, not 4, or the engine 'improved-tree'"
        with pytest.raises(MatcherError, match=message):
            Matcher(workers=4)
        Matcher(engine="scan", workers=1).close()

    @pytest.mark.parametrize("workers", [0, -1, 1.5, "2", None])
    def test_number_of_workers_must_be_a_positive_integer(self, workers: Any) -> None:
        with pytest.raises(MatcherError, match=f"workers: expected a whole number from 1, not {workers!r}"):
            Matcher(engine="improved-tree", workers=workers)

    def test_unknown_split_is_refused_by_the_constructor(self) -> None:
        with pytest.raises(MatcherError, match="unknown split 'counts'; did you mean 'count'"):
            ImprovedTreeIndex(2, "counts")  # type: ignore[arg-type]

    def test_script_without_main_guard_gets_a_clear_error(self, tmp_path: Any) -> None:
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
    """Fail as the question says. At module level, because it is pickled by name."""
    if isinstance(question, Exception):
        raise question
    return held, question


class Unsendable(Exception):  # noqa: N818 - named for what it is
    """An error that can be pickled but not unpickled: its constructor takes other arguments."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def fail(_: bytes, question: Any) -> Any:
    raise Unsendable(question, question)


def interrupted(_: MatchWorkers, n: int) -> Any:
    raise KeyboardInterrupt


class TestWorkers:
    def test_worker_holds_its_part_and_returns_errors(self) -> None:
        workers = MatchWorkers(bytes.upper, answer)
        try:
            assert workers.ask([b"a", b"b"], 1) == [(b"A", 1), (b"B", 1)]
            with pytest.raises(EventError, match="x: bad"):
                workers.ask([b"a", b"c"], EventError([Violation("x", "bad")]))
            assert workers.ask([b"a", b"c"], 2) == [(b"A", 2), (b"C", 2)]
            assert workers.ask([], 3) == []
        finally:
            workers.close()

    def test_interrupted_question_leaves_no_pending_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        workers = MatchWorkers(bytes.upper, answer)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(MatchWorkers, "_received", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    workers.ask([b"a"], 1)
            assert workers.ask([b"a"], 2) == [(b"A", 2)]
        finally:
            workers.close()

    def test_error_that_cannot_be_pickled_is_reported(self) -> None:
        workers = MatchWorkers(bytes.upper, fail)
        try:
            with pytest.raises(MatcherError, match=r"a worker failed: Unsendable\('no no'\)"):
                workers.ask([b"a"], "no")
        finally:
            workers.close()

    def test_workers_end_with_their_owner(self) -> None:
        workers = MatchWorkers(bytes.upper, answer)
        workers.ask([b"a"], 1)
        (worker,) = workers._running
        assert worker is not None
        process = worker.process
        del workers
        gc.collect()
        assert process.exitcode == 0
