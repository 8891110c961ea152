"""One broker of a federation: takes changes and messages, gives the messages that follow.

Links make no loop, so whatever is asked for over one link is asked for over all others, as far
as the strategy thinks it must be. Every change puts before it drops, in each table in one step:
an event never meets a table that has lost something still needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from tidegate.errors import FederationError, LinkRefused, did_you_mean
from tidegate.federation.routes.adaptive import Adaptive, AdaptiveSettings
from tidegate.federation.routes.messages import Hello, Message, Path, Reach, Refusal, State, Table, Update
from tidegate.federation.routes.strategies import STRATEGIES
from tidegate.federation.routes.table import Incoming, Outgoing
from tidegate.federation.routes.topology import MAX_HOPS, MAX_PATHS, greatest_link, loop_by, paths_for
from tidegate.filters import Filter


class Sent(NamedTuple):
    """A message for a neighbour."""

    to: str
    message: Message


class _Link:
    """A neighbour: what we asked it for, what it asked us for."""

    def __init__(self) -> None:
        self.is_open = False
        """Whether it has said what it has since the link came up; before, nothing is said to it."""
        self.outgoing: dict[str, Outgoing] = {}
        self.incoming: dict[str, Incoming] = {}
        self.filtering: dict[str, Adaptive] = {}
        """Whether events of a service are filtered on their way there."""
        self.told: tuple[Path, ...] = ()
        """Whom it knows to reach by us."""

    def close(self) -> None:
        """It is down, or up anew: questions and answers that were under way are gone."""
        self.is_open = False
        for incoming in self.incoming.values():
            incoming.is_asking = False
        for outgoing in self.outgoing.values():
            outgoing.theirs = None


class Broker:
    """The routes of one broker.

    >>> here, there = Broker("here"), Broker("there")
    >>> for to, hello in here.connect("there") + there.connect("here"):
    ...     _ = (here if to == "here" else there).receive("there" if to == "here" else "here", hello)
    >>> (asked,) = here.subscribe("gps", "s1", Filter("speed > 60"))
    >>> here.subscribe("gps", "s2", Filter("speed > 80"))  # covered: nothing to say
    []
    >>> there.receive("here", asked.message)
    []
    >>> there.towards("gps", {"speed": 70})
    ['here']
    """

    def __init__(
        self,
        name: str,
        strategy: str = "covering",
        leads: Callable[[str, str], bool] = lambda _, __: True,
        adaptive: AdaptiveSettings | None = None,
    ) -> None:
        """`leads` says whether events of a service may come from a neighbour: others are not asked for it."""
        if strategy not in STRATEGIES:
            hint = did_you_mean(strategy, STRATEGIES) or f"; expected one of {', '.join(STRATEGIES)}"
            raise FederationError(f"unknown strategy {strategy!r}{hint}")
        self.name, self.strategy, self._leads = name, strategy, leads
        self.adaptive = adaptive
        """When a link filters more or less than all; None: always all."""
        self.refused: dict[str, Path] = {}
        """Links that were given up, with the loop that each would have closed."""
        self._numbers = count(1)
        self._floods = STRATEGIES[strategy](self._numbers.__next__).floods
        self._local: dict[str, dict[str, int]] = {}
        self._filters: dict[int, Filter] = {}
        """All filters that are needed here, own and neighbours', by number."""
        self._links: dict[str, _Link] = {}
        self._paths: dict[str, tuple[Path, ...]] = {}
        """Whom we reach over each link."""

    # Own subscriptions -----------------------------------------------------------

    def subscribe(self, service: str, subscription: str, filter_: Filter) -> list[Sent]:
        """Take a subscription under an id that is not in use."""
        if subscription in self._local.get(service, ()):
            raise FederationError(f"subscription {subscription!r} of {service!r} is there already; change it")
        return self.set_all(service, {subscription: filter_})

    def change(self, service: str, subscription: str, filter_: Filter) -> list[Sent]:
        """Give a subscription another filter, or other parameters: what both match is never missed."""
        self._require(service, subscription)
        return self.set_all(service, {subscription: filter_})

    def unsubscribe(self, service: str, subscription: str) -> list[Sent]:
        """Forget a subscription."""
        self._require(service, subscription)
        return self.set_all(service, {subscription: None})

    def set_all(self, service: str, filters: Mapping[str, Filter | None]) -> list[Sent]:
        """Take, change and, by None, forget many subscriptions in one step."""
        local = self._local.setdefault(service, {})
        drop = [local.pop(each) for each in filters if each in local]
        put = {next(self._numbers): (name, each) for name, each in filters.items() if each is not None}
        local.update((name, number) for number, (name, _) in put.items())
        return self._changed(service, {number: each for number, (_, each) in put.items()}, drop, None)

    def _require(self, service: str, subscription: str) -> None:
        local = self._local.get(service, {})
        if subscription not in local:
            raise FederationError(f"no subscription {subscription!r} of {service!r}{did_you_mean(subscription, local)}")

    # Links -----------------------------------------------------------------------

    def connect(self, neighbour: str) -> list[Sent]:
        """A link is up, new or again: say what we have of it. A new one that would close a loop is refused."""
        self.check(neighbour)
        self.refused.pop(neighbour, None)
        if neighbour not in self._links:
            self._begin(neighbour)
        self._links[neighbour].close()
        return [self._hello(neighbour)]

    def check(self, neighbour: str) -> None:
        """Refuse a new link that would close a loop."""
        if neighbour == self.name:
            raise LinkRefused((self.name, self.name))
        loop = loop_by(self.name, self._paths, neighbour, [(neighbour,)])
        if neighbour not in self._links and loop is not None:
            raise LinkRefused(loop, loop[-2], is_up=self._links[loop[-2]].is_open)

    def _begin(self, neighbour: str) -> _Link:
        self._links[neighbour] = link = _Link()
        for service in self._services():
            self._outgoing(link, neighbour, service)
        return link

    def disconnect(self, neighbour: str) -> None:
        """A link is down for a while: both ends keep what they have, and go on from there."""
        self._link(neighbour).close()

    def forget(self, neighbour: str) -> list[Sent]:
        """A link is gone for good: nothing is needed for it any more."""
        link = self._link(neighbour)
        del self._links[neighbour]
        self._paths.pop(neighbour, None)
        sent = self._reach()
        for service, incoming in link.incoming.items():
            sent += self._changed(service, {}, list(incoming.needs.values()), neighbour)
        return sent

    def restore(self, neighbour: str, tables: Iterable[Table]) -> None:
        """Take up, before anything else is said of a link, what its neighbour had asked for in an earlier life."""
        link = self._links.get(neighbour) or self._begin(neighbour)
        for table in tables:
            incoming = link.incoming.setdefault(table.service, Incoming())
            self._taken(incoming, neighbour, Update(table.service, table.state, *incoming.differences(table)))

    def reconsider(self, service: str) -> list[Sent]:
        """`leads` may say otherwise of a service: ask who is to be asked now, and ask others no more."""
        sent = []
        for neighbour, link in self._links.items():
            outgoing = self._outgoing(link, neighbour, service)
            leads = self._leads(service, neighbour)
            if outgoing.is_led == leads:
                continue
            outgoing.is_led = leads
            needed = dict(self._needed_filters(service, neighbour))
            update = outgoing.change(needed, ()) if leads else outgoing.change({}, list(needed))
            sent += self._said(link, neighbour, outgoing, update)
        return sent

    def tables(self, neighbour: str) -> list[Table]:
        """All that a neighbour has asked us for."""
        return [self.table(service, neighbour) for service in self._link(neighbour).incoming]

    def table(self, service: str, neighbour: str) -> Table:
        """What a neighbour has asked us for of a service."""
        incoming = self._link(neighbour).incoming.get(service, Incoming())
        return Table(service, incoming.state, tuple(incoming.entries.values()))

    def asked_sizes(self, neighbour: str) -> dict[str, tuple[int, int]]:
        """Return how many filters a neighbour has asked us for of each service, and their characters."""
        incoming = self._link(neighbour).incoming
        return {service: (len(each.entries), each.size_bytes) for service, each in incoming.items()}

    def reaches(self, neighbour: str) -> tuple[Path, ...]:
        """Whom we reach over a link, by which way."""
        return self._paths.get(neighbour, ())

    @property
    def links(self) -> list[str]:
        """The neighbours."""
        return list(self._links)

    def _link(self, neighbour: str) -> _Link:
        link = self._links.get(neighbour)
        if link is None:
            raise FederationError(f"{self.name} has no link to {neighbour!r}{did_you_mean(neighbour, self._links)}")
        return link

    def _hello(self, neighbour: str) -> Sent:
        link = self._links[neighbour]
        link.told = paths_for(self.name, self._paths, neighbour)
        tables = {service: incoming.state for service, incoming in link.incoming.items()}
        return Sent(neighbour, Hello(tables, link.told))

    def hello(self, neighbour: str) -> list[Sent]:
        """Ask a neighbour whether anything is missing, as a heartbeat may."""
        self._link(neighbour)
        return [self._hello(neighbour)]

    # Messages --------------------------------------------------------------------

    def receive(self, neighbour: str, message: Message) -> list[Sent]:
        """Take a message of a neighbour; what was under way on a link that was given up says nothing."""
        if neighbour in self.refused:
            return []
        link = self._link(neighbour)
        match message:
            case Hello(tables, paths):
                return self._greeted(link, neighbour, tables, paths)
            case Update():
                return self._updated(link, neighbour, message)
            case Table():
                incoming = link.incoming.setdefault(message.service, Incoming())
                incoming.is_asking = False
                add, remove = incoming.differences(message)
                return self._taken(incoming, neighbour, Update(message.service, message.state, add, remove))
            case Reach(paths):
                return self._reached(neighbour, paths)
            case Refusal(loop):
                self.refused[neighbour] = loop
                return self.forget(neighbour)

    def _greeted(self, link: _Link, neighbour: str, tables: Mapping[str, State], paths: tuple[Path, ...]) -> list[Sent]:
        is_first, link.is_open = not link.is_open, True
        sent = self._reached(neighbour, paths)
        if neighbour not in self._links:
            return sent
        for service in sorted(tables.keys() | link.outgoing.keys()):
            outgoing = self._outgoing(link, neighbour, service)
            theirs = tables.get(service, State())
            if outgoing.is_behind and (is_first or outgoing.theirs is not None):
                outgoing.theirs = theirs  # it may have all of an earlier life: a part would take the rest from it
            else:
                sent += [Sent(neighbour, each) for each in outgoing.since(theirs)]
        return sent

    def _said(self, link: _Link, neighbour: str, outgoing: Outgoing, update: Update | None) -> list[Sent]:
        """What a neighbour is told when its table has taken a step."""
        if not link.is_open or (outgoing.theirs is not None and outgoing.is_behind):
            return []
        if outgoing.theirs is None:
            return [] if update is None else [Sent(neighbour, update)]
        theirs, outgoing.theirs = outgoing.theirs, None
        return [Sent(neighbour, each) for each in outgoing.since(theirs)]

    def _updated(self, link: _Link, neighbour: str, update: Update) -> list[Sent]:
        incoming = link.incoming.setdefault(update.service, Incoming())
        if incoming.takes(update):
            incoming.is_asking = False
            return self._taken(incoming, neighbour, update)
        if incoming.is_asking or update.state.version <= incoming.state.version:
            return []
        incoming.is_asking = True
        return [self._hello(neighbour)]

    def _taken(self, incoming: Incoming, neighbour: str, update: Update) -> list[Sent]:
        """Make a step of a neighbour's table ours, and tell the others what they must know of it."""
        drop = [incoming.needs.pop(number) for number in update.remove]
        for number in update.remove:
            incoming.size_bytes -= len(incoming.entries.pop(number).text)
        incoming.size_bytes += sum(len(each.text) for each in update.add)
        put = {next(self._numbers): each for each in update.add}
        incoming.entries.update((each.number, each) for each in update.add)
        incoming.needs.update((each.number, number) for number, each in put.items())
        incoming.state = update.state
        return self._changed(update.service, {number: each.filter for number, each in put.items()}, drop, neighbour)

    def _changed(self, service: str, put: Mapping[int, Filter], drop: Iterable[int], source: str | None) -> list[Sent]:
        drop = list(drop)
        sent = []
        for neighbour, link in self._links.items():
            if neighbour == source:
                continue
            outgoing = self._outgoing(link, neighbour, service)
            if outgoing.is_led:
                sent += self._said(link, neighbour, outgoing, outgoing.change(put, drop))
        self._filters.update(put)
        for number in drop:
            del self._filters[number]
        return sent

    def _outgoing(self, link: _Link, neighbour: str, service: str) -> Outgoing:
        """A link's table, made with all that is needed by others when it is first asked for."""
        found = link.outgoing.get(service)
        if found is None:
            strategy = STRATEGIES[self.strategy](self._numbers.__next__)
            found = link.outgoing[service] = Outgoing(service, strategy)
            found.is_led = self._leads(service, neighbour)
            if found.is_led:
                found.change(self._needed_filters(service, neighbour), ())
        return found

    def _needed_filters(self, service: str, besides: str) -> dict[int, Filter]:
        needed = {n: self._filters[n] for n in self._needed(service, besides) if n in self._filters}
        return dict(sorted(needed.items()))

    def _needed(self, service: str, besides: str) -> Iterator[int]:
        yield from self._local.get(service, {}).values()
        for neighbour, link in self._links.items():
            if neighbour != besides and service in link.incoming:
                yield from link.incoming[service].needs.values()

    def _services(self) -> list[str]:
        return sorted({*self._local, *(service for link in self._links.values() for service in link.incoming)})

    # Work that is left -----------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether a change left something to do: a table has more than it must, or not yet all, until `work` did it."""
        return any(each.pending for link in self._links.values() for each in link.outgoing.values())

    def work(self) -> list[Sent]:
        """Take a step of what is pending, in one table; to be called while `pending`, whenever there is time.

        Changes do so too, for the table that they touch. Nothing is missed meanwhile.
        """
        for neighbour, link in self._links.items():
            for outgoing in link.outgoing.values():
                if outgoing.pending:
                    return self._said(link, neighbour, outgoing, outgoing.work())
        return []

    # Loops -----------------------------------------------------------------------

    def _reached(self, neighbour: str, paths: tuple[Path, ...]) -> list[Sent]:
        """A neighbour says whom we reach by it.

        `connect` has refused every loop that was known. One that shows now was closed by links that came up
        at once: all brokers on it name the same link, and its ends give it up. A neighbour may lie, now
        or before: a link is given up only where its other end tells of the same loop, that is, reaches the neighbour by
        whom the loop comes back to us. What is said of our own links we know better.
        """
        _check_paths(neighbour, paths)
        paths = tuple(path for path in paths if self.name not in path or path[path.index(self.name) - 1] in self._links)
        loop = loop_by(self.name, self._paths, neighbour, paths)
        self._paths[neighbour] = tuple(path for path in paths if self.name not in path)
        ends = () if loop is None else greatest_link(loop)
        other = next((end for end in ends if end != self.name), self.name)
        if loop is None or self.name not in ends or other not in self._links:
            return self._reach()
        told = paths if other == neighbour else self._paths.get(other, ())
        if not any((loop[-2] if other == loop[1] else loop[1]) in path for path in told):
            return self._reach()
        self.refused[other] = loop
        return [Sent(other, Refusal(loop)), *self.forget(other)]

    def _reach(self) -> list[Sent]:
        """Tell those neighbours for whom it changed whom they reach by us."""
        sent = []
        for neighbour, link in self._links.items():
            paths = paths_for(self.name, self._paths, neighbour)
            if link.is_open and paths != link.told:
                link.told = paths
                sent.append(Sent(neighbour, Reach(paths)))
        return sent

    # Events ----------------------------------------------------------------------

    def towards(self, service: str, event: Mapping[str, Any], source: str | None = None) -> list[str]:
        """The neighbours that an event goes to, never back to the one it came from.

        Asks each filter in turn; a matcher over `routes` does so for many, and `filtering` says whether it must.
        """
        return [each for each in self._links if each != source and (self._floods or self._goes(service, event, each))]

    def _goes(self, service: str, event: Mapping[str, Any], neighbour: str) -> bool:
        policy, routes = self.filtering(service, neighbour), self.routes(service, neighbour).values()
        if policy is None:
            return any(may_match(each, event) for each in routes)
        if not policy.asks():
            return policy.decide(None)
        asked = next((n for n, each in enumerate(routes, 1) if may_match(each, event)), 0)
        return policy.decide(bool(asked), (asked or len(routes)) * policy.settings.asking_s)

    def filtering(self, service: str, neighbour: str) -> Adaptive | None:
        """Whether events are filtered on their way to a neighbour, and the figures; None: always, or asked for none.

        Who matches by other means than `towards` asks it first, tells it what that cost, and does as it says.
        """
        link = self._link(neighbour)
        if self.adaptive is None or service not in link.incoming or not link.incoming[service].entries:
            return None
        if service not in link.filtering:
            link.filtering[service] = Adaptive(self.adaptive)
        return link.filtering[service]

    def filterings(self, neighbour: str) -> dict[str, Adaptive]:
        """By service, how what goes to a neighbour is or was filtered since its link is there."""
        return dict(self._link(neighbour).filtering)

    def routes(self, service: str, neighbour: str) -> dict[int, Filter]:
        """What a neighbour has asked us for."""
        incoming = self._link(neighbour).incoming.get(service)
        return {} if incoming is None else {number: each.filter for number, each in incoming.entries.items()}

    def asked(self, service: str, neighbour: str) -> dict[int, Filter]:
        """What we have asked a neighbour for, or will when its link is up."""
        outgoing = self._link(neighbour).outgoing.get(service)
        return {} if outgoing is None else {number: each.filter for number, each in outgoing.entries.items()}

    def is_asked(self, service: str, neighbour: str) -> bool:
        """Whether we have asked a neighbour for anything of a service."""
        outgoing = self._link(neighbour).outgoing.get(service)
        return outgoing is not None and (outgoing.is_behind or bool(outgoing.entries))

    def asked_version(self, service: str, neighbour: str) -> int:
        """Of what we have asked a neighbour for: another where that is another."""
        return self._link(neighbour).outgoing[service].state.version

    def is_wanted(self, service: str, neighbour: str) -> bool:
        """Whether a neighbour has asked us for anything of a service."""
        link = self._links.get(neighbour)
        return link is not None and service in link.incoming and bool(link.incoming[service].entries)

    def asks(self, neighbour: str) -> list[str]:
        """The services that a neighbour has asked us for anything of."""
        return [service for service, each in self._link(neighbour).incoming.items() if each.entries]

    def is_in_step(self, service: str, neighbour: str) -> bool:
        """Whether, since a link came up, its other end knows all that we ask for, and nothing of its own is missing."""
        link = self._links.get(neighbour)
        if link is None or not link.is_open:
            return False
        incoming, outgoing = link.incoming.get(service), link.outgoing.get(service)
        return not (incoming is not None and incoming.is_asking) and not (outgoing is not None and outgoing.is_behind)

    def has_answered(self, neighbour: str) -> bool:
        """Whether a neighbour, since its link came up, has said what it has, and was told all that it had missed."""
        link = self._links.get(neighbour)
        return link is not None and link.is_open and all(each.theirs is None for each in link.outgoing.values())

    def local(self, service: str) -> dict[str, Filter]:
        """Our own subscriptions."""
        return {name: self._filters[number] for name, number in self._local.get(service, {}).items()}

    def states(self, neighbour: str) -> dict[str, State]:
        """How far we have a neighbour's tables."""
        return {service: each.state for service, each in self._link(neighbour).incoming.items()}


def _check_paths(neighbour: str, paths: tuple[Path, ...]) -> None:
    """Refuse what can't be the ways of a neighbour."""
    if len(paths) > MAX_PATHS:
        raise FederationError(f"expected at most {MAX_PATHS:,} brokers behind {neighbour!r}, not {len(paths):,}")
    for path in paths:
        if len(path) > MAX_HOPS:
            raise FederationError(f"expected ways of at most {MAX_HOPS} brokers from {neighbour!r}, not {len(path):,}")
        if path[:1] != (neighbour,) or len(set(path)) < len(path):
            raise FederationError(f"expected ways from {neighbour!r} to others, each once, not {list(path)!r:.120}")


def may_match(filter_: Filter, event: Mapping[str, Any]) -> bool:
    """Whether an event matches, or nobody here can tell: likeness of meaning without a space is forwarded."""
    return filter_.tree.is_semantic or filter_.matches(event)
