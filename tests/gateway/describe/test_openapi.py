"""The API's document is true: schemathesis asks everything that it says, and more, of a real gateway."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs

from tests import soak
from tests.conftest import LENGTH
from tests.gateway.receiver import Receiver
from tests.gateway.running import CITY, World
from tidegate.gateway.describe.openapi import CALLS
from tidegate.gateway.http.problems import HttpProblem
from tidegate.gateway.settings import LimitSettings

NOT_CHECKED = {
    "positive_data_acceptance": "a text is a filter or none: the document can't say which",
    "use_after_free": "paths have names that are there",
    "ensure_resource_availability": "paths have names that are there",
    "object_level_authorization": "there is one key",
}
HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
SOAK_S = soak.scaled(300, 60)
"""How long schemathesis searches in a soak; it ends by itself then."""


class Api(World):
    """Services, events, subscriptions of both kinds, and something that was refused."""

    def fill(self, receiver: str) -> None:
        self.append(50)
        self.log.create("gps.quarantine", ["gps_taxi.0"])
        refused = {"_id": "x", "_src": "gps_taxi/0:0", "_time": "2026-01-01T00:00:00.000000Z", "_reason": "speed: no"}
        self.log.append("gps.quarantine", "gps_taxi.0", [json.dumps(refused).encode()] * 3)
        _, self.secret = self.registry.create_key("tester", "admin")
        pull = {"filter": "speed > 60", "from": "beginning"}
        webhook = {"deliver": {"webhook": {"url": receiver, "handshake": False}}}
        with self.client() as http:
            http.headers["authorization"] = f"Bearer {self.secret}"
            self.await_ready(http, "gps", "fast", "spare")
            self.ids = [
                http.post("/v1/services/gps/subscriptions", json=said).raise_for_status().json()["id"]
                for said in (pull, webhook, pull)
            ]

    def settings(self) -> str:
        """Use existing names in paths; PUT and DELETE use spare ones."""
        pull, webhook, spare = self.ids
        others = [
            ('include-path-regex = "/v1/streams/.*/quarantine"', 'name = "gps_taxi"'),
            ('include-operation-id = "ingest"', 'stream = "gps_taxi", mode = "all"'),  # partial takes what is wrong
            ('include-operation-id = ["putService", "removeService"]', 'name = "spare"'),
            ('include-operation-id = ["putStream", "removeStream"]', 'stream = "spare_raw"'),
            ('include-operation-id = "applyFiles"', "prune = false"),
            ('include-operation-id = "discover"', "watch = false"),  # it would go on for ever
            ('include-operation-id = "removeSubscription"', f'id = "{spare}"'),
            ('include-path-regex = "secret|dead-letters|enable"', f'id = "{webhook}"'),
            ('include-path-regex = "/keys/"', f'id = "{self.registry.create_key("spare", "consumer")[0].id}"'),
        ]
        lines = [f'parameters = {{ name = "gps", stream = "gps_taxi", id = "{pull}" }}']
        lines += [f"checks.{name}.enabled = false  # {why}" for name, why in NOT_CHECKED.items()]
        lines += [f"[[operations]]\n{where}\nparameters = {{ {what} }}" for where, what in others]
        # What is put runs nowhere, so that the gateway is not ready.
        lines += ['[[operations]]\ninclude-path = "/readyz"\nchecks.not_a_server_error.enabled = false']
        return "\n".join(lines)


def judged(folder: Path, *args: str, timeout_s: float = 200.0) -> subprocess.CompletedProcess[str]:
    """Run schemathesis against a gateway, and return its result."""
    streams = "streams:\n  spare_raw: {schema: {n: int64}}"
    world = Api(folder, CITY.replace("streams:", streams) + "  spare: {from: gps}\n")
    world.needs_keys = True
    world.limits = LimitSettings(sign_in_failures=100_000)  # invalid keys are tried with every call
    with Receiver().running() as receiver, world.running():
        world.fill(receiver.url)
        (folder / "schemathesis.toml").write_text(world.settings())
        command = [str(Path(sys.executable).with_name("st")), "run", f"{world.url}/openapi.json"]
        command += ["--header", f"Authorization: Bearer {world.secret}"]
        command += ["--request-timeout", "10", "--continue-on-failure", *args]
        environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS)}
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )


def test_responses_conform_to_the_openapi_document(tmp_path: Path) -> None:
    """No 5xx; documented statuses, content types and bodies; other methods and callers without a key are refused."""
    if LENGTH == "soak":
        args = ["--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "200"]
        args += ["--max-time", str(SOAK_S)]
    else:
        args = ["--phases", "examples,coverage,fuzzing", "--max-examples", "8", "--seed", "7"]
    done = judged(tmp_path, "--no-color", *args, timeout_s=SOAK_S + 200.0)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert f"Tested: {len(CALLS)}" in done.stdout


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from refs(each)


def test_every_call_is_described(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    paths = document["paths"].items()
    calls = {f"{method.upper()} {path}": said for path, all_ in paths for method, said in all_.items()}
    assert calls.keys() == CALLS.keys(), "a call without a description, or the other way round: describe/openapi.py"
    for name, said in calls.items():
        method, _, path = name.partition(" ")
        takes = method in ("PUT", "PATCH", "POST") and not path.endswith(("/secret", "/enable", "/renew"))
        assert ("requestBody" in said) == takes
        for status, each in said["responses"].items():
            assert status < "4" or path == "/readyz" or list(each["content"]) == ["application/problem+json"]
        parameters = {each["name"] for each in said.get("parameters", ()) if each["in"] == "path"}
        assert parameters == set(re.findall(r"{(\w+)}", path))
        assert path.startswith(("/v1/", "/asyncapi")) == ("security" in said)
    for each in refs(document):
        assert each.removeprefix("#/components/schemas/") in document["components"]["schemas"]
    assert len({said["operationId"] for said in calls.values()}) == len(calls)


def test_examples_fit_their_schemas(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    checked = 0
    for calls in document["paths"].values():
        for said in calls.values():
            for content in said.get("requestBody", {}).get("content", {}).values():
                schema = {**content["schema"], "components": document["components"]}
                for example in content.get("examples", {}).values():
                    jsonschema_rs.validator_for(schema).validate(example["value"])
                    checked += 1
    assert checked > 12


def test_all_methods_of_a_path_are_allowed(http: httpx.Client) -> None:
    answer = http.request("PATCH", "/v1/services/gps")
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, PUT")
    assert answer.json()["detail"].endswith("; expected DELETE, GET, PUT")


def test_problem_escapes_lone_surrogates() -> None:
    body = HttpProblem(422, "bad", "Bad", "not '\ud83d'", [{"pointer": "a.\udc00", "detail": 1}]).response().body
    said = json.loads(bytes(body).decode())
    assert (said["detail"], said["errors"]) == (r"not '\ud83d'", [{"pointer": r"a.\udc00", "detail": 1}])


def test_put_definition_is_parsed_like_a_service_file(http: httpx.Client) -> None:
    answer = http.put("/v1/services/x", content=b'{"from": "gps", "qos": {"\\ud83d\\ude00": 1, "\\ud83d": 2}}')
    assert answer.status_code == 422
    assert "unknown key '\N{GRINNING FACE}'" in answer.json()["detail"], "JSON writes some characters as two"
    assert "services.x.qos" in answer.json()["errors"][0]["pointer"]
    answer = http.put("/v1/services/x", content=b"\xff")
    assert (answer.status_code, "expected UTF-8 text" in answer.json()["detail"]) == (400, True)
    bomb = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
        f"{c}: &{c} [{','.join(['*' + b] * 8)}]\n" for b, c in zip("abcdefghi", "bcdefghij", strict=True)
    )
    answer = http.put("/v1/services/x", content=bomb)
    assert (answer.status_code, "it has more than 100000 values" in answer.json()["detail"]) == (400, True)
