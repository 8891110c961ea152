"""The papers' engines pass the matcher contract."""

from __future__ import annotations

from hypothesis import settings

from tests.conftest import LARGE_EXAMPLES
from tests.matching.contract import MatcherContract, MatcherMachine
from tidegate.matching import Matcher


class TestTree(MatcherContract):
    engine = "tree"
    few = 20


class TestCounting(MatcherContract):
    engine = "counting"
    few = 20


class TestImprovedTree(MatcherContract):
    engine = "improved-tree"
    few = 20


class ImprovedTreeMachine(MatcherMachine):
    engine = "improved-tree"


TestImprovedTreeMachine = ImprovedTreeMachine.TestCase
TestImprovedTreeMachine.settings = settings(max_examples=LARGE_EXAMPLES // 5, stateful_step_count=12, deadline=None)


def test_conjuncts_share_common_prefixes() -> None:
    shapes = {}
    for engine in ("tree", "improved-tree", "counting"):
        matcher = Matcher(engine=engine)
        matcher.add("r1", "speed > 60 AND vid = 'B17'")
        matcher.add("r2", "speed > 60 AND vid = 'C2'")
        matcher.add("r3", "vid = 'B17'")
        shapes[engine] = matcher.describe()["predicates"]
    # A tree shares the prefix speed > 60; a table of predicates shares vid = 'B17' as well.
    assert shapes == {"tree": 4, "improved-tree": 4, "counting": 3}
