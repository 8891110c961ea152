"""Services over HTTP: shown, changed, removed."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.gateway.running import World
from tests.pipelines.running import until
from tidegate.gateway.service_status import SILENT_AFTER_S


def test_services_are_listed_with_their_status(world: World, http: httpx.Client) -> None:
    world.tell_running("gps")
    until(lambda: http.get("/v1/services/gps/status").json().get("state") == "running", "the state")
    found = http.get("/v1/services").json()["services"]
    assert [each["name"] for each in found] == ["fast", "gps"]
    gps = http.get("/v1/services/gps").json()
    assert gps["version"] == 1
    assert gps["definition"]["from"] == "gps_taxi"
    assert list(gps["schema"]) == ["vid", "speed", "time"]
    assert http.get("/v1/services/fast/status").json()["state"] == "never ran"


def test_constraints_of_inputs_and_filters_are_shown_and_refuse_filters(http: httpx.Client) -> None:
    document = {"from": "gps", "pipeline": [{"filter": "speed > 60"}], "constraints": {"vid": "<> ''"}}
    expected = {"vid": "<> ''", "speed": "> 60 AND (speed >= 0)"}  # gps has speed >= 0
    assert http.put("/v1/services/quick", json=document).json()["constraints"] == expected
    http.put("/v1/services/quicker", json={"from": "quick", "pipeline": [{"filter": "speed > 80"}]})
    shown = {each["name"]: each["constraints"] for each in http.get("/v1/services").json()["services"]}
    assert shown["quick"] == expected
    assert shown["quicker"] == {"vid": "<> ''", "speed": "> 80 AND (speed >= 0)"}
    attributes = http.get("/asyncapi.json").json()["components"]["schemas"]["quick"]
    assert attributes["x-constraints"] == expected
    explained = http.get("/v1/services/quick/explain", params={"filter": "speed * 3.6 > 300"}).json()
    assert explained["constraints"] == ["speed > 60 AND (speed >= 0)"]
    for never in ("speed < 50", "speed * 3.6 < 100", "vid = ''"):
        refused = http.post("/v1/services/quick/subscriptions", json={"filter": never})
        assert (refused.status_code, "can never match" in refused.text) == (400, True)
        assert http.get("/v1/services/quick/events", params={"filter": never}).status_code == 400


def test_service_is_added_changed_and_removed(world: World, http: httpx.Client) -> None:
    made = http.put("/v1/services/slow", content="{from: gps, pipeline: [{filter: speed < 10}]}")
    assert (made.status_code, made.json()["version"]) == (200, 1)
    changed = http.put("/v1/services/slow", json={"from": "gps", "pipeline": [{"filter": "speed < 20"}]})
    assert changed.json()["version"] == 2
    assert world.registry.service("slow").version == 2
    assert http.delete("/v1/services/slow").status_code == 204
    assert http.get("/v1/services/slow").status_code == 404


def test_problems_of_a_definition_are_reported(http: httpx.Client) -> None:
    answer = http.put("/v1/services/slow", json={"from": "gps", "pipeline": [{"filter": "sped < 10"}]})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "services.slow.pipeline[0].filter"
    assert http.put("/v1/services/slow", content="{").status_code == 400


def test_service_that_is_read_cannot_be_removed(http: httpx.Client) -> None:
    answer = http.delete("/v1/services/gps")
    assert (answer.status_code, answer.json()["title"]) == (409, "The registry won't do that")


def test_breaking_change_needs_force(http: httpx.Client) -> None:
    document = {"from": "gps", "pipeline": [{"project": {"vid": "vid", "time": "time"}}]}
    answer = http.put("/v1/services/fast", json=document)
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:tidegate:problem:breaking-change")
    assert http.put("/v1/services/fast", params={"force": "true"}, json=document).json()["version"] == 2


def test_ready_when_every_service_runs(world: World, http: httpx.Client) -> None:
    assert http.get("/livez").status_code == 200
    assert http.get("/readyz").status_code == 503
    world.tell_running("gps", "fast")
    until(lambda: http.get("/readyz").status_code == 200, "all services to run")


def test_failing_and_new_services_do_not_take_a_gateway_out_of_service(world: World, http: httpx.Client) -> None:
    world.tell_running("gps")
    world.tell_running("fast", state="restarting", error="no such function")
    until(lambda: http.get("/readyz").status_code == 200, "the gateway to know that one service fails")
    assert http.get("/readyz").json()["services"] == {"fast": "restarting", "gps": "running"}
    assert http.put("/v1/services/new", json={"from": "gps"}).status_code == 200
    until(lambda: "new" in http.get("/readyz").json()["services"], "the gateway to know the new service")
    assert http.get("/readyz").status_code == 200


def test_degraded_while_services_lack_slots_of_spark(world: World, http: httpx.Client) -> None:
    world.tell_running("gps")
    world.tell_running("fast", state="restarting", error="2 of its 2 tasks do not run", missing_tasks=2)
    until(lambda: http.get("/readyz").json()["status"] == "degraded", "the gateway to know that slots are missing")
    problems = http.get("/readyz").json()["problems"]
    assert problems == {"spark": "no executor has a slot for 2 real-time tasks of the services"}
    world.tell_running("fast")
    until(lambda: http.get("/readyz").json()["status"] == "ok", "the gateway to know that they are there")


def test_not_ready_after_a_long_silence_of_the_runner(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.tell_running("gps", "fast", ago_s=SILENT_AFTER_S + 5)
    with world.running(), world.client() as http:
        answer = http.get("/readyz")
        assert answer.status_code == 503
        assert answer.json() == {"status": "waiting", "services": {"fast": "silent", "gps": "silent"}}
        assert 'tidegate_service_running{service="gps"} 0.0' in http.get("/metrics").text
        world.tell_running("gps", "fast")
        until(lambda: http.get("/readyz").status_code == 200, "the runner to be heard of")


def test_metrics_are_served_for_prometheus(world: World, http: httpx.Client) -> None:
    world.tell_running("gps")
    until(lambda: 'tidegate_service_running{service="gps"} 1.0' in http.get("/metrics").text, "the service's state")
    with http.stream("GET", "/v1/services/gps/events", headers={"accept": "text/event-stream"}) as answer:
        until(lambda: 'tidegate_subscribers{service="gps",state="live"} 1.0' in _metrics(world), "the subscriber")
        world.append(3)
        lines = answer.iter_lines()
        while "gps_taxi:0:2" not in next(lines):
            pass
        told = _metrics(world)
    assert 'tidegate_events_matched_total{service="gps"} 3.0' in told
    assert 'tidegate_dispatch_seconds_count{service="gps"}' in told
    assert answer.status_code == 200


def _metrics(world: World) -> str:
    with world.client() as other:
        return other.get("/metrics").text
