"""The manifests keep the published schemas, belong together, and give the broker a configuration that it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from strandline.runtime.config.properties import parse_properties
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.variables import properties_from_environment
from support.readme import below, block, shell

VERSIONS = ("1.28", "1.37")
"""The oldest that the manifests are for, and a new one."""
POD = {
    "metadata.name": "strandline-2",
    "metadata.namespace": "streams",
    "metadata.labels['apps.kubernetes.io/pod-index']": "2",
    "metadata.labels['topology.kubernetes.io/zone']": "",
}


@pytest.fixture(scope="module")
def manifests(root: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((root / "deploy/kubernetes/strandline.yaml").read_text()))


@pytest.fixture(scope="module")
def stateful_set(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    return next(each for each in manifests if each["kind"] == "StatefulSet")["spec"]


def container(stateful_set: Mapping[str, Any]) -> dict[str, Any]:
    (found,) = stateful_set["template"]["spec"]["containers"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_keep_the_published_schemas(manifests: list[dict[str, Any]], version: str) -> None:
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_misspelt_key_is_found(stateful_set: dict[str, Any]) -> None:
    with pytest.raises(kubernetes_validate.ValidationError, match="replicaz"):
        manifest = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {**stateful_set, "replicaz": 3}}
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


def test_all_of_them_mean_the_same_pods(manifests: list[dict[str, Any]], root: Path) -> None:
    by_kind = {each["kind"]: each["spec"] for each in manifests if "spec" in each}
    pods = by_kind["StatefulSet"]["template"]["metadata"]["labels"]
    assert by_kind["PodDisruptionBudget"] == {"maxUnavailable": 1, "selector": {"matchLabels": pods}}
    assert by_kind["StatefulSet"]["selector"]["matchLabels"] == pods
    services = {each["metadata"]["name"]: each["spec"] for each in manifests if each["kind"] == "Service"}
    assert all(service["selector"] == pods for service in services.values())
    headless = services[by_kind["StatefulSet"]["serviceName"]]
    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"]
    assert by_kind["NetworkPolicy"]["podSelector"]["matchLabels"] == pods
    monitor = yaml.safe_load((root / "deploy/kubernetes/podmonitor.yaml").read_text())["spec"]
    assert monitor["selector"]["matchLabels"] == pods
    ports = {port["name"] for port in container(by_kind["StatefulSet"])["ports"]}
    assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports
    for each in monitor["podMetricsEndpoints"]:
        (job,) = (rule for rule in each["relabelings"] if rule["targetLabel"] == "job")
        assert job["sourceLabels"] == ["__meta_kubernetes_namespace"], "two clusters are two jobs"
        assert job["replacement"] == "strandline-$1", "a job of the alert rules"


def test_a_pod_has_a_configuration_that_the_broker_takes(
    manifests: list[dict[str, Any]], stateful_set: dict[str, Any], root: Path
) -> None:
    variables = dict(next(each for each in manifests if each["kind"] == "ConfigMap")["data"])
    for each in container(stateful_set)["env"]:
        value = each["value"] if "value" in each else POD[each["valueFrom"]["fieldRef"]["fieldPath"]]
        variables[each["name"]] = re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], value)
    image = parse_properties((root / "deploy/image.properties").read_text())
    config = load_broker_config(image | properties_from_environment(variables))
    assert all("without encryption or password" in each for each in config.warnings)
    assert config.broker_id == 2 and config.broker_rack is None
    (advertised,) = config.advertised_listeners
    assert advertised.host == "strandline-2.strandline.streams.svc", "clients of other namespaces find it"
    ports = {port["name"]: port["containerPort"] for port in container(stateful_set)["ports"]}
    assert config.admin_listener is not None and config.admin_listener.port == ports["admin"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container(stateful_set)[probe]["httpGet"]["port"] in ports
    (data,) = (each for each in container(stateful_set)["volumeMounts"] if each["name"] == "data")
    assert config.log_dirs == (data["mountPath"],)


def test_everybody_reaches_the_listener_and_only_brokers_and_prometheus_the_admin_port(
    manifests: list[dict[str, Any]], stateful_set: dict[str, Any]
) -> None:
    policy = next(each for each in manifests if each["kind"] == "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    who_reaches = {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}
    assert set(who_reaches) == {port["name"] for port in container(stateful_set)["ports"]}
    assert who_reaches["broker"] is None, "clients of any namespace"
    brokers, prometheus = who_reaches["admin"]
    assert brokers == {"podSelector": policy["podSelector"]}
    assert set(prometheus) == {"namespaceSelector", "podSelector"}, "both of one pod, not one or the other"


def test_the_readme_makes_of_the_alerts_what_the_prometheus_operator_takes(root: Path) -> None:
    made = yaml.safe_load(shell(block("In Kubernetes", "sh").replace("kubectl apply -f -", "cat"), root))
    assert made.pop("spec") == yaml.safe_load((root / "deploy/prometheus/rules.yml").read_text())
    assert made == {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "strandline"},
    }


def test_who_is_passed_by_without_a_word_is_warned(root: Path) -> None:
    """A port that the network policy does not let in, and a monitor without the labels that the operator asks for."""
    readme, folder = below("In Kubernetes"), root / "deploy/kubernetes"
    for page in (readme, (folder / "podmonitor.yaml").read_text()):
        assert "podMonitorSelector" in page and "release: " in page
    head = (folder / "strandline.yaml").read_text().partition("apiVersion")[0]
    assert "NetworkPolicy below" in head.partition("Clients outside")[2]
    assert "port in the policy" in readme.partition("clients outside")[2]


def test_names_of_services_do_not_become_keys(stateful_set: dict[str, Any]) -> None:
    assert stateful_set["template"]["spec"]["enableServiceLinks"] is False
