"""Another kind of push target needs its fields, its transport, and one registration."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import orjson
import pytest

from tests.gateway.running import World
from tests.polling import until
from tidegate.delivery.push.transport import Outcome, PendingEvent, PushTransports
from tidegate.gateway.transports import push
from tidegate.gateway.transports.push import TransportRequest, push_transports
from tidegate.gateway.transports.webhook import WebhookSettings, WebhookTransport
from tidegate.registry import subscriptions as stored
from tidegate.subscriptions import PUSH_TARGETS, PushTarget, SubscriptionRecord
from tidegate.subscriptions.push_target import BadValue

FAR = "far"


@dataclass(frozen=True, slots=True)
class Box(PushTarget):
    """A box with a name, in this process."""

    kind: ClassVar[str] = "box"
    fields: ClassVar[Mapping[str, Mapping[str, Any]]] = {"name": {"type": "string"}}
    required_fields: ClassVar[tuple[str, ...]] = ("name",)
    shown_fields: ClassVar[Mapping[str, Mapping[str, Any]]] = {"name": {"type": "string"}}

    name: str
    secrets: tuple[str, ...] = ()
    batch: int = 1

    @property
    def address(self) -> str:
        return self.name

    def with_secrets(self, secrets: tuple[str, ...]) -> Box:
        return replace(self, secrets=secrets)

    @classmethod
    def parse(cls, value: Any, previous: PushTarget | None) -> Box:  # noqa: ARG003 - the name is required
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            raise BadValue(f"expected a name, not {value!r}")
        return cls(value["name"])

    def describe(self, *, show_secret: bool = False, show_address: bool = True) -> dict[str, Any]:  # noqa: ARG002
        return {"name": self.name if show_address else "…"}


class BoxTransport:
    """Puts events into boxes. The first message for each box fails."""

    def __init__(self) -> None:
        self.boxes: dict[str, list[Any]] = {}

    async def validate(self, target: PushTarget, *, handshake: bool) -> None:
        pass

    async def send(self, subscription: SubscriptionRecord, events: Sequence[PendingEvent]) -> Outcome:
        target = subscription.push_target
        assert isinstance(target, Box)
        if target.name not in self.boxes:
            self.boxes[target.name] = []
            return Outcome("failed", "the box was not there yet")
        self.boxes[target.name] += [orjson.loads(each.data)["data"]["speed"] for each in events]
        return Outcome("taken")

    async def close(self) -> None:
        pass


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> BoxTransport:
    transport = BoxTransport()
    module = ModuleType(f"{push.__package__}.{Box.kind}")
    module.make_transport = lambda _: transport  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(PUSH_TARGETS, Box.kind, Box)
    monkeypatch.setitem(stored._KINDS, Box.kind, Box)
    return transport


def test_every_push_target_has_a_transport() -> None:
    transports = push_transports(TransportRequest(WebhookSettings()))
    assert isinstance(transports, PushTransports)
    assert transports._transports.keys() == PUSH_TARGETS.keys()
    assert isinstance(transports._transports["webhook"], WebhookTransport)


def test_registered_push_target_gets_events_with_retries(boxes: BoxTransport, tmp_path: Path) -> None:
    with World(tmp_path).running() as world, world.client() as http:
        path = "/v1/services/gps/subscriptions"
        refused = http.post(path, json={"deliver": {"box": {"name": 7}}})
        assert refused.status_code == 422
        assert "deliver.box" in refused.text
        created = http.post(path, json={"deliver": {"box": {"name": FAR}}, "filter": "speed > 1"})
        assert created.status_code == 201, created.text
        assert created.json()["deliver"] == {"box": {"name": FAR}}
        world.append(4)
        until(lambda: boxes.boxes.get(FAR) == [2.0, 3.0], "two events")
        metrics = http.get("/metrics").text
        assert 'tidegate_deliveries_total{service="gps",way="box"} 2.0' in metrics, metrics
        assert 'tidegate_webhook_messages_total{outcome="failed",service="gps"} 1.0' in metrics


def test_registered_push_target_survives_a_restart(boxes: BoxTransport, tmp_path: Path) -> None:
    with World(tmp_path).running() as world, world.client() as http:
        id_ = http.post("/v1/services/gps/subscriptions", json={"deliver": {"box": {"name": FAR}}}).json()["id"]
    with World(tmp_path).running() as world, world.client() as http:
        assert http.get(f"/v1/subscriptions/{id_}").json()["deliver"] == {"box": {"name": FAR}}
