"""A real Prometheus that scrapes an embedded cluster with the shipped files, but faster.

What is changed is in one place, `fast`: intervals, targets, and how long an alert waits until it fires. The expressions
stay as they are shipped.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from strandline.cli.process import Daemon
from strandline.runtime.loopback import LOOPBACK, free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
INTERVAL = "2s"
"""Of scrapes and evaluations; a scrape may take as long, on a machine that is busy."""


def fast(folder: Path, targets: Sequence[str]) -> Path:
    """The shipped configuration with its rules, written there for these targets."""
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    config["global"] = {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL}
    config["scrape_configs"][0]["static_configs"] = [{"targets": list(targets)}]
    rules = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    (folder / "rules.yml").write_text(yaml.safe_dump(rules))
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


class Prometheus:
    """A process; also a context manager that starts and stops it."""

    def __init__(self, folder: Path, targets: Sequence[str]) -> None:
        folder.mkdir()
        self._folder = folder
        self._config = fast(folder, targets)
        self._port = free_port()
        self._daemon = Daemon("Prometheus", folder / "prometheus.log")

    def __enter__(self) -> Prometheus:
        self._daemon.start(
            [
                "prometheus",
                f"--config.file={self._config}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address={LOOPBACK}:{self._port}",
            ],
            folder=self._folder,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._daemon.stop(10)

    @property
    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self._port}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """The series that it gives now. AssertionError with Prometheus' own words where it is none."""
        return self._ask("query", {"query": expression})["result"]

    def query_range(self, expression: str, since_s: float, until_s: float, step_s: float) -> list[Mapping[str, Any]]:
        """The series, each with its values over this time (seconds since 1970)."""
        arguments = {"query": expression, "start": str(since_s), "end": str(until_s), "step": str(step_s)}
        return self._ask("query_range", arguments)["result"]

    def firing(self) -> dict[str, Mapping[str, Any]]:
        """Name of each alert that fires → one of its texts."""
        alerts = self._ask("alerts", {})["alerts"]
        return {each["labels"]["alertname"]: each["annotations"] for each in alerts if each["state"] == "firing"}

    def _ask(self, what: str, arguments: Mapping[str, str]) -> Any:
        url = f"http://{LOOPBACK}:{self._port}/api/v1/{what}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{arguments}: {error.read().decode()}") from None
