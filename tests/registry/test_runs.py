"""Which version of a service ran last, and where."""

from __future__ import annotations

from tidegate.registry import Registry, ServiceRun
from tidegate.services import loads

TEXT = "streams: {a: {schema: {n: int64}}}\nservices: {x: {from: a}, y: {from: a}}"


def test_run_is_kept_until_the_service_is_removed(registry: Registry) -> None:
    registry.apply(loads(TEXT))
    revision = registry.revision()
    assert registry.service("x").run is None
    registry.note_run("x", ServiceRun(1, "one:/data"))
    registry.note_run("x", ServiceRun(2, "two:/data"))
    assert registry.service("x").run == ServiceRun(2, "two:/data")
    assert {name: service.run for name, service in registry.services().items()} == {
        "x": ServiceRun(2, "two:/data"),
        "y": None,
    }
    assert registry.revision() == revision
    registry.remove("x")
    registry.apply(loads(TEXT))
    assert registry.service("x").run is None
