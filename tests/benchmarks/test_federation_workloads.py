"""The counts of the federation benchmark."""

from __future__ import annotations

from random import Random

from benchmarks.federation import workloads
from benchmarks.federation.brokers import Brokers
from tidegate import Filter
from tidegate.federation.routes import STRATEGIES


def test_every_strategy_reaches_every_subscriber_and_only_flooding_reaches_more() -> None:
    events = [workloads.event(Random(n)) for n in range(50)]
    origins = [f"b{n % workloads.BROKERS}" for n in range(50)]
    counts = {}
    for name in STRATEGIES:
        rng = Random(1)
        brokers = Brokers(workloads.tree(rng), name, workloads.SCHEMA)
        for n in range(40):
            text = workloads.overlapping(rng) if n else "speed > 90"
            brokers.put(f"b{rng.randrange(workloads.BROKERS)}", {f"s{n}": Filter(text, workloads.SCHEMA)})
        crossed, excess, missed = brokers.traffic(events, origins)
        assert missed == 0
        assert (excess > 0) is (name == "flooding")
        counts[name] = brokers.entries(), brokers.messages, crossed
    assert counts["flooding"] == (0, 0, 50 * 9)
    assert counts["simple"][:2] == (40 * 9, 40 * 9)
    assert counts["merging"][0] < counts["covering"][0] < counts["identity"][0] <= 40 * 9
    assert len({crossed for name, (_, _, crossed) in counts.items() if name != "flooding"}) == 1
