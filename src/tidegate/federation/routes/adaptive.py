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
class Figures:
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
    >>> link.dropped(1)
    >>> link.is_coarse
    False
    """

    def __init__(self, settings: AdaptiveSettings) -> None:
        self.settings = settings
        self.figures = Figures()
        self.is_coarse = False
        self._seen = 0
        self._begin()

    def _begin(self) -> None:
        """A window: how many events were asked about, how many of them were unwanted, what it cost, what was sent."""
        self._asked = self._unwanted = self._sent = self._dropped = 0
        self._spent_s = 0.0

    def asks(self) -> bool:
        """Whether the table is to be asked about the next event; if not, `decide(None)` forwards it."""
        return not self.is_coarse or (self._seen + 1) % self.settings.sample == 0

    def decide(self, is_wanted: bool | None, spent_s: float = 0.0) -> bool:
        """Take what the table said of an event, and what it cost; say whether the event is forwarded."""
        figures = self.figures
        self._seen += 1
        is_sent = is_wanted is not False or self.is_coarse
        figures.forwarded += is_sent
        figures.stopped += not is_sent
        self._sent += is_sent
        if is_wanted is not None:
            figures.asked += 1
            figures.asking_s += spent_s
            figures.excess += is_sent and not is_wanted
            self._asked += 1
            self._unwanted += not is_wanted
            self._spent_s += spent_s
            self._judge()
        return is_sent

    def dropped(self, count: int) -> None:
        """The other side says how many of the events that it got nobody wanted."""
        self.figures.dropped += count
        self._dropped += count
        if self.is_coarse and self._dropped > self.settings.most_dropped * self._sent:
            self._turn()

    def _judge(self) -> None:
        """At the end of a window: what asking costs, beside what it saves."""
        settings = self.settings
        if self._asked < (max(1, settings.window // settings.sample) if self.is_coarse else settings.window):
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
