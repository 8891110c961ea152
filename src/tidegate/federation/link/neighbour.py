"""The state of one link, up or down: offers, mirrors and forwarders of the neighbour, and its session."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tidegate.federation.link.forwarder import Forwarder, ResumePoint
from tidegate.federation.link.mirror import Mirror, Progress
from tidegate.federation.link.offers import Remote
from tidegate.federation.link.record_matcher import RecordMatcher
from tidegate.federation.link.session import Session
from tidegate.registry import Link, LinkStateKey
from tidegate.timing import NO_JITTER, Backoff

LinkState = Literal["down", "up", "refused"]
REFUSALS = ("name", "conflict", "signature", "record", "fault")
"""The reasons under which refused input of a neighbour is counted."""


@dataclass(slots=True)
class LinkFigures:
    """Counters of one link since this broker started. The API shows them under these names."""

    forwarded: int = 0
    stopped: int = 0
    """Events that were not sent, since no filter behind the link requests them."""
    received: int = 0
    dropped: int = 0
    """Events that were received although no filter here or behind us requests them."""
    repeated: int = 0
    """Events that were received again, after a break."""
    said: int = 0
    """Control messages that were sent."""
    heard: int = 0
    """Control messages that were received."""
    gaps: int = 0
    sessions: int = 0


@dataclass(slots=True, eq=False)
class Neighbour:
    """The broker at the other end of a link. Used on the event loop only."""

    link: Link
    state: LinkState = "down"
    problem: str | None = None
    """Why the link is not up."""
    ended: LinkFigures = field(default_factory=LinkFigures)
    """Counters of ended sessions and stopped forwarders, and of everything received; see `figures`."""
    unsaved: dict[LinkStateKey, str | None] = field(default_factory=dict)
    """Documents that `LinkStore` writes next. None removes one."""

    # Session
    session: Session | None = None
    session_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the running session."""
    is_dialled: bool = False
    """True if we opened the session."""
    dialling: asyncio.Task[None] | None = None
    faults: int = 0
    """Consecutive sessions that ended because the neighbour broke the protocol."""
    blocked_until: float = 0.0
    """When the neighbour may come back after such a session, by the loop's clock."""
    refusals: Counter[str] = field(default_factory=Counter)
    """How often input of the neighbour was refused, by `REFUSALS`."""

    # Offers
    offers: dict[str, Remote] = field(default_factory=dict)
    """The accepted offers of the neighbour, by service."""
    conflicts: dict[str, Remote] = field(default_factory=dict)
    """Offers of services that another link has offered first. Believed once that link has withdrawn them."""
    refused: dict[str, str] = field(default_factory=dict)
    """Refused offers, with the reason, by service."""
    received_offers: list[dict[str, Any]] = field(default_factory=list)
    """The neighbour's last offers, accepted or not."""
    offers_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while offers are judged: older ones must not replace newer ones."""
    sent_offers: list[dict[str, Any]] | None = None
    """The offers that we sent in this session."""

    # Events to the neighbour
    forwarders: dict[str, Forwarder] = field(default_factory=dict)
    resume_points: dict[str, ResumePoint] = field(default_factory=dict)
    """Where its mirrors of our services continue, as its `resume` has said in this session."""
    unconfirmed_starts: dict[str, ResumePoint] = field(default_factory=dict)
    """Where forwarding had started when the session ended before the neighbour confirmed anything."""
    has_resumed: bool = False
    """True once the neighbour has sent `resume` in this session."""
    has_sent_resume: bool = False
    """True once we have sent `resume` in this session."""
    stale_routes: set[str] = field(default_factory=set)
    """Services whose requested filters have changed since they were saved."""

    # Events of the neighbour
    mirrors: dict[str, Mirror] = field(default_factory=dict)
    """Open mirrors."""
    saved_progress: dict[str, Progress] = field(default_factory=dict)
    """Progress of mirrors that are not open."""
    stale_mirrors: set[str] = field(default_factory=set)
    """Mirrors whose progress has changed since it was saved."""
    record_matchers: dict[str, RecordMatcher] = field(default_factory=dict)
    """The filters that we have requested, by service, once unfiltered events have come."""
    matcher_versions: dict[str, int] = field(default_factory=dict)
    """The version of the requested table that each matcher has."""

    # History
    awaited_pages: dict[int, asyncio.Future[tuple[dict[str, Any], list[bytes]]]] = field(default_factory=dict)
    """Our requests that the neighbour has not answered, by id."""
    owed_pages: int = 0
    """Requests of the neighbour that we have not answered."""
    relay_slots: asyncio.Semaphore | None = None
    """Limits the pages that we request elsewhere on the neighbour's behalf."""
    history_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a page is read for the neighbour, so that its requests use one thread at most."""

    def __post_init__(self) -> None:
        if self.link.url is None:
            self.problem = f"{self.name} has not dialled yet, and its URL is not known here"

    @property
    def name(self) -> str:
        """The name of the neighbour's broker."""
        return self.link.name

    def begin_session(self, session: Session, *, is_dialled: bool) -> None:
        """Reset everything that holds for one session only."""
        self.session, self.is_dialled = session, is_dialled
        self.state, self.problem = "up", None
        self.resume_points, self.has_resumed, self.has_sent_resume = {}, False, False
        self.sent_offers = None
        self.ended.sessions += 1

    def back_off(self, now: float, first_s: float, max_s: float) -> None:
        """Block the neighbour for a while after it broke the protocol, twice as long each time."""
        self.refusals["fault"] += 1
        self.faults += 1
        self.blocked_until = now + Backoff(first_s, max_s, NO_JITTER).delay_s(self.faults)

    def progress(self, service: str) -> Progress:
        """Return the progress of a mirror, open or not."""
        mirror = self.mirrors.get(service)
        if mirror is None:
            return self.saved_progress.get(service, Progress())
        return Progress(mirror.upstream, mirror.marks)

    def restart_mirror(self, service: str) -> None:
        """Let a mirror without requested filters continue with new events when one is requested again."""
        mirror = self.mirrors.get(service)
        if mirror is not None:
            mirror.upstream = None
            self.stale_mirrors.add(service)
        elif self.saved_progress.get(service, Progress()).upstream is not None:
            self.saved_progress[service] = replace(self.saved_progress[service], upstream=None)
            self.unsaved["mirror", service] = self.saved_progress[service].to_json()

    def resume_point(self, service: str) -> ResumePoint:
        """Return where forwarding a service continues: as the neighbour said, else where it had started unconfirmed."""
        point, unconfirmed = self.resume_points.pop(service, ResumePoint()), self.unconfirmed_starts.pop(service, None)
        return point if point.cursor is not None or unconfirmed is None else unconfirmed

    def stop(self, service: str) -> ResumePoint | None:
        """Stop the forwarder of a service. Returns where another would continue. None: there was no forwarder."""
        forwarder = self.forwarders.pop(service, None)
        if forwarder is None:
            return None
        forwarder.close()
        if forwarder.is_confirmed:
            self.unconfirmed_starts.pop(service, None)
        elif forwarder.first is not None:
            self.unconfirmed_starts.setdefault(service, ResumePoint(forwarder.first))
        self.ended.forwarded += forwarder.forwarded
        self.ended.stopped += forwarder.stopped
        self.ended.gaps += forwarder.gaps
        return forwarder.rest

    def figures(self) -> LinkFigures:
        """Return the counters, with those of the running session and forwarders."""
        figures = replace(self.ended)
        for forwarder in self.forwarders.values():
            figures.forwarded += forwarder.forwarded
            figures.stopped += forwarder.stopped
            figures.gaps += forwarder.gaps
        if self.session is not None:
            figures.said += self.session.sent
            figures.heard += self.session.received
        return figures

    def resume(self, services: Iterable[str]) -> dict[str, Any]:
        """Return the `resume` message that says where our mirrors of these services continue."""
        points = {}
        for service in services:
            progress = self.progress(service)
            points[service] = {"cursor": progress.upstream, "marks": dict(progress.marks)}
        return {"type": "resume", "services": points}
