"""Who asks, and everything at a glance, as each caller sees it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tests.gateway.running import World
from tests.pipelines.running import until
from tidegate.subscriptions import SubscriptionRecord

PUBLIC = """
streams:
  taxi: {schema: {vid: string, speed: float64}}
services:
  gps: {from: taxi, access: public, description: where they are}
  chases: {from: taxi, access: [police]}
"""


def as_(http: httpx.Client, key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


def test_caller_may_do_everything_without_required_keys(shared: httpx.Client) -> None:
    said = shared.get("/v1/me").json()
    assert (said["known"], said["role"], said["services"]) == (False, "admin", None)
    assert said["has"] == ["_status", "_audit"], "no semantic space is installed, and the gateway has no broker name"


def test_me_shows_each_caller_and_their_features(tmp_path: Path) -> None:
    world = World(tmp_path, PUBLIC)
    world.needs_keys = True
    keys = {
        "police": world.registry.create_key("police", "consumer")[1],
        "one": world.registry.create_key("one", "provider", services=["gps"])[1],
    }
    with world.running(), world.client() as http:

        def seen(key: str | None) -> tuple[str, list[str], list[str]]:
            me = http.get("/v1/me", headers=as_(http, key)).raise_for_status().json()
            all_ = http.get("/v1/overview", headers=as_(http, key)).raise_for_status().json()
            names = [sorted(each["name"] for each in all_[kind]) for kind in ("streams", "services")]
            return f"{me['role']} {me['name']}", names[0], names[1]

        def has(key: str | None) -> list[str]:
            found: list[str] = http.get("/v1/me", headers=as_(http, key)).json()["has"]
            return found

        assert (has(None), has(keys["police"]), has(keys["one"])) == ([], ["_status"], []), (
            "who sees all sees how it does"
        )
        assert seen(None) == ("consumer guest", [], ["gps"]), "a guest sees what is public"
        assert seen(keys["police"]) == ("consumer police", ["taxi"], ["chases", "gps"])
        assert seen(keys["one"]) == ("provider one", [], ["gps"])


def test_overview_counts_subscribers_by_service(world: World, http: httpx.Client) -> None:
    world.tell_running("gps")
    until(lambda: http.get("/v1/overview").json()["services"][1]["status"] is not None, "the status")
    with http.stream("GET", "/v1/services/gps/events", headers={"accept": "text/event-stream"}) as stream:
        lines = stream.iter_lines()
        next(lines)
        until(lambda: world.counts().get("gps", {}).get("live", 0) == 1, "it to listen")
        world.append(3)
        for _ in range(3):
            while not next(lines).startswith("data:"):
                pass

        def told() -> dict[str, Any]:
            services = http.get("/v1/overview").json()["services"]
            return next(each for each in services if each["name"] == "gps")

        until(lambda: told()["dispatch"].get("+Inf", 0) >= 1, "it to be counted")
        gps = told()
    assert (gps["inputs"], gps["subscribers"], gps["delivered"]) == (["gps_taxi"], {"sse": 1}, {"sse": 3})
    assert (gps["behind"], gps["lag"], gps["durable"]) == (0, 0, {"count": 0, "lag": 0})
    assert list(gps["dispatch"].values()) == sorted(gps["dispatch"].values()), "cumulative"


def test_counts_are_cached_for_a_second(world: World, http: httpx.Client) -> None:
    first = http.get("/v1/overview").json()
    again = [http.get("/v1/overview").json()["at"] for _ in range(5)]
    moments = [first["at"], *again]
    assert len(set(moments)) < len(moments), "all of them asked within a moment"
    until(lambda: http.get("/v1/overview").json()["at"] > moments[-1], "it to be counted again")


def test_waiting_page_is_counted_as_poll(world: World, http: httpx.Client) -> None:
    def polled() -> bool:
        gps = next(each for each in http.get("/v1/overview").json()["services"] if each["name"] == "gps")
        return bool(gps["subscribers"] == {"poll": 1})

    with world.client() as other, ThreadPoolExecutor(1) as thread:
        waits = thread.submit(other.get, "/v1/services/gps/events", params={"wait": "20s"})
        until(polled, "somebody who waits")
        world.append(1)
        assert len(waits.result().json()["events"]) == 1


def test_status_shows_promised_and_measured_quality(tmp_path: Path) -> None:
    text = PUBLIC.replace("access: public", "qos: {latency_p99: 50ms, availability: 0.9}")
    with World(tmp_path, text).running() as world, world.client() as http:
        until(lambda: http.get("/v1/services/gps/status").json()["quality"] != {}, "it to be taken in")
        quality = http.get("/v1/services/gps/status").json()["quality"]
    assert list(quality) == ["latency", "availability", "rate", "freshness", "completeness"]
    assert quality["latency"] == {"promised": 0.05, "measured": None, "verdict": "unmeasured"}
    assert quality["rate"] == {"promised": None, "measured": None, "verdict": None}


def test_overview_lists_the_problems_of_each_service(tmp_path: Path) -> None:
    world = World(tmp_path, PUBLIC.replace("access: public", "qos: {latency_p99: 50ms, availability: 0.9}"))
    made = (world.registry.subscribe(SubscriptionRecord(f"sub_{n}", "gps"), None) for n in range(3))
    ids = [each.subscription.id for each in made]
    world.registry.disable(ids[0], "its receiver is gone")
    world.registry.note_attempt(ids[1], 2, None)
    world.tell_running("gps", written=1)
    world.tell_running("gps", written=9, latency_p99_ms=400.0)
    with world.running(), world.client() as http:

        def told(name: str) -> tuple[list[str], int, int]:
            found = {each["name"]: each for each in http.get("/v1/overview").json()["services"]}[name]
            return found["broken"], found["failing"], found["disabled"]

        until(lambda: told("gps") == (["latency"], 1, 1), "a promise that is broken")
        assert told("chases") == ([], 0, 0)


def test_durable_subscriptions_are_listed_with_their_status(world: World, http: httpx.Client) -> None:
    first, second = (
        http.post(f"/v1/services/{name}/subscriptions", json={"from": "now"}).json()["id"] for name in ("gps", "fast")
    )
    world.append(4)
    page = http.get(f"/v1/subscriptions/{first}/events").json()
    assert len(page["events"]) == 4
    found = http.get("/v1/subscriptions").json()
    assert [each["id"] for each in found["subscriptions"]] == [second, first], "the newest first"
    assert found["total"] == 2
    by_id = {each["id"]: each for each in found["subscriptions"]}
    assert (by_id[first]["delivered"], by_id[second]["delivered"]) == (4, 0)
    assert (by_id[first]["mine"], by_id[first]["last_error"]) == (True, None)
    assert by_id[first]["lag"] == world.log.end("gps").offsets["gps_taxi.0"]
    assert http.get("/v1/subscriptions", params={"max": 1}).json()["total"] == 2
    assert http.get(f"/v1/subscriptions/{first}/status").json() == by_id[first]
    assert http.get("/v1/subscriptions/sub_nobody/status").status_code == 404
    http.delete(f"/v1/subscriptions/{first}")
    again = http.get("/v1/subscriptions").json()
    assert [each["id"] for each in again["subscriptions"]] == [second]


def test_subscriptions_of_others_are_not_listed(tmp_path: Path) -> None:
    world = World(tmp_path, PUBLIC)
    world.needs_keys = True
    police, other, provider = (
        world.registry.create_key(name, "provider" if name == "maker" else "consumer")[1]
        for name in ("police", "other", "maker")
    )
    with world.running(), world.client() as http:
        for service in ("gps", "chases"):
            http.post(f"/v1/services/{service}/subscriptions", json={}, headers=as_(http, police)).raise_for_status()

        def listed(key: str) -> list[str]:
            found = http.get("/v1/subscriptions", headers=as_(http, key)).json()["subscriptions"]
            return sorted(each["service"] for each in found)

        assert listed(police) == ["chases", "gps"]
        assert listed(other) == []
        assert listed(provider) == ["gps"], "a provider sees those of the services that they see"
        seen = http.get("/v1/subscriptions", headers=as_(http, provider)).json()["subscriptions"]
        assert [each["mine"] for each in seen] == [False], "and may not change them"
        assert http.get("/v1/subscriptions").status_code == 401


def test_overview_and_metrics_show_sources(tmp_path: Path) -> None:
    world = World(tmp_path, PUBLIC)
    world.needs_keys = True
    keys = {role: world.registry.create_key(role, role)[1] for role in ("consumer", "provider", "admin")}
    with world.running(), world.client() as http:

        def taxi(role: str) -> Any:
            overview = http.get("/v1/overview", headers=as_(http, keys[role])).raise_for_status().json()
            return overview["streams"][0]["status"]

        assert taxi("provider") is None, "no source has run"
        told: dict[str, Any] = {
            "kind": "source",
            "error": "can't reach the MQTT broker plant:1883",
            "written_per_s": 1.5,
        }
        world.tell_running("taxi", state="restarting", written=7, quarantined=2, restarts=3, **told)
        until(lambda: taxi("provider") is not None, "the status")
        counts = {"state": "restarting", "events_per_s": 1.5, "events": 7, "refused": 2, "restarts": 3}
        assert taxi("provider") == {**counts, "error": told["error"]}
        assert taxi("consumer") == {**counts, "error": "the source failed; providers see why"}
        shown = http.get("/metrics", headers=as_(http, keys["admin"])).text
        for line in ("running", "events_total", "refused_total", "restarts_total"):
            assert f'tidegate_source_{line}{{stream="taxi"}} ' in shown
        assert 'tidegate_source_running{stream="taxi"} 0.0' in shown
        assert 'tidegate_service_running{service="taxi"}' not in shown
        world.tell_running("taxi", kind="source", error=None)
        until(lambda: taxi("consumer")["state"] == "running", "the source to run")
        world.tell_running("taxi", kind="source", ago_s=60)
    with world.running(), world.client() as http:
        until(lambda: taxi("consumer")["state"] == "silent", "the runner to be dead")
