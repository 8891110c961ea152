"""The Helm chart: rendered by Helm, validated against Kubernetes' schemas, and compared with what Tidegate takes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.docs.test_deploy import parse
from tests.docs.test_documents import ROOT
from tidegate.cli.profile import load_profile
from tidegate.errors import EnvironmentProblem
from tidegate.logs.factory import KafkaLogSettings
from tidegate.pipelines.connector.maven import fetch
from tidegate.services import load

CHART = ROOT / "deploy" / "helm" / "tidegate"
RENDER = Path(__file__).with_name("RenderChart.java")
JARS = ROOT / "tests" / "jars.sha256"
HELM = ("com.marcnuri.helm-java:helm-java:0.0.21", "com.marcnuri.helm-java:linux-amd64:0.0.21")
"""Helm as a library: its own Go code, with a thin interface to Java."""
KUBERNETES = ("1.27", "1.37")
"""The oldest version that the chart declares, and the newest that the schemas know."""

SMALL = {
    "log": {"kafka": "kafka:9092"},
    "registry": {"url": "postgresql://tidegate@postgres/tidegate", "passwordSecret": {"name": "pg", "key": "pw"}},
}
CITY = "streams:\n  raw: {schema: {n: int64}}\nservices:\n  odd: {from: raw}\n"
LARGE = {
    "log": {"kafka": {"brokers": "kafka:9093", "tls": True}},
    "registry": {"url": "postgresql://tidegate@postgres/tidegate"},
    "secretsKey": {"name": "keys", "key": "sealing"},
    "secretEnv": {"KAFKA_PASSWORD": {"name": "kafka", "key": "password"}},
    "imagePullSecrets": [{"name": "one"}, {"name": "two"}],
    "profile": {"limits": {"connections": 1000}, "spark": {"spark.executor.cores": 48}},
    "definitions": {"city": CITY},
    "applyArgs": ["--force"],
    "spark": {"settings": {"spark.executor.memoryOverhead": "512m"}, "cpuLimit": "2", "checkpointClass": "nfs"},
    "runner": {"replicas": 2, "nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]},
    "gateway": {
        "tlsSecret": "gateway-tls",
        "autoscaling": {"enabled": True},
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "city.example",
            "tls": [{"hosts": ["city.example"]}],
        },
        "affinity": {"podAntiAffinity": {}},
    },
    "metrics": {"podMonitor": True, "from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]},
    "podAnnotations": {"team": "city"},
}
LOCAL = {**SMALL, "spark": {"master": "local", "checkpointClaim": "mine"}, "networkPolicy": False}
REFUSED = {
    "no-kafka": ({"registry": SMALL["registry"]}, "log.kafka: expected the brokers of Kafka, host:9092"),
    "no-registry": ({"log": SMALL["log"]}, "registry.url: expected postgresql://USER@HOST/DATABASE"),
    "password": ({**SMALL, "registry": {"url": "postgresql://me:hush@pg/tidegate"}}, "does not match pattern"),
    "unknown": ({**SMALL, "gateway": {"replcas": 2}}, "additional properties 'replcas' not allowed"),
    "map": ({**SMALL, "definitions": {"city": {"n": "int64"}}}, "want string"),
}

Documents = Mapping[tuple[str, str], Any]
"""Rendered objects by kind and name."""


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the chart, rendered once for each set of values."""
    if shutil.which("javac") is None or sys.platform != "linux":
        pytest.skip("no JDK for Linux")
    try:
        jars = [jar for artifact in HELM for jar in fetch(artifact, ROOT / ".cache" / "helm", JARS)]
    except EnvironmentProblem as problem:
        pytest.skip(f"no Helm: {problem}")
    folder = tmp_path_factory.mktemp("chart")
    sets = {"small": SMALL, "large": LARGE, "local": LOCAL, "changed": {**SMALL, "profile": {"limits": {}}}}
    sets["redefined"] = {**LARGE, "definitions": {"city": CITY.replace("odd", "even")}}
    files = []
    for name, values in {**sets, **{name: values for name, (values, _) in REFUSED.items()}}.items():
        (folder / name).write_text(yaml.safe_dump(values))
        files.append(str(folder / name))
    out = folder / "out"
    out.mkdir()
    command = ["java", "-cp", ":".join(map(str, jars)), str(RENDER), str(CHART), str(out), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return out


def documents(rendered: Path, name: str) -> Documents:
    error = rendered / f"{name}.error"
    assert not error.exists(), error.read_text()
    loaded = [each for each in yaml.safe_load_all((rendered / name).read_text()) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in loaded}


def pods(objects: Documents) -> dict[str, Any]:
    """The pod templates of all workloads, by the component of their labels."""
    templates = [each["spec"]["template"] for each in objects.values() if "template" in each.get("spec", {})]
    return {each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in templates}


def executor(objects: Documents) -> Any:
    return yaml.safe_load(objects["ConfigMap", "city-tidegate"]["data"]["executor.yaml"])


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    exact = all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())
    return exact and all(labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", ()))


def test_helm_finds_no_fault(rendered: Path) -> None:
    failed, _, messages = (rendered / "lint.txt").read_text().partition("\n")
    assert (failed, "[ERROR]" in messages, "[WARNING]" in messages) == ("false", False, False), messages


@pytest.mark.parametrize("name", ["small", "large", "local"])
@pytest.mark.parametrize("version", KUBERNETES)
def test_objects_fit_the_schemas_of_kubernetes(rendered: Path, name: str, version: str) -> None:
    objects = documents(rendered, name)
    checked = [each for each in objects.values() if not each["apiVersion"].startswith("monitoring.coreos.com")]
    assert len(checked) >= 7
    if name != "local":
        checked.append(executor(objects))
    for each in checked:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("case", REFUSED)
def test_unusable_values_are_refused_with_a_reason(rendered: Path, case: str) -> None:
    assert REFUSED[case][1] in (rendered / f"{case}.error").read_text()


@pytest.mark.parametrize("name", ["small", "large", "local"])
def test_commands_and_profile_are_those_of_tidegate(
    rendered: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = documents(rendered, name)
    for pod in pods(objects).values():
        (container,) = pod["spec"]["containers"]
        options = parse(container["args"])
        assert options["profile"] == "/etc/tidegate/profile.yaml"
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        if "ports" in container:
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            assert (options["host"], options["port"]) == ("0.0.0.0", ports["http"])
    path = tmp_path / "profile.yaml"
    path.write_text(objects["ConfigMap", "city-tidegate"]["data"]["profile.yaml"])
    profile = load_profile(str(path))
    assert profile.access.required is True
    assert profile.metrics is not None
    assert isinstance(profile.log, KafkaLogSettings)
    assert profile.database is not None
    for variable in container_environment(pods(objects)["runner"]):
        monkeypatch.setenv(variable, "x")
    assert profile.database.address().startswith("postgresql://tidegate")
    settings = profile.spark.reveal()
    assert profile.master == ("local" if name == "local" else "k8s://https://kubernetes.default.svc")
    assert profile.shared is (name != "local")
    assert settings.get("spark.executor.cores") == {"small": "32", "large": "48"}.get(name)
    if name == "large":
        assert settings["spark.executor.memoryOverhead"] == "512m"
        assert profile.limits.connections == 1000
        assert str(profile.tls.server.cert) == "/etc/tidegate-tls/tls.crt" if profile.tls.server else False


def container_environment(pod: Mapping[str, Any]) -> set[str]:
    (container,) = pod["spec"]["containers"]
    return {each["name"] for each in container["env"]}


@pytest.mark.parametrize("name", ["small", "large"])
def test_executors_reach_the_driver_by_the_headless_service(rendered: Path, name: str) -> None:
    objects = documents(rendered, name)
    service, runners = (
        objects["Service", "city-tidegate-runner"]["spec"],
        objects["StatefulSet", "city-tidegate-runner"],
    )
    pod = pods(objects)["runner"]
    (container,) = pod["spec"]["containers"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert runners["spec"]["serviceName"] == "city-tidegate-runner"
    assert matches({"matchLabels": service["selector"]}, pod["metadata"]["labels"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    settings = yaml.safe_load(objects["ConfigMap", "city-tidegate"]["data"]["profile.yaml"])["spark"]
    assert {each["targetPort"]: ports[each["targetPort"]] for each in service["ports"]} == {
        "driver": settings["spark.driver.port"],
        "blocks": settings["spark.driver.blockManager.port"],
    }
    environment = {each["name"]: each for each in container["env"]}
    assert settings["spark.driver.host"] == "env:DRIVER_HOST"
    assert environment["DRIVER_HOST"]["value"] == "$(POD_NAME).city-tidegate-runner.sensors.svc"
    assert [*environment].index("POD_NAME") < [*environment].index("DRIVER_HOST"), "used before it is defined"
    claim = settings["spark.kubernetes.executor.volumes.persistentVolumeClaim.data.options.claimName"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": claim}} in pod["spec"]["volumes"]
    assert objects["PersistentVolumeClaim", claim]["spec"]["accessModes"] == ["ReadWriteMany"]
    account = settings["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert objects["ServiceAccount", account]["automountServiceAccountToken"] is False
    assert pod["spec"]["automountServiceAccountToken"] is True
    (subject,) = objects["RoleBinding", "city-tidegate-runner"]["subjects"]
    assert (subject["name"], subject["namespace"]) == (pod["spec"]["serviceAccountName"], "sensors")


@pytest.mark.parametrize("name", ["small", "large"])
def test_only_runner_and_executors_reach_each_other(rendered: Path, name: str) -> None:
    objects = documents(rendered, name)
    labels = {component: pod["metadata"]["labels"] for component, pod in pods(objects).items()}
    labels["executor"] = executor(objects)["metadata"]["labels"]
    policy = objects["NetworkPolicy", "city-tidegate-spark"]["spec"]
    (peer,) = policy["ingress"][0]["from"]
    assert {each for each in labels if matches(policy["podSelector"], labels[each])} == {"runner", "executor"}
    assert {each for each in labels if matches(peer["podSelector"], labels[each])} == {"runner", "executor"}
    gateway = objects["NetworkPolicy", "city-tidegate-gateway"]["spec"]
    assert {each for each in labels if matches(gateway["podSelector"], labels[each])} == {"gateway"}


@pytest.mark.parametrize("name", ["small", "large", "local"])
def test_probes_budgets_and_services_select_what_they_should(rendered: Path, name: str) -> None:
    objects = documents(rendered, name)
    workloads = pods(objects)
    for component in ("runner", "gateway"):
        (container,) = workloads[component]["spec"]["containers"]
        paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
        assert paths == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
        schemes = {container[f"{kind}Probe"]["httpGet"]["scheme"] for kind in ("startup", "liveness", "readiness")}
        assert schemes == {"HTTPS" if name == "large" else "HTTP"}
    selected = {
        object_name: {each for each in workloads if matches(spec, workloads[each]["metadata"]["labels"])}
        for (kind, object_name), budget in objects.items()
        if kind == "PodDisruptionBudget" and (spec := budget["spec"]["selector"])
    }
    expected = {"city-tidegate-gateway": {"gateway"}}
    assert selected == (expected | {"city-tidegate-runner": {"runner"}} if name == "large" else expected)
    service = objects["Service", "city-tidegate"]["spec"]["selector"]
    found = {each for each in workloads if matches({"matchLabels": service}, workloads[each]["metadata"]["labels"])}
    assert found == {"gateway"}, "a runner's own gateway gets no traffic"


def test_pods_are_replaced_if_the_profile_changes_and_not_if_definitions_do(rendered: Path) -> None:
    templates = {name: pods(documents(rendered, name)) for name in ("large", "redefined")}
    assert all(templates["large"][each] == templates["redefined"][each] for each in ("runner", "gateway"))
    checksums = {
        name: {
            pods(documents(rendered, name))[each]["metadata"]["annotations"]["checksum/profile"]
            for each in ("runner", "gateway")
        }
        for name in ("small", "changed")
    }
    assert {len(each) for each in checksums.values()} == {1}
    assert checksums["small"] != checksums["changed"]
    annotations = pods(documents(rendered, "large"))["gateway"]["metadata"]["annotations"]
    assert set(annotations) == {"checksum/profile", "team"}


def test_definitions_are_applied_by_a_job_of_their_own(rendered: Path, tmp_path: Path) -> None:
    objects = documents(rendered, "large")
    jobs = {name: next(job for job in documents(rendered, name) if job[0] == "Job") for name in ("large", "redefined")}
    assert jobs["large"] != jobs["redefined"], "a job can't be changed"
    job = objects[jobs["large"]]
    options = parse(job["spec"]["template"]["spec"]["containers"][0]["args"])
    assert (options["files"], options["force"]) == (["/definitions/city.yaml"], True)
    (tmp_path / "city.yaml").write_text(objects["ConfigMap", "city-tidegate-definitions"]["data"]["city.yaml"])
    assert set(load([str(tmp_path / "city.yaml")]).services) == {"odd"}


def test_security_of_pods(rendered: Path) -> None:
    objects = documents(rendered, "large")
    for pod in (*pods(objects).values(), executor(objects)):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        for container in pod["spec"]["containers"]:
            security = container["securityContext"]
            assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
            assert security["capabilities"] == {"drop": ["ALL"]}


def test_chart_has_the_version_of_the_package() -> None:
    import tidegate

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (tidegate.__version__, tidegate.__version__)
