"""Decides per link and service whether filtering events before they are sent is worth its cost.

Matching an event against a neighbour's table costs time, and saves the transfer of events that the neighbour has not
requested. If nearly all events are requested, matching costs more than it saves. Then the link becomes *coarse*: it
forwards all events of the service, and the neighbour drops those that it does not need. A coarse link still matches a
sample of the events, and counts how many the neighbour reports as dropped, so that it notices when filtering pays
again. A coarse link forwards more events than requested, never fewer: no decision loses a delivery.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """When a link becomes coarse, and when it filters again."""

    crossing_s: float = 50e-6
    """Cost of an event that is sent in vain: encoding, transfer, decoding and dropping it."""
    asking_s: float = 0.5e-6
    """Assumed cost of evaluating one filter. Used only by callers that do not measure it."""
    window: int = 1000
    """Number of matched events after which a filtering link decides. Each decision starts a new window."""
    sample: int = 32
    """A coarse link matches one in this many events."""
    margin: float = 1.5
    """How many times more expensive the current mode must be before it changes, so that it does not flap."""
    max_dropped_share: float = 0.5
    """If the neighbour drops a larger share of the forwarded events, a coarse link filters again at once."""


@dataclass(slots=True)
class FilterFigures:
    """Counters of one link and service since the link was added. The field names are part of the HTTP API."""

    forwarded: int = 0
    stopped: int = 0
    """Events that were not sent because they matched no filter of the neighbour."""
    asked: int = 0
    """Events that were matched against the neighbour's table."""
    asking_s: float = 0.0
    """Seconds spent on matching."""
    excess: int = 0
    """Events that were forwarded though they were matched and no filter matched."""
    dropped: int = 0
    """Events that the neighbour has reported as dropped."""
    coarsened: int = 0
    tightened: int = 0


class Adaptive:
    """The filter policy of one link and service. Not thread-safe.

    >>> policy = Adaptive(AdaptiveSettings(window=10))
    >>> for _ in range(10):
    ...     _ = policy.decide(True, spent_s=20e-6)  # every event matches: filtering saves nothing
    >>> policy.is_coarse, policy.decide(None)
    (True, True)
    >>> policy.report_dropped(1, of=1)
    >>> policy.is_coarse
    False
    """

    def __init__(self, settings: AdaptiveSettings) -> None:
        self.settings = settings
        self.figures = FilterFigures()
        self.is_coarse = False
        self._seen = 0
        self._start_window()

    def _start_window(self) -> None:
        """Reset the counters of the window: matched and unmatched events, confirmed and dropped ones, seconds."""
        self._asked = self._unmatched = self._confirmed = self._dropped = 0
        self._spent_s = 0.0

    def matches_next(self) -> bool:
        """True if the caller must match the next event. If not, it calls `decide(None)`, which forwards the event."""
        return bool(self.sample_of(1))

    def sample_of(self, count: int) -> range:
        """Return the positions, among the next `count` events, of those that the caller must match."""
        sample = self.settings.sample
        return range(-(self._seen + 1) % sample, count, sample) if self.is_coarse else range(count)

    def decide(self, is_match: bool | None, spent_s: float = 0.0) -> bool:
        """Count an event and return whether it is forwarded.

        `is_match` is None if the event was not matched; `spent_s` is the time that matching took.
        """
        is_forwarded = is_match is not False or self.is_coarse
        self.decide_all(1, int(is_match is not None), int(is_match is False), spent_s)
        return is_forwarded

    def decide_all(self, count: int, asked: int, unmatched: int, spent_s: float) -> bool:
        """Count many events: `asked` of them were evaluated, and `unmatched` of these matched no filter.

        Returns True if all events are forwarded, False if only those that match are.
        """
        figures, is_coarse = self.figures, self.is_coarse
        stopped = 0 if is_coarse else unmatched
        self._seen += count
        figures.forwarded += count - stopped
        figures.stopped += stopped
        figures.asked += asked
        figures.asking_s += spent_s
        figures.excess += unmatched - stopped
        self._asked += asked
        self._unmatched += unmatched
        self._spent_s += spent_s
        if asked:
            self._compare_costs()
        return is_coarse

    def report_dropped(self, count: int, of: int) -> None:
        """Count the events that the neighbour has dropped, out of the `of` events that it has confirmed."""
        self.figures.dropped += count
        self._dropped += count
        self._confirmed += of
        is_too_much = self._dropped > self.settings.max_dropped_share * self._confirmed
        if self.is_coarse and is_too_much and self._confirmed >= self._coarse_window:
            self._switch()

    @property
    def _coarse_window(self) -> int:
        """Number of events that a coarse link needs for a decision: the first few may be dropped by chance."""
        return max(1, self.settings.window // self.settings.sample)

    def _compare_costs(self) -> None:
        """At the end of a window, change the mode if the other one is clearly cheaper."""
        settings = self.settings
        if self._asked < (self._coarse_window if self.is_coarse else settings.window):
            return
        saved_s = self._unmatched * settings.crossing_s
        current_s, other_s = (saved_s, self._spent_s) if self.is_coarse else (self._spent_s, saved_s)
        if current_s > settings.margin * other_s:
            self._switch()
        else:
            self._start_window()

    def _switch(self) -> None:
        self.is_coarse = not self.is_coarse
        self.figures.coarsened += self.is_coarse
        self.figures.tightened += not self.is_coarse
        self._start_window()
