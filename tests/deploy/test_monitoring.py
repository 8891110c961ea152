"""The alert rules and the dashboard use metrics and labels that a real gateway has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.certificates import Authority
from tests.docs.test_documents import ROOT, anchors
from tests.gateway.running import World
from tidegate.federation.link import LinkSettings
from tidegate.gateway.settings import TlsSettings

RULES = ROOT / "deploy" / "prometheus" / "tidegate.rules.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "tidegate.json"
RULE_TESTS = Path(__file__).with_name("alerts.yaml")
SCRAPED = frozenset({"instance", "job"})
"""Labels that Prometheus adds."""
SUFFIXES: Mapping[str, Mapping[str, frozenset[str]]] = {
    "counter": {"_total": frozenset()},
    "gauge": {"": frozenset()},
    "histogram": {"_bucket": frozenset({"le"}), "_sum": frozenset(), "_count": frozenset()},
}
SELECTOR = re.compile(r"\b(tidegate_\w+|up)\b(?:\{([^}]*)\})?")

Metrics = Mapping[str, frozenset[str]]
"""Names of samples, each with its labels."""


def documented_labels() -> dict[str, frozenset[str]]:
    """The labels of each metric, from the table of the specification."""
    text = (ROOT / "docs" / "spec" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(tidegate_\w+)`(?:, [^|]*)? \|([^|]*)\|", text, re.MULTILINE)
    return {name: frozenset(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Metrics:
    """Return the metrics of a gateway with TLS and links."""
    folder = tmp_path_factory.mktemp("monitoring")
    world, authority = World(folder / "world"), Authority(folder / "ca")
    server = authority.server("gateway")
    world.tls, world.ca, world.links = TlsSettings(server.cert, server.key), authority.cert, LinkSettings("here")
    labels = documented_labels()
    found: dict[str, frozenset[str]] = {"up": SCRAPED}
    with world.running(), world.client() as client:
        families = re.findall(r"^# TYPE (\w+) (\w+)$", client.get("/metrics").text, re.MULTILINE)
    for family, kind in families:
        if family.endswith("_created"):
            continue
        base = family.removesuffix("_total")
        name = family if family in labels else "tidegate_service_events_read_total"
        for suffix, added in SUFFIXES[kind].items():
            found[f"{base}{suffix}"] = labels[name] | added | SCRAPED
    return found


def unknown(expression: str, metrics: Metrics) -> list[str]:
    """Return the metrics and labels of an expression that no gateway has."""
    problems, labels = [], set(SCRAPED)
    for name, matchers in SELECTOR.findall(expression):
        if name not in metrics:
            problems.append(name)
            continue
        labels |= metrics[name]
        matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)
        problems += [f"{name}{{{label}}}" for label in matched if label not in metrics[name]]
    for listed in re.findall(r"\b(?:by|without|on|ignoring) \(([^)]*)\)", expression):
        problems += [label for label in re.split(r",\s*", listed) if label not in labels]
    return problems


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def test_unknown_metric_or_label_is_found(metrics: Metrics) -> None:
    assert unknown("sum by (way) (rate(tidegate_deliveries_total[1m]))", metrics) == []
    assert unknown("tidegate_deliveries", metrics) == ["tidegate_deliveries"]
    assert unknown('tidegate_link_up{lnk="a"}', metrics) == ["tidegate_link_up{lnk}"]
    assert unknown("max by (way) (tidegate_service_running)", metrics) == ["way"]
    assert unknown("rate(tidegate_engine_seconds_bucket{le='1'}[5m])", metrics) == []


def test_alerts_use_metrics_and_labels_of_a_gateway(metrics: Metrics) -> None:
    assert {rule["alert"]: found for rule in rules() if (found := unknown(rule["expr"], metrics))} == {}
    for rule in rules():
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        kept = {label for listed in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in listed.split(", ")}
        assert used <= (kept or SCRAPED), rule["alert"]


def test_each_alert_has_a_section_in_the_runbook() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 15
    runbook = ROOT / "docs" / "operations.md"
    sections = anchors(runbook)
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert path == "docs/operations.md"
        assert anchor in sections, rule["alert"]
        assert f"`{rule['alert']}`" in runbook.read_text(), rule["alert"]


def test_dashboard_uses_metrics_and_labels_of_a_gateway(metrics: Metrics) -> None:
    expressions = [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in panels()
        for target in panel.get("targets", ())
    ]
    assert len(expressions) > 30
    for title, expression, legend in expressions:
        assert unknown(expression, metrics) == [], title
        kept = {label for listed in re.findall(r"by \(([^)]*)\)", expression) for label in listed.split(", ")}
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= kept, title
    (service,) = [each for each in json.loads(DASHBOARD.read_text())["templating"]["list"] if each["type"] == "query"]
    assert service["query"]["query"] == "label_values(tidegate_service_running, service)"


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels():
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in panels()}) == len(panels())


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=120)


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(rules())} rules found" in done.stdout


def test_alerts_fire_on_faults_and_on_nothing_else(tmp_path: Path) -> None:
    document = yaml.safe_load(RULE_TESTS.read_text())
    tested = {alert["alertname"] for test in document["tests"] for alert in test["alert_rule_test"]}
    assert {rule["alert"] for rule in rules()} == tested
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump({**document, "rule_files": [str(RULES)]}))
    done = promtool("test", "rules", str(tmp_path / "alerts.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    names = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    queries = [{"record": f"panel:{n}", "expr": each.replace("$service", ".*")} for n, each in enumerate(names)]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": queries}]}))
    done = promtool("check", "rules", str(tmp_path / "queries.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
