"""The shipped rules by Prometheus' own tool: each alert fires when its figures say so, in time, and clears after."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from compat.alert_cases import CASES, as_promtool_tests

DEPLOY = Path(__file__).parents[2] / "deploy/prometheus"


def promtool(*arguments: str | Path) -> str:
    """What it printed; fails unless it exits with 0."""
    result = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_files_are_what_prometheus_takes() -> None:
    assert "rules found" in promtool("check", "config", "--lint-fatal", DEPLOY / "prometheus.yml")
    promtool("check", "rules", "--lint-fatal", DEPLOY / "rules.yml")


def test_every_alert_fires_in_time_and_clears(tmp_path: Path) -> None:
    groups = yaml.safe_load((DEPLOY / "rules.yml").read_text())["groups"]
    fired = {alert for case in CASES.values() for alerts in case.fires.values() for alert in alerts}
    assert {rule["alert"] for group in groups for rule in group["rules"]} == fired
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump(as_promtool_tests(str(DEPLOY / "rules.yml"))))
    promtool("test", "rules", path)
