"""The console in a real browser, on a real gateway: each page, and what people do there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.console.city import City
from tests.console.conftest import PATIENCE_MS, SHOTS
from tests.gateway.receiver import Receiver
from tests.gateway.routes.test_links import Broker
from tests.gateway.routes.test_semantics import House
from tests.gateway.running import CITY, World
from tests.pipelines.running import until
from tidegate.subscriptions import SubscriptionRecord

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console")]


def see(page: Any, text: str | re.Pattern[str], selector: str = "main") -> Any:
    """Wait until a text is somewhere."""
    found = page.locator(selector).get_by_text(text).first
    found.wait_for()
    return found


def comes(page: Any, claim: str) -> None:
    """Wait for a condition. The page's policy forbids `wait_for_function`, which evaluates text."""
    until(lambda: page.evaluate(claim) is True, claim, PATIENCE_MS / 1e3)


def opened(page: Any, world: World, path: str) -> Any:
    page.goto(f"{world.url}/#/{path}")
    page.locator(".page").wait_for()
    return page


# Overview ---------------------------------------------------------------------------------------


def test_overview_updates_without_a_reload(page: Any, city: City) -> None:
    opened(page, city, "")
    see(page, "gps_taxi", ".graph .name")
    row = page.locator("tr", has_text="gps").first
    row.wait_for()
    page.evaluate("window.same = true")
    city.tell("gps", written_per_s=777.0)
    see(page, "777/s", "tbody")
    assert page.evaluate("window.same"), "it was loaded again"
    assert page.locator("[data-tile=running] b").inner_text() == "3 / 3"
    with city.lively(50):
        city.tell("gps", written_per_s=778.0)
        see(page, "778/s", "tbody")


def test_first_paint_waits_for_no_figures(page: Any, city: City) -> None:
    held: list[Any] = []
    page.route("**/v1/overview", lambda route: held.append(route))
    opened(page, city, "")
    page.locator(".tiles").wait_for()
    comes(page, "performance.getEntriesByName('first-contentful-paint').length === 1")
    assert page.locator("[data-tile=running] b").inner_text() == "\N{EN DASH}"
    until(lambda: page.evaluate("true") and bool(held), "figures to be asked for")
    for each in held:
        each.continue_()
    see(page, "3 / 3", "[data-tile=running]")


def test_services_with_problems_are_first(page: Any, city: City) -> None:
    city.tell("speeding", "restarting", error="the executor was lost")
    try:
        opened(page, city, "")
        see(page, "the executor was lost", ".troubles")
        assert page.locator("tbody th").first.inner_text() == "speeding"
        assert page.locator(".graph .level2").count() == 1
    finally:
        city.tell("speeding", "running", error=None)
    page.locator(".troubles li").first.wait_for(state="detached")


def test_failed_source_needs_attention(page: Any, city: City) -> None:
    told: dict[str, Any] = {"kind": "source", "state": "restarting", "error": "the broker plant is away"}
    city.tell_running("gps_taxi", **told)
    try:
        opened(page, city, "")
        see(page, "its source has failed", ".troubles")
        see(page, "the broker plant is away", ".troubles")
    finally:
        city.tell_running("gps_taxi", kind="source", state="ended", error=None)
    page.locator(".troubles li", has_text="source").first.wait_for(state="detached")


def test_broken_promises_and_subscriptions_that_get_nothing_need_attention(page: Any, tmp_path: Path) -> None:
    city = City(tmp_path)
    for n in range(2):
        city.registry.subscribe(SubscriptionRecord(f"sub_{n}", "gps"), None)
    city.registry.disable("sub_0", "its receiver is gone")
    city.registry.note_attempt("sub_1", 2, None)
    city.tell_all()
    city.tell("gps", latency_p99_ms=400.0, quarantined=12)
    with city.running():
        opened(page, city, "")
        see(page, "does not keep its promise of latency", ".troubles")
        see(page, "1 subscription can't be delivered", ".troubles")
        city.tell("gps", quarantined=15)
        see(page, re.compile(r"refuses \d"), ".troubles")
        page.locator(".troubles li", has_text="1 subscription disabled").get_by_role(
            "link", name="Subscriptions"
        ).click()
        see(page, "its receiver is gone", "tbody")


# A service --------------------------------------------------------------------------------------


def test_service_page_shows_definition_and_promises(page: Any, city: City) -> None:
    opened(page, city, "services/gps")
    see(page, "every record is handed on at once")
    see(page, "BETWEEN 115 AND 118", "table")
    see(page, "kept", "table")
    assert page.locator("figure.chart").count() == 5
    page.get_by_role("link", name="Show subscribers").click()
    page.wait_for_url("**/#/subscriptions?service=gps")


def test_from_a_wrong_filter_to_a_running_subscription(page: Any, city: City) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened(page, city, "services/gps/workbench")
    filter_ = page.get_by_label("Filter", exact=True)
    filter_.fill("sped > %0")
    page.get_by_label("%0").fill("40")
    see(page, "unknown field 'sped'; did you mean 'speed'?", ".caret")
    assert "^^^^" in page.locator(".caret").inner_text()
    assert page.get_by_role("button", name="Subscribe", exact=True).is_disabled()
    filter_.fill("speed > %0 AND vid != 'B3'")
    see(page, "speed > 40 AND vid <> 'B3'", ".verdict")
    see(page, re.compile(r"\d+ of \d+ events"))
    see(page, "speed", ".spreads")
    see(page, "vid", ".spreads")
    see(page, "live", ".tail-box")
    city.drive(20, speed=99.0, vid="B7")
    see(page, "99", ".tail")
    page.get_by_role("button", name="Copy curl").click()
    see(page, "Copied.", ".toasts")
    line = page.evaluate("navigator.clipboard.readText()")
    assert line.startswith("curl -N -H 'Accept: text/event-stream' ")
    assert "param=40" in line
    page.get_by_role("button", name="Subscribe with options…").click()
    page.get_by_label("Description").fill("fast ones")
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url("**/#/subscriptions/sub_*")
    see(page, "active", ".head")
    id_ = page.url.rpartition("/")[2]
    see(page, "fast ones", ".pairs")
    slider = page.get_by_label("Parameter 0")
    slider.focus()
    slider.press("ArrowRight")
    see(page, "Changed. Connected consumers use it at once.", ".toasts")
    with city.client() as http:
        found = http.get(f"/v1/subscriptions/{id_}").json()
    assert (found["filter"], found["params"][0], found["params"][1:]) == ("speed > %0 AND vid != 'B3'", 41, [])
    page.get_by_label("An event, as JSON").fill('{"speed": 10, "vid": "B3"}')
    page.get_by_role("button", name="Explain").click()
    see(page, "does not match", ".verdicts")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Really remove?").click()
    page.wait_for_url("**/#/subscriptions")


def placed(page: Any) -> dict[str, float]:
    """Where the map is, in view."""
    page.locator("canvas").scroll_into_view_if_needed()
    found: dict[str, float] = page.locator("canvas").bounding_box()
    return found


def test_drawn_area_becomes_a_predicate(page: Any, city: City) -> None:
    opened(page, city, "services/gps/workbench?filter=speed %3E 1 OR vid = 'B1'")
    page.get_by_role("button", name="Map").click()
    see(page, "live", ".tail-box")
    city.drive(50, speed=50.0)
    see(page, re.compile(r"of \d+ events"))
    page.get_by_role("button", name="Circle").click()
    box = placed(page)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 80, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    page.get_by_role("button", name="Use in filter").click()
    said = page.get_by_label("Filter", exact=True).input_value()
    assert said.startswith("(speed > 1 OR vid = 'B1') AND (longitude, latitude) INSIDE CIRCLE(")
    see(page, "parses", ".verdict")
    see(page, "longitude", ".spreads")
    page.get_by_role("button", name="Box").click()
    box = placed(page)
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 300, steps=4)
    page.mouse.up()
    page.get_by_role("button", name="Use in filter").click()
    said = page.get_by_label("Filter", exact=True).input_value()
    assert re.fullmatch(r"\(speed > 1 OR vid = 'B1'\) AND \(longitude, latitude\) INSIDE BOX\([-\d., ]+\)", said)


def test_area_of_a_filter_is_on_the_map_and_drawing_can_be_undone(page: Any, city: City) -> None:
    opened(page, city, "services/gps/workbench?filter=(longitude, latitude) INSIDE BOX(116.3, 39.8, 116.5, 40)")
    page.get_by_role("button", name="Map").click()
    status = page.locator(".map [role=status]")
    see(page, "(longitude, latitude) INSIDE BOX(116.3, 39.8, 116.5, 40)", ".map [role=status]")
    page.locator("canvas").press("Escape")
    assert status.inner_text() == ""
    page.get_by_role("button", name="Polygon").click()
    placed(page)
    for x, y in ((100, 100), (300, 100), (200, 250)):
        page.locator("canvas").click(position={"x": x, "y": y})
    see(page, re.compile("INSIDE POLYGON"), ".map [role=status]")
    use = page.get_by_role("button", name="Use in filter")
    page.locator("canvas").press("Backspace")
    assert use.is_disabled(), "two corners are no area"
    page.locator("canvas").click(position={"x": 220, "y": 260})
    assert use.is_enabled()
    page.get_by_role("button", name="Clear").click()
    assert use.is_disabled()


def test_slider_moves_a_parameter_within_the_range_of_its_attribute(page: Any, city: City) -> None:
    opened(page, city, "services/gps/workbench?filter=speed %3E %250 AND vid <> %251&param=40&param=B3")
    slider = page.get_by_label("Parameter 0")
    comes(page, "Number(document.querySelector('.params input[type=range]').max) > 100")  # twice the first would be 80
    slider.press("ArrowRight")
    see(page, "speed > 41 AND vid <> 'B3'", ".verdict")
    assert page.get_by_label("%0").input_value() == "41"
    page.get_by_label("%0").fill("")
    assert slider.is_disabled()
    assert page.get_by_label("Parameter 1").is_hidden(), "a text has none"


def test_past_events_are_after_live_events(page: Any, city: City) -> None:
    held: list[Any] = []
    page.route("**/backtest**", lambda route: held.append(route))
    city.drive(1, vid="before-all")
    opened(page, city, "services/gps/workbench?filter=vid LIKE '%25-all'")
    see(page, "live", ".tail-box")
    city.drive(1, vid="after-all")
    see(page, "after-all", ".tail")
    until(lambda: page.evaluate("true") and bool(held), "the past to be asked for")
    for each in held:
        each.continue_()
    see(page, "before-all", ".tail")
    assert page.locator(".tail tbody td:nth-child(2)").all_inner_texts() == ["after-all", "before-all"]


def test_many_events_a_second_leave_the_page_at_hand(page: Any, city: City) -> None:
    opened(page, city, "services/gps/workbench")
    see(page, "live", ".tail-box")
    session = page.context.new_cdp_session(page)
    # The page's own work, however busy the machine is.
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy_s() -> float:
        found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        return float(found["TaskDuration"])

    with city.lively(500):
        comes(page, "document.querySelectorAll('.tail tbody tr').length === 100")
        before, begun = busy_s(), time.monotonic()
        comes(page, "Number(document.querySelector('.tail-box b').title.replaceAll(',', '')) > 1200")
        share = (busy_s() - before) / (time.monotonic() - begun)
    assert page.locator(".tail tbody tr").count() == 100, "the table is bounded"
    assert share < 0.5, f"of its time the page works {share:.0%}"
    page.get_by_role("button", name="Pause").click()
    assert page.get_by_role("button", name="Resume").is_visible()


def parsed(page: Any) -> Any:
    """Wait until the typed filter was checked."""
    return see(page, "parses", ".verdict")


def test_one_click_subscribes_with_the_filter_of_the_address(page: Any, city: City) -> None:
    opened(page, city, "services/gps/workbench")
    parsed(page)
    assert page.locator(".verdict").inner_text().split("\n") == ["parses", "every event"]
    page.get_by_label("Filter", exact=True).fill("vid = %0 AND speed > %1")
    page.get_by_label("%0").fill("12345")
    page.get_by_label("%1").fill("40")
    see(page, "speed > 40 AND vid = '12345'", ".verdict")
    page.wait_for_url("**param=12345**")
    page.reload()
    see(page, "speed > 40 AND vid = '12345'", ".verdict")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    page.wait_for_url("**/#/subscriptions/sub_*")
    see(page, "active", ".head")
    assert page.locator("[data-param]").evaluate_all("(all) => all.map((it) => it.type)") == ["text", "number"]
    with city.client() as http:
        at = f"/v1/subscriptions/{page.url.rpartition('/')[2]}"

        def kept() -> tuple[str, list[Any]]:
            found = http.get(at).raise_for_status().json()
            return found["filter"], found["params"]

        page.get_by_label("%0").fill("777")
        page.get_by_label("%0").press("Tab")
        until(lambda: kept()[1] == ["777", 40], "a text that looks like a number to stay one")
        page.get_by_label("Filter", exact=True).fill("speed > %0 AND latitude < %1 AND longitude > %2")
        for n, value in enumerate(("3", "60", "-1")):
            page.get_by_label(f"%{n}", exact=True).fill(value)
        page.get_by_role("button", name="Save").first.click()
        until(lambda: kept() == ("speed > %0 AND latitude < %1 AND longitude > %2", [3, 60, -1]), "new parameters")
        assert page.locator(".toast").count() == 1, "what is said again is not said twice"
        page.get_by_label("Choose a recent event…").locator("option").nth(1).wait_for(state="attached")
        page.locator(".pairs button").focus()
        http.patch(at, json={"params": [9, 8, 7]}).raise_for_status()
        comes(page, "[...document.querySelectorAll('[data-param]')].map((it) => it.value).join() === '9,8,7'")
        assert page.evaluate("document.activeElement.className") == "chip", "the keyboard stays where it was"
        http.delete(at).raise_for_status()


def test_line_is_copied_without_clipboard_permission(page: Any, city: City) -> None:
    page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    opened(page, city, "services/gps/workbench")
    parsed(page)
    page.get_by_role("button", name="Copy curl").click()
    see(page, "Copied.", ".toasts")
    page.get_by_label("Filter", exact=True).focus()
    page.keyboard.press("Control+V")
    assert page.get_by_label("Filter", exact=True).input_value().startswith("curl -N -H")


AREAS = {
    "": "AREA",
    "a = 1": "a = 1 AND AREA",
    "(a = 1) OR (b = 2)": "((a = 1) OR (b = 2)) AND AREA",
    "(a = 1 OR b = 2)": "(a = 1 OR b = 2) AND AREA",
    "v = ' OR '": "v = ' OR ' AND AREA",
    "a = 1 AND (x, y) INSIDE BOX(1, 2, 3, 4)": "a = 1 AND AREA",
    "a = 1 OR (x, y) INSIDE BOX(1, 2, 3, 4)": "(a = 1 OR (x, y) INSIDE BOX(1, 2, 3, 4)) AND AREA",
    "d~ = 'l'~ WITH THEME ('p (q)') THRESHOLD 0.5": "d~ = 'l'~ AND AREA WITH THEME ('p (q)') THRESHOLD 0.5",
}


def test_area_narrows_a_filter_of_any_form(page: Any, city: City) -> None:
    page.goto(city.url)
    found = page.evaluate(
        "async (all) => { const { within } = await import('/console/workbench.js');"
        " return all.map((each) => within(each, 'AREA')); }",
        list(AREAS),
    )
    assert dict(zip(AREAS, found, strict=True)) == AREAS


DRAWN = [
    {"kind": "circle", "at": [-70.5, 0], "metres": 1},
    {"kind": "box", "corners": [[8.1, -47.25], [9, 47.33333]]},
    {"kind": "polygon", "corners": [[0, 0], [1.5, 0], [0.00001, -2]]},
]
NOT_DRAWN = [
    "",
    "a = 1",
    "(x, y) INSIDE CIRCLE(%0, 1, 2)",
    "(x, y) INSIDE BOX(1, 2)",
    "(x, y) INSIDE POLYGON(1 2, 3 4)",
]


def test_written_area_is_parsed_unchanged(page: Any, city: City) -> None:
    page.goto(city.url)
    found = page.evaluate(
        "async ([drawn, none]) => { const { areaOf, predicate } = await import('/console/map.js');"
        " const where = { x: ['pos', 'longitude'], y: ['pos', 'latitude'] };"
        " return [...drawn.map((each) => areaOf(`a = 1 AND ${predicate(where, each)}`)), ...none.map(areaOf)]; }",
        [DRAWN, NOT_DRAWN],
    )
    assert found == [*DRAWN, *[None] * len(NOT_DRAWN)]


ODD = """
streams:
  odd:
    schema: {big: int64, epoch: float64, pos: {longitude: float64, latitude: float64}, "a b": string, time: timestamp}
    event_time: time
services:
  s2: {from: odd}
  s10: {from: odd}
"""


def test_shown_events_are_the_received_events(page: Any, tmp_path: Path) -> None:
    moment = "2026-01-01T00:00:00.000000Z"
    event = {"_id": "odd:0:1", "_time": moment, "big": 9007199254740993, "epoch": 1767225600.5, "time": moment}
    where = {"pos": {"longitude": 8.5, "latitude": 47.4}, "a b": "x"}
    with City(tmp_path, ODD).running() as city:
        opened(page, city, "services/s2/workbench?filter=big %3D 9007199254740993")
        see(page, "live", ".tail-box")
        city.log.append("s2", "gps_taxi.0", [json.dumps({**event, **where}).encode()])
        see(page, "9007199254740993", ".tail")
        see(page, "1767225600.5", ".tail").click()
        see(page, "matches", ".verdicts .good")
        page.get_by_role("button", name="JSON").click()
        see(page, re.compile('"big":9007199254740993,'), "pre.json")
        page.get_by_role("button", name="Map").click()
        page.get_by_role("button", name="Box").press("Enter")
        page.locator("canvas").press("Enter")
        drawn = page.locator(".map [role=status]").inner_text()
        far = {"pos": {"longitude": -70.0, "latitude": -30.0}, "a b": "x"}
        city.log.append("s2", "gps_taxi.0", [json.dumps({**event, **far, "_id": "odd:0:2"}).encode()])
        comes(page, "Number(document.querySelector('.tail-box b').title) >= 2")
        page.locator("canvas").press("Enter")
        assert page.locator(".map [role=status]").inner_text() == drawn, "what somebody has moved stays there"
        page.get_by_role("button", name="Use in filter").click()
        said = page.get_by_label("Filter", exact=True).input_value()
        assert "AND (pos.longitude, pos.latitude) INSIDE BOX(" in said
        page.get_by_label("Filter", exact=True).fill("big < 5")
        see(page, "does not match", ".verdicts")
        page.get_by_label("Filter", exact=True).fill("")
        page.get_by_role("button", name="a b", exact=True).click()
        assert page.get_by_label("Filter", exact=True).input_value() == '"a b" '
        opened(page, city, "services/s2")
        see(page, "{longitude: float64, latitude: float64}", "table")
        page.set_viewport_size({"width": 360, "height": 780})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        opened(page, city, "")
        see(page, "s10", ".services")
        assert page.locator(".services tbody th").all_inner_texts() == ["s2", "s10"]


# Subscriptions ----------------------------------------------------------------------------------


def test_dead_letters_are_sent_again(page: Any, city: City) -> None:
    with Receiver().running() as receiver, city.client() as http:
        receiver.status = 422
        said = {"deliver": {"webhook": {"url": receiver.url, "handshake": False}}, "filter": "vid = 'letter'"}
        id_ = http.post("/v1/services/gps/subscriptions", json=said).json()["id"]
        city.drive(1, vid="letter")
        letters = f"/v1/subscriptions/{id_}/dead-letters"
        until(lambda: len(http.get(letters).json()["dead_letters"]) == 1, "the receiver to refuse it")
        opened(page, city, f"subscriptions/{id_}")
        see(page, "422", ".letters")
        receiver.status = 200
        page.get_by_role("button", name="Redeliver all").click()
        see(page, "1 delivered")
        see(page, "There are no dead letters.")
        opened(page, city, "subscriptions")
        see(page, id_)
        see(page, re.compile("answered 422"), "tbody")
        opened(page, city, "subscriptions?service=flow")
        see(page, re.compile(r"^0 of \d+$"), ".head")
        opened(page, city, "subscriptions")
        see(page, id_)
        find = page.get_by_role("searchbox", name="Find a subscription")
        find.fill("nothing like it")
        see(page, "No subscription matches.")
        find.fill("VID = 'letter")
        see(page, id_)
        http.delete(f"/v1/subscriptions/{id_}").raise_for_status()
        page.get_by_text(id_).wait_for(state="detached")


# Discover ---------------------------------------------------------------------------------------


def test_services_are_ranked_again_as_weights_move(page: Any, city: City) -> None:
    opened(page, city, "discover")
    page.get_by_label("Attributes").fill("vid, kmh:float64")
    page.get_by_role("slider", name="Quality").fill("0")
    comes(page, "document.querySelector('.found li a')?.textContent === 'speeding'")
    see(page, "without kmh")
    page.get_by_role("slider", name="Quality").fill("5")
    comes(page, "document.querySelector('.found li a')?.textContent === 'gps'")
    see(page, re.compile("latency .*measured"), ".found")
    page.get_by_label("Filter over properties").fill("price < 5")
    comes(page, "document.querySelectorAll('.found > li').length === 1")
    see(page, "fit", ".found .share")
    page.get_by_label("Filter over properties").fill("price <")
    see(page, "expected a value or a field", ".problem")


# Quarantine -------------------------------------------------------------------------------------


def test_refused_event_is_corrected_and_replayed(page: Any, city: City) -> None:
    opened(page, city, "quarantine")
    page.get_by_role("link", name="gps", exact=True).click()
    see(page, "speed: -1.0 violates speed >= 0")
    page.get_by_role("button", name="speed 4").click()
    first = page.locator(".refused > li").first
    first.locator("summary").click()
    first.get_by_label("Changes to", exact=False).first.fill('{"speed": "slow"}')
    first.get_by_role("button", name="Send again").click()
    see(page, re.compile("can't be: speed: expected a number"))
    first.get_by_label("Changes to", exact=False).first.fill('{"speed": 1.5}')
    first.get_by_role("button", name="Send again").click()
    see(page, "1 sent again")
    comes(page, "document.querySelectorAll('.refused > li').length === 3")
    page.get_by_text("Send several again").click()
    page.get_by_label("Changes to the record, as JSON", exact=True).first.fill('{"speed": 0}')
    page.get_by_role("button", name="Send all again").click()
    see(page, "3 sent again")
    see(page, "No refused events.")


def test_newly_refused_events_appear(page: Any, tmp_path: Path) -> None:
    city = City(tmp_path)
    city.refuse(1)
    with city.running():
        opened(page, city, "quarantine/services/gps")
        page.get_by_role("button", name="speed 1").click()
        comes(page, "document.activeElement.textContent === 'speed 1'")
        city.refuse(2)
        comes(page, "document.querySelectorAll('.refused > li').length === 3")
        page.get_by_role("button", name="speed 3").wait_for()


def test_rule_chosen_during_a_request_shows_all_of_its_events(page: Any, tmp_path: Path) -> None:
    city = City(tmp_path)
    city.refuse(1)
    with city.running():
        opened(page, city, "quarantine/services/gps")
        page.get_by_role("button", name="speed 1").wait_for()
        held: list[Any] = []
        page.route("**/quarantine?**", lambda route: route.continue_() if held else held.append(route))
        until(lambda: page.evaluate("true") and bool(held), "what came since to be asked for")
        page.get_by_role("button", name="speed 1").click()
        comes(page, "document.querySelector('.chip[aria-pressed=true]').textContent === 'speed 1'")
        held[0].continue_()
        city.refuse(2)
        comes(page, "document.querySelectorAll('.refused > li').length === 3")


# Who, and where ---------------------------------------------------------------------------------


PUBLIC = """
streams: {st: {schema: {vid: string, time: timestamp}, event_time: time}}
services:
  weather: {from: st, access: public}
  mine: {from: st}
"""


def test_guest_sees_public_services_without_a_key(page: Any, tmp_path: Path) -> None:
    refused: list[str] = []
    page.on("response", lambda answer: refused.append(answer.url) if answer.status >= 400 else None)
    city = City(tmp_path, PUBLIC)
    city.needs_keys = True
    city.tell("weather", read_per_s=5.0)
    with city.running():
        opened(page, city, "")
        see(page, "weather", ".graph .name")
        see(page, "5.0/s", "[data-tile=in]")
        assert page.locator("nav a").all_inner_texts() == ["Overview", "Services", "Discover"]
        opened(page, city, "services/weather")
        see(page, "Schema")
        assert page.get_by_role("link", name="Show subscribers").count() == 0
        opened(page, city, "services/weather/workbench")
        see(page, "live", ".tail-box")
        assert page.locator(".actions button").all_inner_texts() == ["Copy curl", "Copy Python"]
        with page.expect_response("**/v1/overview"):
            pass
        assert refused == [], "nothing is asked for that a guest may not have"
        page.get_by_role("button", name="Sign in").click()
        page.get_by_label("API key").wait_for()
        page.get_by_role("button", name="Cancel").click()
        see(page, "live", ".tail-box")


def test_service_page_shows_what_became_of_its_events(page: Any, city: City) -> None:
    city.tell("flow", read=1_200, late=7, filtered=30, held=12)
    opened(page, city, "services/flow")
    counts = page.locator(".card", has_text="Late (quarantined or dropped)")
    for name, value in (("Read", "1,200"), ("Late", "7"), ("Filtered", "30"), ("In the state now", "12")):
        see(page, value, f"tr:has-text('{name}') td")
    assert counts.locator("tr", has_text="Used by results").locator("td").inner_text() == "unknown"


def test_nothing_is_asked_for_that_is_not_there(page: Any, city: City) -> None:
    refused: list[str] = []
    page.on("response", lambda answer: refused.append(answer.url) if answer.status >= 400 else None)
    for path in ("", "services", "services/gps", "subscriptions", "discover", "quarantine", "quarantine/services/gps"):
        opened(page, city, path)
        page.wait_for_load_state("networkidle")
    assert refused == []
    page.goto(f"{city.url}/#/services/%E0%A4%A")
    see(page, "no service '%E0%A4%A'")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[City, dict[str, str]]]:
    """A city that asks for keys, and one of each role."""
    city = City(tmp_path_factory.mktemp("locked"))
    city.needs_keys = True
    city.tell_all()
    keys = {role: city.registry.create_key(role, role)[1] for role in ("consumer", "provider")}
    with city.running():
        yield city, keys


def test_sign_in_and_what_a_role_may_not_do_is_not_shown(page: Any, locked: tuple[City, dict[str, str]]) -> None:
    city, keys = locked
    page.goto(city.url)
    page.get_by_label("API key").fill("tg_wrong")
    page.get_by_role("button", name="Sign in").click()
    see(page, "the API key is not known here")
    page.get_by_label("API key").fill(keys["consumer"])
    page.get_by_role("button", name="Sign in").click()
    see(page, "Overview")
    assert page.get_by_role("link", name="Quarantine").count() == 0
    assert keys["consumer"] not in page.url
    page.goto(f"{city.url}/#/quarantine")
    see(page, "There is no such page, or you may not see it.")
    opened(page, city, "services/gps/workbench")
    see(page, "live", ".tail-box")
    city.drive(3, vid="keyed")
    see(page, "keyed", ".tail")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("API key").fill(keys["provider"])
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Quarantine").first.wait_for()


def test_copied_commands_run_unchanged(page: Any, locked: tuple[City, dict[str, str]]) -> None:
    city, keys = locked
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{city.url}/#/services/gps/workbench")
    page.get_by_label("API key").fill(keys["consumer"])
    page.get_by_role("button", name="Sign in").click()
    parsed(page)
    page.get_by_label("Filter", exact=True).fill("""vid <> 'O''Brien "$HOME" \\' AND speed > %0""")
    page.get_by_label("%0").fill("0.5")
    see(page, "speed > 0.5", ".verdict code")

    def copied(what: str) -> str:
        page.get_by_role("button", name=what).click()
        comes(page, f"navigator.clipboard.readText().then((it) => it.includes({json.dumps(city.url)}))")
        text: str = page.evaluate("navigator.clipboard.readText()")
        page.evaluate("navigator.clipboard.writeText('')")
        assert keys["consumer"] not in text
        return text

    run = [["sh", "-c", copied("Copy curl")], [sys.executable, "-u", "-c", copied("Copy Python")]]
    with city.lively(20):
        for words in run:
            asks = {**os.environ, "TIDEGATE_KEY": keys["consumer"]}
            with subprocess.Popen(words, env=asks, stdout=subprocess.PIPE, text=True) as running:
                assert running.stdout is not None
                assert any("B" in line and "latitude" in line for line in running.stdout), words
                running.terminate()


def test_lost_connection_recovers_without_missed_events(page: Any, tmp_path: Path) -> None:
    city = City(tmp_path)
    city.tell_all()
    with city.running():
        opened(page, city, "services/gps/workbench")
        see(page, "live", ".tail-box")
        city.drive(1, vid="before")
        see(page, "before", ".tail")
    see(page, "connection lost, trying again", ".tail-box")
    see(page, re.compile("Connection lost"), ".body")
    city.drive(1, vid="meanwhile")
    with city.running():
        city.drive(1, vid="afterwards")
        see(page, "afterwards", ".tail")
        assert page.locator(".tail td", has_text="meanwhile").count() == 1
        page.locator(".lost").wait_for(state="hidden")


def test_actions_during_an_outage_finish_afterwards(page: Any, tmp_path: Path) -> None:
    city = City(tmp_path)
    city.tell_all()
    other, finder = page.context.new_page(), page.context.new_page()
    with city.running():
        opened(page, city, "services/gps/workbench")
        parsed(page)
        opened(other, city, "")
        other.wait_for_load_state("networkidle")
        opened(finder, city, "discover")
        see(finder, "speeding", ".found")
    page.get_by_label("Filter", exact=True).fill("speed > 7")
    see(page, re.compile("The filter can't be checked at the moment"), ".verdict")
    assert page.get_by_label("Filter", exact=True).get_attribute("aria-invalid") == "false", "it may be right"
    other.get_by_role("link", name="Subscriptions").click()
    other.goto(f"{city.url}/#/services/gps")
    see(other, "the gateway can't be reached", ".problem")
    finder.get_by_role("slider", name="Quality").fill("3")
    see(finder, "the gateway can't be reached", ".problem")
    with city.running():
        see(page, "speed > 7", ".verdict code")
        see(page, "live", ".tail-box")
        see(page, re.compile(r"of \d+ events"), ".past")
        see(other, "Schema")
        see(finder, "speeding", ".found")


def test_revoked_key_ends_the_session(page: Any, locked: tuple[City, dict[str, str]]) -> None:
    city, _ = locked
    key, secret = city.registry.create_key("for a while", "consumer")
    page.goto(f"{city.url}/#/services/gps/workbench")
    page.get_by_label("API key").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    see(page, "live", ".tail-box")
    city.registry.revoke_key(key.id)
    page.get_by_label("API key").wait_for()
    see(page, re.compile("the key 'for a while' was revoked at"))
    assert page.locator(".tail").count() == 0
    assert page.evaluate("sessionStorage.length") == 0


HIDDEN = """(is) => {
    Object.defineProperty(document, "hidden", { get: () => is, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_hidden_page_sends_no_requests(page: Any, city: City) -> None:
    opened(page, city, "services/gps/workbench")
    until(lambda: city.counts().get("gps", {}).get("live", 0) == 1, "it to listen")
    page.evaluate(HIDDEN, True)
    see(page, "paused while the page is hidden", ".tail-box")
    until(lambda: city.counts().get("gps", {}).get("live", 0) == 0, "it to let go")
    with page.expect_request("**/v1/overview"):
        page.evaluate(HIDDEN, False)
    until(lambda: city.counts().get("gps", {}).get("live", 0) == 1, "it to listen again")
    see(page, "live", ".tail-box")


EVIL = "<img src=x onerror=window.owned=1><script>window.owned=1</script>"


def test_nothing_that_is_said_runs(page: Any, tmp_path: Path) -> None:
    text = "streams: {s: {schema: {vid: string, note: string}}}\nservices:\n  s1:\n    from: s\n"
    city = City(tmp_path, f"{text}    description: '{EVIL}'\n    themes: ['{EVIL}']\n")
    moment = "2026-01-01T00:00:00.000000Z"
    record = b'{"_id":"s:0:1","_time":"%s","vid":"%s","note":"\\u2028javascript:"}'
    with city.running(), city.client() as http:
        said = {"filter": f"vid = '{EVIL}'", "description": EVIL}
        id_ = http.post("/v1/services/s1/subscriptions", json=said).raise_for_status().json()["id"]
        city.tell("s1", "restarting", error=EVIL, reason=EVIL, mode=EVIL)
        opened(page, city, "")
        see(page, EVIL, ".troubles")
        opened(page, city, "services/s1")
        see(page, EVIL)
        opened(page, city, "services/s1/workbench")
        page.get_by_label("Filter", exact=True).fill(f"vid = '{EVIL}'")
        see(page, "parses", ".verdict")
        see(page, "live", ".tail-box")
        city.log.append("s1", "gps_taxi.0", [record % (moment.encode(), EVIL.encode())])
        see(page, EVIL, ".tail").click()
        see(page, "Why an event matches", ".live")
        page.get_by_label("Filter", exact=True).fill(f"{EVIL} >")
        see(page, "does not parse", ".verdict")
        opened(page, city, f"subscriptions/{id_}")
        see(page, EVIL)
        opened(page, city, "subscriptions")
        see(page, EVIL)
        opened(page, city, f"services/{EVIL}")
        see(page, re.compile("no service"))
        opened(page, city, f"quarantine/services/{EVIL}")
        see(page, re.compile("no service"))
        opened(page, city, "discover")
        page.get_by_label("Attributes").fill(EVIL)
        see(page, re.compile("onerror"))
        assert page.evaluate("window.owned") is None
        assert page.locator("img, main script").count() == 0


LONG = "\u202e\u05d0\u05d1 " + "x" * 10_000
"""Written from right to left, and without an end."""


def test_extreme_values_break_no_page(page: Any, tmp_path: Path) -> None:
    text = "streams: {s: {schema: {vid: string}}}\nservices:\n  s1:\n    from: s\n"
    city = City(tmp_path, f"{text}    description: '{LONG}'\n")
    record = json.dumps({"_id": "s:0:1", "_time": "2026-01-01T00:00:00.000000Z", "vid": LONG}).encode()
    with city.running(), city.client() as http:
        said = {"filter": f"vid = '{LONG[:2000]}'", "description": LONG[:200]}
        id_ = http.post("/v1/services/s1/subscriptions", json=said).raise_for_status().json()["id"]
        city.tell("s1", "restarting", error=LONG, reason=LONG)
        for path in ("", "services", "services/s1", "services/s1/workbench", "subscriptions", f"subscriptions/{id_}"):
            opened(page, city, path)
            if path.endswith("workbench"):
                see(page, "live", ".tail-box")
                city.log.append("s1", "gps_taxi.0", [record])
                see(page, "…", ".tail").click()
                see(page, "Why an event matches", ".live")
            see(page, re.compile("s1|sub_"))
            assert page.evaluate("document.documentElement.scrollWidth") <= 1360, f"{path} is wider than its window"
            assert page.evaluate("document.documentElement.scrollHeight") < 4_000, f"{path} has no end"


MANY = 60


def test_very_many_services_can_be_looked_at(page: Any, tmp_path: Path) -> None:
    some = "".join(f"  s{n}: {{from: {f's{n - 1}' if n % 5 else 'raw'}}}\n" for n in range(MANY))
    city = City(tmp_path, f"streams: {{raw: {{schema: {{vid: string}}}}}}\nservices:\n{some}")
    city.tell("s7", "restarting", error="alone")
    with city.running():
        opened(page, city, "")
        comes(page, f"document.querySelectorAll('.services tbody tr').length === {MANY}")
        assert page.locator(".graph .service").count() == 40
        assert page.locator(".graph .service.level2 .name").text_content() == "s7"
        page.get_by_role("button", name="Show all").click()
        comes(page, f"document.querySelectorAll('.graph .service').length === {MANY}")
        opened(page, city, "services")
        page.get_by_role("searchbox", name="Find a service").fill("S4")
        comes(page, "document.querySelectorAll('.cards > li').length === 11")
        see(page, f"11 of {MANY}")


def test_empty_pages_say_that_they_are_empty(page: Any, tmp_path: Path) -> None:
    with City(tmp_path, "streams: {}\nservices: {}\n").running() as city:
        for path, text in {
            "": "There are no services yet",
            "services": "There are no services yet",
            "subscriptions": "No subscriptions that you may see",
            "discover": "No service fits.",
            "quarantine": "Raw streams",
            "services/gps": "no service 'gps'",
            "subscriptions/sub_1": "no subscription 'sub_1'",
        }.items():
            opened(page, city, path)
            see(page, re.compile(re.escape(text)))


def test_policy_blocks_foreign_content(browser: Any, city: City) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(city.url)
    page.locator(".page").wait_for()
    tried = page.evaluate("""async () => {
        const script = document.createElement("script");
        const tries = [
            () => { script.textContent = "window.owned = 1"; document.body.append(script); },
            () => document.body.insertAdjacentHTML("beforeend", "<b>x</b>"),
        ];
        for (const each of tries) try { each(); } catch (error) { window.kept = error.name; }
        const elsewhere = await fetch("http://127.0.0.1:1/").then(() => "reached", () => "kept");
        return [window.owned ?? null, window.kept, elsewhere];
    }""")
    assert tried == [None, "TypeError", "kept"]
    context.close()


def test_with_the_keyboard_alone(page: Any, city: City) -> None:
    opened(page, city, "")
    page.locator("main a[href]").first.wait_for()  # what Tab goes to from the content
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')").startswith("#/")
    unnamed = page.evaluate("""() => [...document.querySelectorAll("button, input, select, textarea, a[href]")]
        .filter((it) => !(it.textContent.trim() || it.labels?.length || it.getAttribute("aria-label"))).length""")
    assert unnamed == 0
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.get_by_role("link", name="Services", exact=True).press("Enter")
    see(page, "Services", "h1")
    comes(page, "document.activeElement.id === 'main'")
    opened(page, city, "services/gps/workbench")
    city.drive(3, vid="typed")
    see(page, "typed", ".tail")
    row = page.locator(".tail tbody tr").first
    row.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    see(page, "Why an event matches", ".live")
    page.locator(".tail .chosen").wait_for()
    page.get_by_role("button", name="Map").press("Enter")
    page.get_by_role("button", name="Circle").press("Enter")
    page.locator("canvas").press("Enter")
    page.get_by_role("button", name="Use in filter").press("Enter")
    assert "INSIDE CIRCLE(" in page.get_by_label("Filter", exact=True).input_value()


# To look at -------------------------------------------------------------------------------------

PAGES = {
    "overview": ("", "sent from a test"),
    "service": ("services/gps", "handed on at once"),
    "workbench": ("services/gps/workbench?filter=speed %3E 60", r"of [\d,]+ events"),
    "subscriptions": ("subscriptions", "to the depot"),
    "discover": ("discover", "measured"),
    "quarantine": ("quarantine", "Raw streams"),
}
LOOKS = {"light": ("light", 1360), "dark": ("dark", 1360), "phone": ("light", 360)}


@pytest.fixture(scope="module")
def busy(city: City) -> Iterator[City]:
    """The city at work: events come, somebody listens, a receiver fails, a service restarts."""
    with Receiver().running() as receiver, city.client() as http, city.client() as reader, city.lively(120):
        receiver.status = 503
        path = "/v1/services/gps/subscriptions"
        failing = {"deliver": {"webhook": {"url": receiver.url, "handshake": False}}, "description": "to the depot"}
        made = [
            http.post(path, json={"filter": "speed > %0 AND vid <> 'B3'", "params": [60], "description": "fast ones"}),
            http.post(path, json={**failing, "filter": "speed > 90"}),
        ]
        city.tell("speeding", "restarting", error="the executor was lost: sent from a test")
        with reader.stream("GET", "/v1/services/gps/events", headers={"accept": "text/event-stream"}) as stream:
            lines = stream.iter_lines()
            until(lambda: next(lines).startswith("data:"), "an event")
            yield city
        city.tell("speeding", "running", error=None)
        for each in made:
            http.delete(f"/v1/subscriptions/{each.json()['id']}")


FAINT = """() => {
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const lit = (c) => { const v = c / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    const light = ([r, g, b]) => 0.2126 * lit(r) + 0.7152 * lit(g) + 0.0722 * lit(b);
    const behind = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const found = parts(getComputedStyle(at).backgroundColor);
            if (found.length < 4 || found[3] > 0.5) return found;
        }
        return [255, 255, 255];
    };
    const faint = [];
    for (const node of document.querySelectorAll("body *")) {
        if (node.closest("svg, canvas, option, :disabled, .skip") || !node.checkVisibility()) continue;
        if (![...node.childNodes].some((each) => each.nodeType === 3 && each.textContent.trim())) continue;
        const [a, b] = [light(parts(getComputedStyle(node).color)), light(behind(node))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const told = `${node.className || node.tagName} ${node.textContent.slice(0, 20)} ${contrast}`;
        if (contrast < 4.5) faint.push(told);
    }
    return faint;
}"""
"""Texts with less contrast than WCAG's AA asks for."""


CUT = """() => [...document.querySelectorAll("table.wide")]
    .filter((it) => it.offsetWidth > it.parentElement.clientWidth).map((it) => it.className)"""
"""Tables of which a part is out of sight."""


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_fits_its_window_and_is_readable(browser: Any, busy: City, look: str) -> None:
    scheme, width = LOOKS[look]
    SHOTS.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    for name, (path, text) in PAGES.items():
        opened(page, busy, path)
        see(page, re.compile(text))
        page.screenshot(path=SHOTS / f"{name}-{look}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider than its window"
        assert page.evaluate(FAINT) == [], f"{name} can hardly be read"
        assert page.evaluate(CUT) == [], f"{name} has tables that are cut off"
        if name == "workbench":
            page.get_by_role("button", name="Map").click()
            comes(page, "document.querySelector('.tail-box b').textContent !== '0/s'")
            page.screenshot(path=SHOTS / f"map-{look}.png", full_page=True)
        elif name == "subscriptions":
            page.locator("tr", has_text="to the depot").get_by_role("link").click()
            see(page, "Last error")
            page.get_by_label("Choose a recent event…").locator("option").nth(1).wait_for(state="attached")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "it is wider than its window"
            page.screenshot(path=SHOTS / f"subscription-{look}.png", full_page=True)
    context.close()


def test_console_uses_only_the_public_api(page: Any, city: City) -> None:
    """The console is a client as any other: it asks for what the API's document names, and nothing else."""
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(httpx.URL(request.url).path))
    for path, _ in PAGES.values():
        opened(page, city, path)
    with city.client() as http:
        paths = http.get("/openapi.json").json()["paths"]
    known = [re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in paths]
    unknown = {path for path in asked if not path.startswith("/console/") and not any(k.fullmatch(path) for k in known)}
    assert unknown <= {"/"}


# What is not everywhere --------------------------------------------------------------------------


def test_meaning_page_compares_words(page: Any, tmp_path: Path) -> None:
    with House(tmp_path).running() as house:
        page.goto(house.url)
        page.get_by_role("link", name="Meaning").click()
        page.get_by_label("Term", exact=True).fill("laptop")
        page.get_by_label("Other terms").fill("computer, garage")
        page.get_by_role("button", name="Compare").click()
        see(page, "computer", "[data-to=computer]")
        assert page.locator("nav a[aria-current=page]").all_inner_texts() == ["Meaning"]
        see(page, "Concepts behind laptop")
        page.screenshot(path=SHOTS / "meaning-light.png", full_page=True)
        page.get_by_label("Other terms").fill("zzyzx")
        page.get_by_role("button", name="Compare").click()
        see(page, "zzyzx", "[data-to=zzyzx]")


def test_links_to_other_brokers(page: Any, tmp_path: Path) -> None:
    north, south = Broker(tmp_path, "north"), Broker(tmp_path, "south", CITY)
    with north.running(), south.running():
        north.link(south)
        until(lambda: north.knows("gps@south"), "the other's services to be known")
        page.goto(f"{north.url}/")
        page.get_by_role("link", name="Federation").click()
        see(page, "up", "[data-link=south]")
        page.reload()
        see(page, "up", "[data-link=south]")
        assert page.locator("nav a[aria-current=page]").all_inner_texts() == ["Federation"]
        see(page, re.compile("gps"), "[data-link=south]")
        north.subscribe("gps@south", "speed > 60")
        page.get_by_text("Routing entries").click()
        see(page, "We ask it for: 1 filter", "[data-link=south]")
        see(page, "speed > 60", "[data-link=south] code")
        page.screenshot(path=SHOTS / "federation-light.png", full_page=True)
        page.get_by_role("link", name="Overview").click()
        see(page, "of south", ".graph .note")


def test_pages_of_what_is_not_installed_are_not_there(page: Any, city: City) -> None:
    opened(page, city, "")
    page.wait_for_load_state("networkidle")
    assert page.locator("nav a").all_inner_texts() == [
        *("Overview", "Services", "Subscriptions", "Discover", "Quarantine"),
    ]
