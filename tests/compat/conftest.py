"""Kafka's own command line tools, from Maven Central, run by whatever Java there is.

Collected only by `make compat`, which fails where the jars cannot be had.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from compat.jars import KAFKA_3
from compat.real_kafka import Site
from compat.written import Written
from strandline.cli.java import find_java

if not os.environ.get("STRANDLINE_COMPAT"):
    collect_ignore_glob = ["test_*.py"]

RunKafka = Callable[..., str]
NewSite = Callable[..., Site]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.compat)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Where Spark's Kafka connector and ours differ; `make compat` runs the cases in another process than this."""
    reports = [each for outcome in ("passed", "failed") for each in terminalreporter.getreports(outcome)]
    told = [value for each in reports for name, value in each.user_properties if name == "spark_conformance"]
    if told:
        from rich.console import Console

        from compat.spark_conformance.report import Line, table

        Console(width=200).print(table(Line(*each) for each in told))


@pytest.fixture(scope="session")
def kafka_class_path() -> str:
    """The real Kafka's jars."""
    return KAFKA_3.class_path()


@pytest.fixture(scope="session")
def java() -> str:
    return str(find_java().command)  # the machine's, or the one that the set-up brings


@pytest.fixture(scope="session")
def run_kafka(kafka_class_path: str, java: str) -> RunKafka:
    """run_kafka("kafka.tools.DumpLogSegments", "--files", …) → everything it printed; fails unless it exits with 0."""

    def run(main_class: str, *arguments: str) -> str:
        # The serial collector: nothing here is worth more threads than the machine has cores for.
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData"]
        command = [java, *options, *KAFKA_3.from_archive(), "-cp", kafka_class_path, main_class, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        # Newer Java runtimes warn of what Kafka's libraries do; that is no complaint about our files.
        complaints = [line for line in result.stderr.splitlines(keepends=True) if not line.startswith("WARNING:")]
        output = result.stdout + "".join(line for line in complaints if line.strip())
        assert result.returncode == 0, f"{main_class} {' '.join(arguments)} ended with {result.returncode}:\n{output}"
        return output

    return run


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """What our storage wrote; to be copied, not changed."""
    return Written(tmp_path_factory.mktemp("logs"))


@pytest.fixture
def new_site(tmp_path: Path, kafka_class_path: str, java: str) -> Iterator[NewSite]:
    """new_site({"log.segment.bytes": "20000"}, directories=2) → data folders with a ZooKeeper that serves, for Kafka
    and for us.

    The processes end with the test."""
    made: list[Site] = []

    def build(properties: Mapping[str, str] | None = None, directories: int = 1) -> Site:
        folder = tmp_path / f"site-{len(made) + 1}"
        folder.mkdir()
        made.append(
            Site(
                folder,
                java=java,
                class_path=kafka_class_path,
                java_options=KAFKA_3.from_archive(),
                properties=properties,
                directories=directories,
            )
        )
        made[-1].zookeeper.start()
        return made[-1]

    yield build
    for site in made:
        site.close()
