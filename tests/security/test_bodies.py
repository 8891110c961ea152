"""Bodies, filters and messages that are slow to read: they delay no other caller and are refused."""

from __future__ import annotations

import gzip
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
from websockets.sync.client import connect

from tests.pipelines.running import until
from tests.security.processes import Running, create_key, gateway, tidegate, write_profile
from tidegate.cli.input import options

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("body-attacks")]

CITY = """
streams:
  gps_taxi: {schema: {vid: string, speed: float64?, tags: "string[]?"}}
  alone: {schema: {vid: string, speed: float64?, tags: "string[]?"}}
services:
  gps: {from: gps_taxi}
"""
MAX_DELAY_S = 2.0
"""Of a request beside an attack. On a machine of one's own it is some 20 ms; before, the worst was a minute."""
MAX_ANSWER_S = 25.0
"""For the attacker's own answer."""
MAX_ANSWER_BYTES = 250_000


@dataclass(frozen=True)
class Target:
    """A gateway that requires keys, and callers of every role."""

    running: Running
    keys: dict[str, str]

    def client(self, name: str) -> httpx.Client:
        return self.running.client(self.keys[name])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("bodies")
    (folder / "city.yaml").write_text(CITY)
    applied = tidegate("apply", folder / "city.yaml", data=folder / "data")
    assert applied.returncode == 0, applied.stderr
    roles = {"mallory": "admin", "alice": "consumer", "bob": "consumer"}
    keys = {name: create_key(folder / "data", name, role) for name, role in roles.items()}
    with gateway(folder / "data", "--profile", write_profile(folder)) as running:
        yield Target(running, keys)


@dataclass
class Pulse:
    """The longest time that requests of an uninvolved caller took."""

    longest_s: float = 0.0
    count: int = 0
    problems: list[str] = field(default_factory=list)


@contextmanager
def pulse(target: Target, path: str = "/livez") -> Iterator[Pulse]:
    """Ask for something small, again and again, until the block ends."""
    found, done = Pulse(), threading.Event()

    def ask() -> None:
        with target.client("bob") as http:
            while not done.is_set():
                begun = time.monotonic()
                answer = http.get(path)
                found.longest_s = max(found.longest_s, time.monotonic() - begun)
                found.count += 1
                if answer.status_code != 200:
                    found.problems.append(answer.text)
                done.wait(0.01)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()
    assert found.count > 0
    assert not found.problems


# Definitions -----------------------------------------------------------------------------------

SIZE = 980_000


def _laughs() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    return "\n".join(lines)


def _merges() -> str:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 10)]
    return "\n".join(lines)


def _wide_merges() -> str:
    return (
        "base: &b {"
        + ", ".join(f"k{n}: 1" for n in range(9_000))
        + "}\n"
        + "\n".join(f"m{n}: {{<<: *b}}" for n in range(3_000))
    )


DOCUMENTS: dict[str, Callable[[], str]] = {
    "a JSON list of numbers": lambda: "[" + "1," * (SIZE // 2) + "1]",
    "a JSON list of texts": lambda: json.dumps(["a"] * (SIZE // 5)),
    "a JSON map": lambda: json.dumps({f"k{n}": n for n in range(SIZE // 16)}),
    "a JSON map with one key twice": lambda: "{" + "".join(f'"k{n}":1,' for n in range(SIZE // 12)) + '"z":1,"z":2}',
    "a schema of many fields": lambda: json.dumps({"schema": {f"k{n}": "string" for n in range(SIZE // 20)}}),
    "a schema of many bad types": lambda: json.dumps({"schema": {f"k{n}": "strng" for n in range(SIZE // 20)}}),
    "many unknown keys": lambda: json.dumps({f"schem{n}": {} for n in range(SIZE // 18)}),
    "a pipeline of many operators": lambda: json.dumps(
        {"from": "gps_taxi", "pipeline": [{"filter": "speed > 1"}] * (SIZE // 26)}
    ),
    "a pipeline of many bad operators": lambda: json.dumps(
        {"from": "gps_taxi", "pipeline": [{"filtr": "speed >"}] * (SIZE // 26)}
    ),
    "a constraint that is long": lambda: json.dumps(
        {"from": "gps_taxi", "constraints": ["speed > 1 or " * (SIZE // 14) + "speed > 2"]}
    ),
    "a long expression": lambda: json.dumps(
        {"from": "gps_taxi", "pipeline": [{"project": {"x": "speed + " * (SIZE // 9) + "1"}}]}
    ),
    "an expression that nests": lambda: json.dumps(
        {"from": "gps_taxi", "pipeline": [{"project": {"x": "(" * (SIZE // 2) + "1" + ")" * (SIZE // 2 - 100)}}]}
    ),
    "JSON that nests": lambda: "[" * (SIZE // 2) + "]" * (SIZE // 2),
    "JSON that nests as far as orjson reads": lambda: '{"schema":' * 250 + "1" + "}" * 250,
    "a number of many digits": lambda: '{"schema": ' + "9" * SIZE + "}",
    "numbers of many digits": lambda: "[" + ",".join(["9" * 4_000] * (SIZE // 4_001)) + "]",
    "a YAML number of many digits": lambda: "schema: " + "9" * 200_000,
    "a YAML hexadecimal number": lambda: "schema: 0x" + "f" * 200_000,
    "a YAML list, too long": lambda: "- a\n" * (SIZE // 4),
    "a YAML list": lambda: "- a\n" * 60_000,
    "a YAML flow list": lambda: "[" + "a," * 120_000 + "]",
    "a YAML flow map": lambda: "{" + "a: b," * 50_000 + "}",
    "YAML that nests by flow": lambda: "[" * 200_000,
    "YAML that nests by maps": lambda: "{a: " * 60_000,
    "YAML that nests by indents": lambda: "\n".join(" " * n + "a:" for n in range(700)),
    "YAML that nests by dashes": lambda: "- " * 120_000,
    "YAML that nests by question marks": lambda: "? " * 120_000,
    "YAML with a list that nests inside keys": lambda: "? [" * 60_000,
    "YAML aliases": _laughs,
    "YAML merges": _merges,
    "YAML merges of a wide map": _wide_merges,
    "YAML anchors": lambda: "".join(f"- &a{n} x\n" for n in range(25_000)),
    "YAML comments": lambda: "#\n" * 120_000 + "a",
    "YAML blanks": lambda: "\n" * 250_000,
    "YAML spaces": lambda: " " * 250_000 + "a",
    "YAML documents": lambda: "---\n" * 60_000,
    "YAML directives": lambda: "%TAG ! tag:x,2000:\n" * 12_000 + "---\na",
    "YAML tags": lambda: "- !!python/object/apply:os.system [x]\n" * 6_000,
    "a YAML text with escapes": lambda: '"' + "\\u0041" * 40_000 + '"',
    "a YAML text of many lines": lambda: '"' + "a\n\n" * 80_000 + '"',
    "a plain YAML text of many lines": lambda: "a\n" * 120_000,
    "a YAML block": lambda: "a: |\n" + "  x\n" * 60_000,
    "a folded YAML block": lambda: "a: >\n" + "  x\n\n" * 50_000,
    "long YAML keys": lambda: "".join(f"{'k' * 1_000}{n}: 1\n" for n in range(250)),
    "YAML keys that are not closed": lambda: "{" + "'a" * 120_000,
    "YAML colons": lambda: "a:" * 120_000,
    "YAML with colons and brackets": lambda: "{a:[{b:[" * 30_000,
    "YAML beginning as JSON": lambda: "{" + '"a": [' * 30_000,
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_slow_definition_delays_no_other_caller(target: Target, name: str) -> None:
    body = DOCUMENTS[name]().encode()
    assert len(body) <= 1024 * 1024
    path = "/v1/services/mine" if body.startswith(b'{"from"') else "/v1/streams/mine"
    need_refusal(target, body, "PUT", path)


@pytest.mark.parametrize("name", ["a JSON list of numbers", "many unknown keys", "YAML merges"])
def test_slow_service_file_delays_no_other_caller(target: Target, name: str) -> None:
    need_refusal(target, DOCUMENTS[name]().encode(), "POST", "/v1/apply")


def need_refusal(target: Target, body: bytes, method: str, path: str) -> None:
    with target.client("mallory") as http, pulse(target) as found:
        begun = time.monotonic()
        answer = http.request(method, path, content=body)
        took_s = time.monotonic() - begun
    assert answer.status_code in (400, 413, 422), answer.text[:300]
    assert len(answer.content) < MAX_ANSWER_BYTES
    assert took_s < MAX_ANSWER_S
    assert found.longest_s < MAX_DELAY_S


def test_largest_accepted_definitions_delay_no_other_caller(target: Target) -> None:
    fields = {f"k{n}": "string" for n in range(4_900)}
    stream = {"schema": fields}
    service = {"from": "gps_taxi", "pipeline": [{"filter": "speed > 1"}] * 2_400}
    with target.client("mallory") as http, pulse(target) as found:
        assert http.put("/v1/streams/wide", json=stream).status_code == 200
        assert http.put("/v1/services/long", json=service).status_code == 200
        refused = http.post("/v1/apply", json={"streams": {f"s{n}": stream for n in range(5)}})
        assert http.delete("/v1/services/long").status_code == 204
        assert http.delete("/v1/streams/wide").status_code == 204
    assert found.longest_s < MAX_DELAY_S
    assert refused.status_code == 422
    assert "expected at most 20,000 values in one request: send definitions one by one" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a JSON list of numbers", "expected JSON: it has more than 100000 values"),
        ("a JSON map with one key twice", "the key 'z' occurs twice"),
        ("a schema of many fields", "streams.mine: expected at most 5,000 values in one definition that is sent"),
        ("many unknown keys", "expected at most 5,000 values in one definition that is sent"),
        ("numbers of many digits", "there may be more problems; these are the first 100"),
        ("a YAML number of many digits", "expected a number of at most 400 characters, not 200,000"),
        ("a YAML list, too long", "expected at most 262,144 bytes of YAML, not 980,000; send long documents as JSON"),
        ("a YAML list", "it has more than 50,000 tokens; send a document of this length as JSON"),
        ("YAML that nests by dashes", "it nests more than 100 deep"),
        ("YAML aliases", "it has more than 100000 values, aliases counted"),
    ],
)
def test_refused_definition_names_the_remedy(target: Target, name: str, expected: str) -> None:
    with target.client("mallory") as http:
        answer = http.put("/v1/streams/mine", content=DOCUMENTS[name]())
    assert expected in answer.json()["detail"]


# Other bodies, filters and parameters ------------------------------------------------------------

DEEP = "[" * 1_000 + "]" * 1_000
JSON = {"content-type": "application/json"}
CALLS: dict[str, Callable[[httpx.Client], httpx.Response]] = {
    "a subscription that nests": lambda http: http.post("/v1/services/gps/subscriptions", content=DEEP),
    "a subscription with a deep member": lambda http: http.post(
        "/v1/services/gps/subscriptions", content=f'{{"description": {DEEP}}}'
    ),
    "a subscription that is a long list": lambda http: http.post(
        "/v1/services/gps/subscriptions", json=[0] * (SIZE // 3)
    ),
    "a subscription with many keys": lambda http: http.post(
        "/v1/services/gps/subscriptions", json={f"filtr{n}": 1 for n in range(SIZE // 18)}
    ),
    "a subscription with many parameters": lambda http: http.post(
        "/v1/services/gps/subscriptions", json={"filter": "vid = %0", "params": ["x"] * (SIZE // 5)}
    ),
    "a subscription with a long pattern": lambda http: http.post(
        "/v1/services/gps/subscriptions", json={"filter": "vid like %0", "params": ["%a_" * (SIZE // 4)]}
    ),
    "a pattern that is used a thousand times": lambda http: http.post(
        "/v1/services/gps/subscriptions",
        json={"filter": " or ".join(["vid like %0"] * 1_000), "params": ["%a_" * (SIZE // 4)]},
    ),
    "a filter of unknown fields": lambda http: http.get(
        "/v1/services/gps/events", params={"filter": " or ".join(f"sped{n}=1" for n in range(1_200))}
    ),
    "an event that nests": lambda http: http.get("/v1/services/gps/explain", params={"event": f'{{"vid": {DEEP}}}'}),
    "a search for many attributes": lambda http: http.post(
        "/v1/discover", json={"attributes": [f"speed{n}" for n in range(SIZE // 14)]}
    ),
    "a search for many values": lambda http: http.post(
        "/v1/discover", json={"attributes": [{"name": "speed", "values": list(range(SIZE // 8))}]}
    ),
    "a search by many categories": lambda http: http.post("/v1/discover", json={"categories": ["a"] * (SIZE // 5)}),
    "a search with unknown keys": lambda http: http.post(
        "/v1/discover", json={f"atribute{n}": 1 for n in range(SIZE // 20)}
    ),
    "a search that nests": lambda http: http.post("/v1/discover", content=f'{{"attributes": {DEEP}}}'),
    "a link that nests": lambda http: http.post("/v1/links", content=f'{{"name": {DEEP}}}'),
    "a replay of many": lambda http: http.post("/v1/services/gps/quarantine/replay", json={"ids": ["x"] * (SIZE // 5)}),
    "events that nest": lambda http: http.post("/v1/streams/alone/events", content=f'{{"vid": {DEEP}}}', headers=JSON),
    "events with a large number": lambda http: http.post(
        "/v1/streams/alone/events", content='{"vid": "a", "speed": ' + "9" * 5_000_000 + "}", headers=JSON
    ),
    "events that are many": lambda http: http.post("/v1/streams/alone/events", json=[{}] * 200_000),
    "events that are lists of lists": lambda http: http.post(
        "/v1/streams/alone/events", content="[" + "[]," * 4_000_000 + "[]]", headers=JSON
    ),
    "lines that are many": lambda http: http.post(
        "/v1/streams/alone/events", content="\n" * 8_000_000, headers={"content-type": "application/x-ndjson"}
    ),
    "a body in many parts": lambda http: http.post("/v1/streams/alone/events", files={"a": b"{}"}),
    "a definition in many parts": lambda http: http.put("/v1/streams/mine", files={"a": b"schema: {a: string}"}),
    "a form": lambda http: http.post("/v1/streams/alone/events", data={"vid": "a"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_slow_call_delays_no_other_caller(target: Target, name: str) -> None:
    with target.client("mallory") as http, pulse(target) as found:
        begun = time.monotonic()
        answer = CALLS[name](http)
        took_s = time.monotonic() - begun
    expected = (200,) if name == "an event that nests" else (400, 413, 415, 422)
    assert answer.status_code in expected, answer.text[:300]
    assert len(answer.content) < MAX_ANSWER_BYTES
    assert took_s < MAX_ANSWER_S
    assert found.longest_s < MAX_DELAY_S


@pytest.mark.parametrize(
    "query",
    [
        {"filter": "speed>1or " * 4_000 + "speed>2"},
        {"filter": "vid like %0", "param": "%a_" * 9_000},
        {"select": ",".join(f"speed{n}" for n in range(4_000))},
        {f"filtr{n}": "1" for n in range(5_000)},
        {"cursor": "a" * 60_000},
        {"from": "x" * 60_000},
        {"latest": "x" * 60_000},
        {"every": "1" * 60_000 + "s"},
        {"key": "speed" * 10_000},
        {"format": "x" * 60_000},
    ],
    ids=["filter", "param", "select", "names", "cursor", "from", "latest", "every", "key", "format"],
)
def test_long_query_is_refused_and_delays_no_other_caller(target: Target, query: dict[str, str]) -> None:
    with target.client("alice") as http, pulse(target) as found:
        answer = http.get("/v1/services/gps/events", params=query)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert len(answer.content) < MAX_ANSWER_BYTES
    assert found.longest_s < MAX_DELAY_S


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "gzip, gzip", "GZIP", "identity, gzip"])
def test_compressed_body_is_refused_unread(target: Target, coding: str) -> None:
    bomb = gzip.compress(b" " * 50_000_000) if "gzip" in coding.lower() else zlib.compress(b" " * 50_000_000)
    with target.client("mallory") as http, pulse(target) as found:
        for path in ("/v1/streams/alone/events", "/v1/apply", "/v1/services/gps/subscriptions", "/v1/discover"):
            answer = http.post(path, content=bomb, headers={**JSON, "content-encoding": coding})
            assert (answer.status_code, answer.json()["type"]) == (415, "urn:tidegate:problem:bad-media-type")
            assert f"content encoding {coding!r}; expected a body that is not compressed" in answer.json()["detail"]
    assert found.longest_s < MAX_DELAY_S


def test_large_socket_messages_delay_no_other_caller(target: Target) -> None:
    address = target.running.url.replace("http", "ws") + "/v1/events"
    subscribe = {"op": "subscribe", "id": "a", "service": "gps"}
    messages = [
        DEEP,
        f'{{"op": {DEEP}}}',
        json.dumps({"op": "x" * SIZE}),
        json.dumps({**subscribe, **{f"filtr{n}": 1 for n in range(SIZE // 18)}}),
        json.dumps({**subscribe, "select": ["speeed"] * (SIZE // 10)}),
        json.dumps({**subscribe, "select": [f"s{n}" for n in range(SIZE // 10)]}),
        json.dumps({**subscribe, "filter": "vid like %0", "params": ["%a_" * (SIZE // 4)]}),
        json.dumps({**subscribe, "params": ["x"] * (SIZE // 5)}),
        json.dumps({**subscribe, "filter": "speed > 1 or " * (SIZE // 14)}),
        json.dumps({**subscribe, "cursor": "x" * SIZE}),
        json.dumps({**subscribe, "id": "x" * SIZE}),
        json.dumps({"op": "ack", "id": "x" * SIZE, "cursor": "x"}),
        json.dumps([0] * (SIZE // 3)),
    ]
    headers = {"Authorization": f"Bearer {target.keys['alice']}"}
    with connect(address, additional_headers=headers, max_size=2**26) as socket:
        for message in messages:
            with pulse(target) as found:
                socket.send(message)
                answer = json.loads(socket.recv(timeout=60))
            assert answer["op"] == "error"
            assert len(json.dumps(answer)) < MAX_ANSWER_BYTES
            assert found.longest_s < MAX_DELAY_S


# Calls that take long ----------------------------------------------------------------------------

HEAVY = "- a\n" * 5_000
"""A body that takes a quarter of a second to refuse."""


def test_heavy_calls_of_one_caller_delay_no_sign_in(target: Target) -> None:
    """Sixty calls at once: few run, some wait, the rest get 429; a caller with a new key is served at once."""
    with closing(options.home(str(target.running.data)).registry()) as registry:
        fresh = [registry.create_key(f"fresh-{n}", "consumer")[1] for n in range(20)]
    answers: list[httpx.Response] = []

    def call() -> None:
        with target.client("mallory") as http:
            answers.append(http.put("/v1/streams/mine", content=HEAVY, timeout=200))

    threads = [threading.Thread(target=call) for _ in range(60)]
    for each in threads:
        each.start()
    until(lambda: any(each.status_code == 429 for each in answers), "calls to be refused")
    longest_s = 0.0
    for secret in fresh:
        begun = time.monotonic()
        with target.running.client(secret) as http:
            assert http.get("/v1/services").status_code == 200
        longest_s = max(longest_s, time.monotonic() - begun)
    with target.client("alice") as http:
        begun = time.monotonic()
        assert http.get("/v1/services/gps/explain", params={"filter": "speed > 1"}).status_code == 200
        other_s = time.monotonic() - begun
    under_way = sum(each.is_alive() for each in threads)
    for each in threads:
        each.join()
    assert under_way > 5, "the attack was over too early to show anything"
    assert longest_s < MAX_DELAY_S
    assert other_s < 5 * MAX_DELAY_S  # it is heavy, too, and has a turn of its own
    refused = [each for each in answers if each.status_code == 429]
    # How many are refused depends on how many are done before the last of them comes.
    assert refused[0].headers["retry-after"] == "1"
    assert refused[0].json()["type"] == "urn:tidegate:problem:busy"
    assert "of your long calls" in refused[0].json()["detail"]
    assert {each.status_code for each in answers} == {422, 429}
