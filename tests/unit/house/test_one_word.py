"""What an operator must act on has one limit and one remedy, whoever tells of it: brokers, doctor, the alert rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from strandline.broker.admin import remedies
from strandline.cli.cluster_checks import CLUSTER_CHECKS
from strandline.cli.main import COMMANDS


@pytest.fixture
def rules(root: Path) -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load((root / "deploy/prometheus/rules.yml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_a_volume_is_nearly_full_from_the_same_part_on(rules: dict[str, dict[str, Any]]) -> None:
    limit = re.search(r"< ([0-9.]+)$", rules["StrandlineDiskNearlyFull"]["expr"].strip())
    assert limit is not None and float(limit[1]) == remedies.NEARLY_FULL_PART


def test_commands_that_are_advised_exist() -> None:
    texts = [text for name, text in vars(remedies).items() if name.isupper() and isinstance(text, str)]
    texts += [check.remedy for check in CLUSTER_CHECKS]
    named = {name for text in texts for name in re.findall(r"strandline ([a-z][a-z-]+)", text)}
    assert {"recover", "broker-decommission"} <= named <= set(COMMANDS)


def test_partitions_without_a_leader_are_recovered_with_the_least_loss(rules: dict[str, dict[str, Any]]) -> None:
    [doctor] = [check.remedy for check in CLUSTER_CHECKS if check.name == "offline partitions"]
    rule = rules["StrandlineOfflinePartitions"]["annotations"]["action"]
    for text in (doctor, rule, remedies.RECOVER):
        assert "strandline recover TOPIC" in text and "unclean" not in text


def test_under_the_minimum_writes_are_refused_and_do_not_wait(rules: dict[str, dict[str, Any]]) -> None:
    [doctor] = [check.remedy for check in CLUSTER_CHECKS if check.name == "under min.insync.replicas"]
    rule = rules["StrandlineUnderMinIsr"]["annotations"]["description"]
    assert remedies.REFUSED in doctor and remedies.REFUSED in rule.lower()
