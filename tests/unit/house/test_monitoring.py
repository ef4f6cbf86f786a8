"""The dashboard and the alert rules are what Grafana and Prometheus take, and name only commands that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from strandline.cli.main import COMMANDS

COLUMNS = 24
"""Of Grafana's grid."""
CLUSTERS = '{job=~"strandline.*"'
"""The jobs of which the rules tell."""


@pytest.fixture
def dashboard(root: Path) -> dict[str, Any]:
    return json.loads((root / "deploy/grafana/strandline.json").read_text())


@pytest.fixture
def rules(root: Path) -> list[dict[str, Any]]:
    groups = yaml.safe_load((root / "deploy/prometheus/rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_the_dashboard_can_be_provisioned(dashboard: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-z0-9-]{1,40}", dashboard["uid"]) and dashboard["title"]
    assert dashboard["schemaVersion"] >= 36, "before, a data source was named and not identified"
    assert "id" not in dashboard, "it is the number of somebody's database"
    names = {each["name"] for each in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(dashboard["panels"])))
    assert used <= names, "a variable that there is not"
    assert names <= used, "a variable that changes nothing"


def test_panels_have_ids_of_their_own_and_do_not_overlap(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["w"] > 0 and place["h"] > 0 and 0 <= place["x"] <= COLUMNS - place["w"], panel["title"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_panel_asks_the_data_source_that_was_chosen(dashboard: dict[str, Any]) -> None:
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["type"] in ("stat", "timeseries") and panel["title"] and panel["description"]
        references = [target["refId"] for target in panel["targets"]]
        assert references and len(set(references)) == len(references), panel["title"]
        for asking in (panel, *panel["targets"]):
            assert asking["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        assert all(target["expr"] and 'job="$job"' in target["expr"] for target in panel["targets"]), panel["title"]


def test_every_alert_says_what_is_so_and_what_to_do(rules: list[dict[str, Any]]) -> None:
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names)
    for rule in rules:
        assert rule["alert"].startswith("Strandline")
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "action"}, rule["alert"]
        assert rule["expr"].count(CLUSTERS) == rule["expr"].count("{") > 0, f"{rule['alert']}: a figure of any job"


def test_families_that_the_text_of_an_alert_tells_apart_exist(root: Path, rules: list[dict[str, Any]]) -> None:
    families = re.findall(r"^\| `(\w+)`", (root / "docs/metrics.md").read_text(), re.MULTILINE)
    texts = "".join(text for rule in rules for text in rule["annotations"].values())
    patterns = set(re.findall(r'match "(.+?)"', texts))
    assert patterns and all(any(re.match(pattern, family) for family in families) for pattern in patterns)


def test_commands_that_an_alert_advises_exist(rules: list[dict[str, Any]]) -> None:
    named = {name for rule in rules for name in re.findall(r"strandline ([a-z-]+)", rule["annotations"]["action"])}
    assert named and named <= set(COMMANDS)


def test_the_compose_profile_scrapes_every_broker_and_pins_its_images(root: Path) -> None:
    compose = yaml.safe_load((root / "deploy/docker-compose.yml").read_text())
    services = compose["services"]
    brokers = {name: each for name, each in services.items() if name.startswith("broker-")}
    ports = {each["environment"]["STRANDLINE_ADMIN_LISTENER"].rpartition(":")[2] for each in brokers.values()}
    config = yaml.safe_load((root / "deploy/prometheus/prometheus.yml").read_text())
    (scraped,) = config["scrape_configs"]
    assert scraped["job_name"] == "strandline", "the job of the alert rules"
    assert set(scraped["static_configs"][0]["targets"]) == {f"{name}:{port}" for name in brokers for port in ports}
    with_profile = {name: each for name, each in services.items() if each.get("profiles") == ["metrics"]}
    assert set(with_profile) == {"prometheus", "grafana"}
    for name, service in with_profile.items():
        assert re.search(r":-v?\d+\.\d+\.\d+\}$", service["image"]), f"{name} has no version of its own"
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in compose["volumes"] if source[0] != "." else (root / "deploy" / source).exists(), volume


def test_grafana_finds_prometheus_and_the_dashboard(root: Path, dashboard: dict[str, Any]) -> None:
    deploy = root / "deploy"
    compose = yaml.safe_load((deploy / "docker-compose.yml").read_text())["services"]["grafana"]
    provisioning = deploy / "grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["type"] == "prometheus" and source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards/strandline.yml").read_text())["providers"]
    assert f"./grafana/strandline.json:{provider['options']['path']}/strandline.json:ro" in compose["volumes"]
    assert dashboard["uid"] == "strandline"
