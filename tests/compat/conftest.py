"""Kafka's own command line tools, from Maven Central, run by whatever Java there is.

Collected only by `make compat`, which fails where the jars cannot be had; they stay in `.cache/kafka-jars`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from compat.real_kafka import Site
from compat.written import Written
from strandline.cli.java import find_java

ROOT = Path(__file__).resolve().parents[2]
POM = Path(__file__).with_name("pom.xml")
JARS = ROOT / ".cache" / "kafka-jars"
DONE = JARS / ".complete"
"""Holds the pom.xml that the jars were fetched for."""

if not os.environ.get("STRANDLINE_COMPAT"):
    collect_ignore_glob = ["test_*.py"]

RunKafka = Callable[..., str]
NewSite = Callable[..., Site]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.compat)


def have_jars() -> bool:
    return DONE.exists() and DONE.read_text() == POM.read_text()


def fetch_jars() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.fail("Maven (mvn) is missing: install it (Debian: apt-get install maven) and run make compat again")
    shutil.rmtree(JARS, ignore_errors=True)
    command = [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if result.returncode:
        pytest.fail(f"Kafka's jars could not be fetched: {' '.join(command)}\n{result.stdout}{result.stderr}")
    DONE.write_text(POM.read_text())


@pytest.fixture(scope="session")
def kafka_class_path() -> str:
    """The real Kafka's jars."""
    if not have_jars():
        fetch_jars()
    return f"{JARS}/*"


@pytest.fixture(scope="session")
def java() -> str:
    return str(find_java().command)  # the machine's, or the one that the set-up brings


@pytest.fixture(scope="session")
def run_kafka(kafka_class_path: str, java: str) -> RunKafka:
    """run_kafka("kafka.tools.DumpLogSegments", "--files", …) → everything it printed; fails unless it exits with 0."""

    def run(main_class: str, *arguments: str) -> str:
        # The serial collector: nothing here is worth more threads than the machine has cores for.
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        command = [java, *options, "-cp", kafka_class_path, main_class, *arguments]
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
            Site(folder, java=java, class_path=kafka_class_path, properties=properties, directories=directories)
        )
        made[-1].zookeeper.start()
        return made[-1]

    yield build
    for site in made:
        site.close()
