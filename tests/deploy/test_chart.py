"""The Helm chart: renders what Kubernetes, the operators and the bridge itself accept, and refuses what cannot work."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cloudcoil.models.keda import v1alpha1 as keda
from cloudcoil.models.prometheus_operator import v1 as operator
from helm.generate import CHART, COPIES, documented, outputs
from ruamel.yaml import YAML
from tests.tools import ROOT, run

from acs_aaep_bridge import __version__
from acs_aaep_bridge.config import Config, load

GOLDEN = ROOT / "tests/deploy/golden"
SETS = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))}
CRDS: dict[str, Any] = {
    "ServiceMonitor": operator.ServiceMonitor,
    "PodMonitor": operator.PodMonitor,
    "PrometheusRule": operator.PrometheusRule,
    "ScaledObject": keda.ScaledObject,
    "TriggerAuthentication": keda.TriggerAuthentication,
}


def parse(text: str) -> list[dict[str, Any]]:
    return [document for document in YAML(typ="safe", pure=True).load_all(text) if document]


def template(helm: str, *arguments: str | Path) -> list[dict[str, Any]]:
    done = run(helm, "template", "demo", CHART, "--namespace", "prod", *arguments)
    assert done.returncode == 0, done.stderr
    return parse(done.stdout)


@pytest.fixture(params=["defaults", *SETS])
def rendered(request: pytest.FixtureRequest, helm: str) -> tuple[str, str]:
    """The name and the manifests of one set of values."""
    name = request.param
    values = ["--values", str(SETS[name])] if name in SETS else []
    done = run(helm, "template", "demo", CHART, "--namespace", "prod", *values)
    assert done.returncode == 0, done.stderr
    return name, done.stdout


def of_kind(documents: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] in kinds]


def pods(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every pod specification in the manifests, whatever brings it about."""
    found = [document["spec"]["template"]["spec"] for document in of_kind(documents, "Deployment", "StatefulSet", "Job")]
    return found + [document["spec"] for document in of_kind(documents, "Pod")]


@pytest.mark.parametrize("path", outputs(), ids=lambda path: path.name)
def test_what_is_generated_is_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == outputs()[path], "run: PYTHONPATH=src python helm/generate.py"


def test_chart_and_package_have_one_version() -> None:
    chart = YAML(typ="safe", pure=True).load(CHART / "Chart.yaml")
    assert chart["appVersion"] == __version__


def test_the_chart_reads_the_same_rules_and_dashboard_as_everybody_else() -> None:
    assert {name: (CHART / "files" / name).read_bytes() for name in COPIES} == {n: p.read_bytes() for n, p in COPIES.items()}


def test_every_value_is_in_the_table() -> None:
    def paths(node: dict[str, Any], prefix: str = "") -> Iterator[str]:
        for key, value in node.items():
            if isinstance(value, dict) and value:
                yield from paths(value, f"{prefix}{key}.")
            else:
                yield prefix + key

    values = YAML(typ="safe", pure=True).load(CHART / "values.yaml")
    assert set(paths(values)) <= {path for path, _, _ in documented()}


@pytest.mark.parametrize("values", [None, *SETS.values()], ids=lambda path: path.name if path else "defaults")
def test_helm_lints_it_strictly(helm: str, values: Path | None) -> None:
    more: list[str | Path] = ["--values", values] if values else []
    done = run(helm, "lint", "--strict", CHART, *more)
    assert done.returncode == 0, done.stdout


def test_the_render_is_as_it_was(rendered: tuple[str, str]) -> None:
    """UPDATE_GOLDEN=1 writes the files anew, and fails, so that nobody forgets to read the difference."""
    name, text = rendered
    golden = GOLDEN / f"{name}.yaml"
    # The dashboard is tested on its own and would be most of the file.
    documents = [document for document in text.split("\n---\n") if "/dashboard.yaml\n" not in document]
    text = "\n---\n".join(documents)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
        pytest.fail("written anew: read the difference")
    assert parse(text) == parse(golden.read_text(encoding="utf-8"))


def test_kubernetes_accepts_it(rendered: tuple[str, str], tmp_path: Path) -> None:
    core = [document for document in parse(rendered[1]) if document["kind"] not in CRDS]
    manifests = []
    for number, document in enumerate(core):
        path = tmp_path / f"{number}.yaml"
        with path.open("w", encoding="utf-8") as file:
            YAML(typ="safe", pure=True).dump(document, file)
        manifests.append(path)
    done = run(sys.executable, "-m", "kubernetes_validate", "--strict", "-k", "1.37", *manifests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARN" not in done.stdout + done.stderr


def test_the_operators_know_every_key_of_their_resources(rendered: tuple[str, str]) -> None:
    for document in of_kind(parse(rendered[1]), *CRDS):
        model = CRDS[document["kind"]].model_validate(document)
        assert model.model_dump(mode="json", by_alias=True, exclude_unset=True) == document


def test_the_bridge_loads_the_configuration_it_will_get(rendered: tuple[str, str]) -> None:
    documents = parse(rendered[1])
    maps = {document["metadata"]["name"]: document["data"] for document in of_kind(documents, "ConfigMap")}
    for pod in pods(documents):
        container = pod["containers"][0]
        if "args" not in container or container["name"] == "ready":
            continue
        env = {one["name"]: one.get("value", "from elsewhere") for one in container.get("env", [])}
        [name] = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
        config = load(maps[name]["bridge.yaml"], env)
        assert config.http.port == container.get("ports", [{"containerPort": config.http.port}])[0]["containerPort"]
        if "terminationGracePeriodSeconds" in pod:
            assert pod["terminationGracePeriodSeconds"] * 1_000 > config.shutdown.timeout


def mounted(config: Config) -> set[str]:
    """Files that the configuration reads."""
    kafka, sasl = config.kafka, config.kafka.sasl
    files = {kafka.tls.ca_file, kafka.tls.cert_file, kafka.tls.key_file}
    files |= {secret.file for secret in config.signature.keys.values()}
    if sasl is not None and sasl.password is not None:
        files.add(sasl.password.file)
    return {str(file) for file in files if file is not None}


def test_every_file_that_the_configuration_names_is_mounted(rendered: tuple[str, str]) -> None:
    documents = parse(rendered[1])
    maps = {document["metadata"]["name"]: document["data"] for document in of_kind(documents, "ConfigMap")}
    for pod in pods(documents):
        for volume in pod.get("volumes", []):
            if "configMap" in volume:
                env = {one["name"]: "x" for one in pod["containers"][0].get("env", [])}
                config = load(maps[volume["configMap"]["name"]]["bridge.yaml"], env)
                folders = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
                assert {file.rpartition("/")[0] for file in mounted(config)} <= folders


def test_pods_run_without_any_privilege(rendered: tuple[str, str]) -> None:
    for pod in pods(parse(rendered[1])):
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}


def test_selectors_are_minimal_and_match_their_pods(rendered: tuple[str, str]) -> None:
    documents = parse(rendered[1])
    workloads = of_kind(documents, "Deployment", "StatefulSet")
    assert workloads
    for workload in workloads:
        selector = workload["spec"]["selector"]["matchLabels"]
        assert set(selector) == {f"app.kubernetes.io/{name}" for name in ("name", "instance", "component")}
        assert selector.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
    selected = [service["spec"]["selector"] for service in of_kind(documents, "Service")]
    assert selected == [workload["spec"]["selector"]["matchLabels"] for workload in workloads]


def test_a_changed_configuration_rolls_the_pods(helm: str) -> None:
    def checksum(*arguments: str) -> str:
        [deployment] = of_kind(template(helm, *arguments), "Deployment")
        return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum() != checksum("--set", "config.delivery=at_least_once")


def test_replicas_are_left_to_keda(helm: str) -> None:
    [deployment] = of_kind(template(helm, "--set", "keda.enabled=true"), "Deployment")
    assert "replicas" not in deployment["spec"]


def test_zero_is_a_value(helm: str) -> None:
    documents = template(helm, "--set", "replicaCount=0,podDisruptionBudget.minAvailable=0")
    assert of_kind(documents, "Deployment")[0]["spec"]["replicas"] == 0
    assert of_kind(documents, "PodDisruptionBudget")[0]["spec"]["minAvailable"] == 0


def test_a_stage_may_turn_off_what_is_on_for_both(helm: str) -> None:
    documents = template(helm, "--set", "stages=apart,keda.enabled=true,lifecycle.keda.enabled=false,lifecycle.replicaCount=5")
    [scaled] = of_kind(documents, "ScaledObject")
    assert scaled["spec"]["scaleTargetRef"]["name"] == "demo-acs-aaep-bridge-normalize"
    replicas = {document["metadata"]["name"]: document["spec"].get("replicas") for document in of_kind(documents, "Deployment")}
    assert replicas == {"demo-acs-aaep-bridge-normalize": None, "demo-acs-aaep-bridge-lifecycle": 5}


def test_the_grace_period_follows_the_shutdown_timeout(helm: str) -> None:
    for written, seconds in (("20s", 20), ("1500ms", 2), ("2m", 120), ("1h", 3600)):
        drain = "1s" if written == "1500ms" else "10s"
        documents = template(helm, "--set", f"config.shutdown.timeout={written},config.kafka.drain_timeout={drain}")
        [deployment] = of_kind(documents, "Deployment")
        assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == seconds + 10


def test_alerts_look_for_the_job_that_the_chart_makes(helm: str) -> None:
    enabled = "prometheusRule.enabled=true,podMonitor.enabled=true,nameOverride=ears"
    documents = template(helm, "--set", enabled)
    [rules], [monitor] = of_kind(documents, "PrometheusRule"), of_kind(documents, "PodMonitor")
    assert monitor["spec"]["jobLabel"] == "app.kubernetes.io/name"
    down = {rule["alert"]: rule for rule in rules["spec"]["groups"][0]["rules"]}["AcsAaepBridgeDown"]
    assert down["expr"] == 'up{job="ears"} == 0 or absent(up{job="ears"})'


# What the schema refuses, Helm 3 and Helm 4 say in different words; both name the value.
REFUSED: dict[str, tuple[list[str], str | re.Pattern[str]]] = {
    "an unknown key": (["replicasCount=3"], re.compile("(?i)additional propert(y|ies) '?replicasCount'?.* not allowed")),
    "an unknown option of the bridge": (
        ["config.kafka.bootstrap=x"],
        re.compile("(?i)config.kafka.*additional propert(y|ies) '?bootstrap'?.* not allowed"),
    ),
    "a value of the wrong kind": (["config.shutdown.timeout=2x"], re.compile("config.shutdown.timeout")),
    "more replicas than partitions": (["replicaCount=13"], "replicaCount: 13 replicas for 12 partitions"),
    "more replicas than partitions under KEDA": (
        ["keda.enabled=true", "keda.maxReplicaCount=13"],
        "keda.maxReplicaCount: 13 replicas for 12 partitions",
    ),
    "more replicas than partitions in one stage": (
        ["stages=apart", "lifecycle.replicaCount=13"],
        "lifecycle.replicaCount: 13 replicas for 12 partitions",
    ),
    "scaling to zero": (["keda.minReplicaCount=0"], re.compile("keda.minReplicaCount'?: (Must be greater|minimum)")),
    "a grace period below the shutdown timeout": (
        ["terminationGracePeriodSeconds=20"],
        "terminationGracePeriodSeconds: 20 s is not longer than config.shutdown.timeout (20 s)",
    ),
    "an inline password": (["kafka.sasl.password=hunter2"], "kafka.sasl.password: a secret is never written into values"),
    "an inline password in the configuration": (
        ["config.kafka.sasl.mechanism=PLAIN", "config.kafka.sasl.password=hunter2"],
        "config.kafka.sasl.password: a secret is never written into values",
    ),
    "an inline signing key": (
        ["config.signature.keys.a=hunter2"],
        "config.signature.keys.a: a secret is never written into values",
    ),
    "SASL without a Secret": (["kafka.sasl.mechanism=PLAIN", "kafka.sasl.username=a"], "kafka.sasl.existingSecret: PLAIN needs"),
    "verification without keys": (["signature.mode=verify"], "signature.existingSecret: mode verify needs"),
    "two monitors": (["serviceMonitor.enabled=true", "podMonitor.enabled=true"], "choose one"),
    "an alert that does not exist": (["prometheusRule.disabled={Nope}"], "there is no alert Nope"),
    "KEDA with OAUTHBEARER": (
        ["keda.enabled=true", "kafka.sasl.mechanism=OAUTHBEARER", "kafka.sasl.oauth.tokenFile=/t"],
        "write the ScaledObject in extraManifests",
    ),
}


@pytest.mark.parametrize(("settings", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(helm: str, settings: list[str], message: str | re.Pattern[str]) -> None:
    done = run(helm, "template", "demo", CHART, *(part for setting in settings for part in ("--set", setting)))
    assert done.returncode != 0
    assert message.search(done.stderr) if isinstance(message, re.Pattern) else message in done.stderr
    assert "hunter2" not in done.stderr


def test_everything_wrong_is_reported_together(helm: str) -> None:
    done = run(helm, "template", "demo", CHART, "--set", "replicaCount=13,signature.mode=verify,terminationGracePeriodSeconds=5")
    assert done.stderr.count("\n  - ") == 3
