"""One link, up or down: what is known of its other end, and what goes each way while it is up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tidegate.federation.link.forwarder import Begin, Forwarder
from tidegate.federation.link.mirror import Mirror, Progress
from tidegate.federation.link.offers import Remote
from tidegate.federation.link.session import Session
from tidegate.federation.link.sieve import Sieve
from tidegate.registry import Kept, Link
from tidegate.timing import NO_JITTER, Backoff

State = Literal["down", "up", "refused"]
REFUSALS = ("name", "conflict", "signature", "record", "fault")
"""What is counted of what a neighbour has sent and is not believed."""


@dataclass(slots=True)
class Figures:
    """What has gone over a link since this broker began."""

    forwarded: int = 0
    stopped: int = 0
    """Events that were not sent, as nobody behind it wants them."""
    received: int = 0
    dropped: int = 0
    """Events that came though nobody here, or behind us, wants them."""
    repeated: int = 0
    """Events that came though they were here: after a break."""
    said: int = 0
    heard: int = 0
    gaps: int = 0
    sessions: int = 0


@dataclass(slots=True, eq=False)
class Neighbour:
    """A broker at the other end of a link."""

    link: Link
    state: State = "down"
    problem: str | None = None
    """Why the link is not up."""
    session: Session | None = None
    is_dialled: bool = False
    """Whether the session is one that we opened."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the session that lives."""
    offers: dict[str, Remote] = field(default_factory=dict)
    claims: dict[str, Remote] = field(default_factory=dict)
    """Conflicts: what it offers, too, but another has offered before. Believed once that link has withdrawn it."""
    judging: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while what it offers is read and judged: else what is older might be taken in last."""
    heard_offers: list[dict[str, Any]] = field(default_factory=list)
    """All that it has offered last, believed or not."""
    refused: dict[str, str] = field(default_factory=dict)
    """What it offers and is not believed, by name, with the reason."""
    refusals: Counter[str] = field(default_factory=Counter)
    """How often something of it was refused, by `REFUSALS`."""
    faults: int = 0
    """Sessions in a row that ended as it had sent what it must not."""
    wait_until: float = 0.0
    """When it may come back, by the loop's clock, after such a session."""
    relays: asyncio.Semaphore | None = None
    """Bounds the pages of history that are asked for elsewhere on its behalf."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a page of history is read for it: its questions cost others no more than one thread."""
    said_offers: list[dict[str, Any]] | None = None
    begins: dict[str, Begin] = field(default_factory=dict)
    """Where its mirrors of our services go on, as it has said since the link came up."""
    is_resumed: bool = False
    is_greeted: bool = False
    """Whether it has said, since the link came up, what it has of what we ask for, and heard the rest."""
    unheard: dict[str, Begin] = field(default_factory=dict)
    """Where services began of which it has not heard that they did, before the link broke."""
    forwarders: dict[str, Forwarder] = field(default_factory=dict)
    mirrors: dict[str, Mirror] = field(default_factory=dict)
    sieves: dict[str, Sieve] = field(default_factory=dict)
    """By service, what we have asked it for, once something has come that may be wanted by nobody."""
    judged: dict[str, int] = field(default_factory=dict)
    """The version of what we have asked for that each of these has."""
    kept: dict[str, Progress] = field(default_factory=dict)
    """How far mirrors have come that are not open."""
    asking: dict[int, asyncio.Future[tuple[dict[str, Any], list[bytes]]]] = field(default_factory=dict)
    """Pages of history that it was asked for."""
    answering: int = 0
    """Pages of history that it waits for."""
    unsaved: dict[Kept, str | None] = field(default_factory=dict)
    stale_routes: set[str] = field(default_factory=set)
    """Services of which what it asks for has changed since that was written down."""
    stale_mirrors: set[str] = field(default_factory=set)
    done: Figures = field(default_factory=Figures)
    """Of forwarders and sessions that are over."""
    dialling: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        if self.link.url is None:
            self.problem = f"{self.name} has not dialled yet, and its URL is not known here"

    @property
    def name(self) -> str:
        """Of the broker."""
        return self.link.name

    def need_patience(self, now: float, first_s: float, max_s: float) -> None:
        """Note that a session has ended by the neighbour's fault: the next may begin after a while."""
        self.refusals["fault"] += 1
        self.faults += 1
        self.wait_until = now + Backoff(first_s, max_s, NO_JITTER).delay_s(self.faults)

    def progress(self, service: str) -> Progress:
        """How far a mirror has come."""
        mirror = self.mirrors.get(service)
        if mirror is None:
            return self.kept.get(service, Progress())
        return Progress(mirror.there, mirror.marks)

    def begin_anew(self, service: str) -> None:
        """Nobody needs a service any more: whoever needs it next begins with what comes then."""
        mirror = self.mirrors.get(service)
        if mirror is not None:
            mirror.there = None
            self.stale_mirrors.add(service)
        elif self.kept.get(service, Progress()).there is not None:
            self.kept[service] = replace(self.kept[service], there=None)
            self.unsaved["mirror", service] = self.kept[service].to_json()

    def begin(self, service: str) -> Begin:
        """Where it goes on with a service, as it says; if it can't, where it would have."""
        said, unheard = self.begins.pop(service, Begin()), self.unheard.pop(service, None)
        return said if said.cursor is not None or unheard is None else unheard

    def stop(self, service: str) -> Begin | None:
        """Forward a service no more; give where it was."""
        forwarder = self.forwarders.pop(service, None)
        if forwarder is None:
            return None
        forwarder.close()
        if forwarder.is_known:
            self.unheard.pop(service, None)
        elif forwarder.first is not None:
            self.unheard.setdefault(service, Begin(forwarder.first))
        self.done.forwarded += forwarder.forwarded
        self.done.stopped += forwarder.stopped
        self.done.gaps += forwarder.gaps
        return forwarder.rest

    def figures(self) -> Figures:
        """All that has gone over it."""
        found = replace(self.done)
        for each in self.forwarders.values():
            found.forwarded += each.forwarded
            found.stopped += each.stopped
            found.gaps += each.gaps
        if self.session is not None:
            found.said += self.session.said
            found.heard += self.session.heard
        return found

    def resume(self, services: Iterable[str]) -> dict[str, Any]:
        """What we tell it: where its services go on."""
        found = {}
        for service in services:
            progress = self.progress(service)
            found[service] = {"cursor": progress.there, "marks": dict(progress.marks)}
        return {"type": "resume", "services": found}
