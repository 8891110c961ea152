"""Random changes of subscriptions, cursors and leases: the registry always agrees with a dict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.conftest import LARGE_EXAMPLES
from tests.registry.conftest import MakeStore
from tests.registry.test_definitions import CITY
from tidegate import NotRegistered, RegistryError, VersionConflict
from tidegate.model import timestamps
from tidegate.registry import open_registry
from tidegate.subscriptions import Pull, SubscriptionRecord, Webhook

IDS = st.sampled_from("abc")
CURSORS = st.sampled_from(["c1", "c2", "c3"])
SERVICES = st.sampled_from(["fast", "cars"])
RECORDS = st.builds(
    SubscriptionRecord,
    id=IDS,
    service=SERVICES,
    filter=st.sampled_from(["", "speed > 90"]),
    params=st.lists(st.none() | st.booleans() | st.integers() | st.text(max_size=2), max_size=2).map(tuple),
    deliver=st.just(Pull()) | st.builds(Webhook, st.just("https://a.b"), st.sampled_from([(), ("w1", "w2")])),
    select=st.none() | st.sampled_from([(), ("vid",)]),
    owner=st.none() | st.just("ann"),
)


class Model(RuleBasedStateMachine):
    """The model of a subscription is a dict of record, version, cursor, state, attempts and dead letters."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.now = 0
        self.registry = open_registry(where, clock=lambda: self.now)
        self.registry.apply(CITY)
        self.stored: dict[str, dict[str, Any]] = {}
        self.leases: dict[str, tuple[str, int]] = {}
        self.services = {"fast", "cars"}
        self.revision, self.definitions = 0, 1

    def teardown(self) -> None:
        self.registry.close()

    def is_refused(self, error: type[RegistryError], ask: Any, *arguments: Any) -> None:
        try:
            ask(*arguments)
        except error:
            return
        raise AssertionError(f"{ask.__name__} {arguments} was expected to be refused")

    def change(self, name: str, **values: Any) -> None:
        expected = self.stored[name]
        if any(expected[key] != value for key, value in values.items()):
            expected.update(values, version=expected["version"] + 1)
            self.revision += 1

    @rule(record=RECORDS, cursor=st.none() | CURSORS)
    def subscribe(self, record: SubscriptionRecord, cursor: str | None) -> None:
        if record.id in self.stored or record.service not in self.services:
            self.is_refused(RegistryError, self.registry.subscribe, record, cursor)
            return
        self.registry.subscribe(record, cursor)
        empty: dict[str, Any] = {"state": "active", "reason": None, "attempts": 0, "retry_at": None, "letters": []}
        self.stored[record.id] = {"record": record, "version": 1, "cursor": cursor, **empty}
        self.revision += 1

    @rule(record=RECORDS, version=st.none() | st.integers(1, 4))
    def change_subscription(self, record: SubscriptionRecord, version: int | None) -> None:
        if record.id not in self.stored:
            self.is_refused(NotRegistered, self.registry.change_subscription, record, version)
            return
        expected = self.stored[record.id]
        record = replace(record, service=expected["record"].service)
        if version not in (None, expected["version"]):
            self.is_refused(VersionConflict, self.registry.change_subscription, record, version)
            return
        self.registry.change_subscription(record, version)
        self.change(record.id, record=record)

    @rule(name=IDS, cursor=CURSORS)
    def acknowledge(self, name: str, cursor: str) -> None:
        if name not in self.stored:
            self.is_refused(NotRegistered, self.registry.acknowledge, name, cursor)
            return
        self.registry.acknowledge(name, cursor)
        self.stored[name]["cursor"] = cursor

    @rule(cursors=st.dictionaries(IDS, CURSORS))
    def acknowledge_all(self, cursors: dict[str, str]) -> None:
        self.registry.acknowledge_all(cursors)
        for name in self.stored.keys() & cursors.keys():
            self.stored[name]["cursor"] = cursors[name]

    @rule(name=IDS, attempts=st.integers(0, 3), retry_at=st.none() | st.integers(0, 100))
    def note_attempt(self, name: str, attempts: int, retry_at: int | None) -> None:
        if name in self.stored:
            moment = None if retry_at is None else timestamps.to_datetime(retry_at)
            self.registry.note_attempt(name, attempts, moment)
            self.stored[name].update(attempts=attempts, retry_at=moment)

    @rule(name=IDS, reason=st.sampled_from(["gone", "slow"]))
    def disable(self, name: str, reason: str) -> None:
        if name in self.stored:
            self.registry.disable(name, reason)
            self.change(name, state="disabled", reason=reason)

    @rule(name=IDS)
    def enable(self, name: str) -> None:
        if name not in self.stored or self.stored[name]["record"].service not in self.services:
            self.is_refused(NotRegistered, self.registry.enable, name)
            return
        self.registry.enable(name)
        self.change(name, state="active", reason=None, attempts=0, retry_at=None)

    @rule(name=IDS)
    def unsubscribe(self, name: str) -> None:
        if name in self.stored:
            self.registry.unsubscribe(name)
            del self.stored[name]
            self.revision += 1

    @rule(name=IDS, take=st.booleans())
    def add_or_remove_dead_letters(self, name: str, take: bool) -> None:
        if name not in self.stored:
            return
        letters = self.stored[name]["letters"]
        if take and letters:
            assert self.registry.remove_dead_letters(name, [letters.pop(0).id]) == 1
        else:
            letters.append(self.registry.add_dead_letter(name, "c", b"{}", "why", 1))

    @precondition(lambda self: "cars" in self.services)
    @rule(force=st.booleans())
    def remove(self, force: bool) -> None:
        readers = [name for name, expected in self.stored.items() if expected["record"].service == "cars"]
        if readers and not force:
            self.is_refused(RegistryError, self.registry.remove, "cars")
            return
        self.registry.remove("cars", force=force)
        self.services.remove("cars")
        self.definitions += 1
        before = self.revision
        for name in readers:
            if self.stored[name]["state"] == "active":
                self.change(name, state="disabled", reason="the service 'cars' was removed")
        self.revision = min(self.revision, before + 1)

    @precondition(lambda self: "cars" not in self.services)
    @rule()
    def reapply_services(self) -> None:
        self.registry.apply(CITY)
        self.services.add("cars")
        self.definitions += 1

    @rule(name=st.sampled_from("xy"), holder=st.sampled_from("mn"), seconds=st.integers(1, 5))
    def lease(self, name: str, holder: str, seconds: int) -> None:
        has, until = self.leases.get(name, (holder, 0))
        free = has == holder or until <= self.now
        assert self.registry.lease(name, holder, seconds) == free
        if free:
            self.leases[name] = (holder, self.now + seconds * 1_000_000)

    @rule(name=st.sampled_from("xy"), holder=st.sampled_from("mn"))
    def release(self, name: str, holder: str) -> None:
        self.registry.release(name, holder)
        if self.leases.get(name, ("", 0))[0] == holder:
            del self.leases[name]

    @rule(seconds=st.integers(1, 5))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * 1_000_000

    @invariant()
    def registry_agrees_with_the_model(self) -> None:
        subscriptions = self.registry.subscriptions()
        assert subscriptions.keys() == self.stored.keys()
        assert self.registry.find_subscriptions([*self.stored, "unknown"]) == subscriptions
        for name, expected in self.stored.items():
            seen = subscriptions[name]
            assert seen == self.registry.subscription(name)
            assert seen.subscription == expected["record"]
            for key in ("version", "cursor", "state", "reason", "attempts", "retry_at"):
                assert getattr(seen, key) == expected[key]
            assert self.registry.dead_letters(name) == expected["letters"]
        assert {
            name: (holder, timestamps.from_datetime(until)) for name, (holder, until) in self.registry.leases().items()
        } == {name: lease for name, lease in self.leases.items() if lease[1] > self.now}
        assert (self.registry.revision(), self.registry.subscriptions_revision()) == (self.definitions, self.revision)


def test_registry_agrees_with_a_dict(new_store: MakeStore) -> None:
    class Here(Model):
        def __init__(self) -> None:
            super().__init__(new_store())

    length = settings(max_examples=LARGE_EXAMPLES // 2, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(Here, settings=length)
