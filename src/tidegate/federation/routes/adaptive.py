"""Whether filtering what goes over a link is worth its cost: counters in, a decision out.

A table says which events a neighbour wants. To ask it costs time for every event, and saves the
crossing of those that it stops. Where it stops little, as when nearly everything is wanted, a link does
better to forward all of a service and let the other side drop the rest: it is *coarse*. Then a sample is
still asked, so that it shows when asking would pay again, and what the other side says it dropped counts.
Coarse forwards more than is wanted, never less: whatever is decided, no delivery is lost.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """When to coarsen and when to tighten."""

    crossing_s: float = 50e-6
    """What an event costs that crosses a link for nothing: written, sent, read and dropped."""
    asking_s: float = 0.5e-6
    """What it costs to ask one filter, where nobody measures it."""
    window: int = 1000
    """Events that are asked about before a decision; the next one begins anew."""
    sample: int = 32
    """Of so many events a coarse link asks about one."""
    margin: float = 1.5
    """How much more the one must cost than the other: a link on the edge does not change to and fro."""
    most_dropped: float = 0.5
    """The share of what it forwards that the other side may drop before a coarse link tightens at once."""


@dataclass(slots=True)
class FilterFigures:
    """What a link has done for one service, since it is there."""

    forwarded: int = 0
    stopped: int = 0
    """Events that nobody behind wanted, and that were not sent."""
    asked: int = 0
    """Events that the table was asked about."""
    asking_s: float = 0.0
    excess: int = 0
    """Events that were forwarded though the table said no, as far as it was asked."""
    dropped: int = 0
    """Events that the other side says nobody wanted."""
    coarsened: int = 0
    tightened: int = 0


class Adaptive:
    """Decides for one link and service whether events are filtered.

    >>> link = Adaptive(AdaptiveSettings(window=10))
    >>> for _ in range(10):
    ...     _ = link.decide(True, spent_s=20e-6)  # everything is wanted: asking is in vain
    >>> link.is_coarse, link.decide(None)
    (True, True)
    >>> link.dropped(1, of=1)
    >>> link.is_coarse
    False
    """

    def __init__(self, settings: AdaptiveSettings) -> None:
        self.settings = settings
        self.figures = FilterFigures()
        self.is_coarse = False
        self._seen = 0
        self._begin()

    def _begin(self) -> None:
        """A window: events that were asked about, and unwanted; that the other side took, and dropped; the cost."""
        self._asked = self._unwanted = self._taken = self._dropped = 0
        self._spent_s = 0.0

    def asks(self) -> bool:
        """Whether the table is to be asked about the next event; if not, `decide(None)` forwards it."""
        return bool(self.asked_of(1))

    def asked_of(self, count: int) -> range:
        """Which of the next so many events the table is to be asked about, by their place among them."""
        sample = self.settings.sample
        return range(-(self._seen + 1) % sample, count, sample) if self.is_coarse else range(count)

    def decide(self, is_wanted: bool | None, spent_s: float = 0.0) -> bool:
        """Take what the table said of an event, and what it cost; say whether the event is forwarded."""
        is_sent = is_wanted is not False or self.is_coarse
        self.decide_all(1, int(is_wanted is not None), int(is_wanted is False), spent_s)
        return is_sent

    def decide_all(self, count: int, asked: int, unwanted: int, spent_s: float) -> bool:
        """The same of many events at once, of which some were asked about; say whether all are forwarded.

        If not, those are which the table wants.
        """
        figures, is_coarse = self.figures, self.is_coarse
        stopped = 0 if is_coarse else unwanted
        self._seen += count
        figures.forwarded += count - stopped
        figures.stopped += stopped
        figures.asked += asked
        figures.asking_s += spent_s
        figures.excess += unwanted - stopped
        self._asked += asked
        self._unwanted += unwanted
        self._spent_s += spent_s
        if asked:
            self._judge()
        return is_coarse

    def dropped(self, count: int, of: int) -> None:
        """The other side says how many of the events that it got last nobody wanted."""
        self.figures.dropped += count
        self._dropped += count
        self._taken += of
        is_much = self._dropped > self.settings.most_dropped * self._taken
        if self.is_coarse and is_much and self._taken >= self._enough:
            self._turn()

    @property
    def _enough(self) -> int:
        """Events that say something of a coarse link: the first few may be unwanted by chance."""
        return max(1, self.settings.window // self.settings.sample)

    def _judge(self) -> None:
        """At the end of a window: what asking costs, beside what it saves."""
        settings = self.settings
        if self._asked < (self._enough if self.is_coarse else settings.window):
            return
        saved_s = self._unwanted * settings.crossing_s
        dear, cheap = (saved_s, self._spent_s) if self.is_coarse else (self._spent_s, saved_s)
        if dear > settings.margin * cheap:
            self._turn()
        else:
            self._begin()

    def _turn(self) -> None:
        self.is_coarse = not self.is_coarse
        self.figures.coarsened += self.is_coarse
        self.figures.tightened += not self.is_coarse
        self._begin()
