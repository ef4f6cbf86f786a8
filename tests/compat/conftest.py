"""Kafka's own command line tools, from Maven Central, run by whatever Java there is.

`make compat` runs these tests and fails where the jars cannot be had. Without it (plain `make test`) they run only
where an earlier `make compat` has left the jars in `.cache/kafka-jars`, and are skipped elsewhere, saying so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.cli.java import find_java

ROOT = Path(__file__).resolve().parents[2]
POM = Path(__file__).with_name("pom.xml")
JARS = ROOT / ".cache" / "kafka-jars"
DONE = JARS / ".complete"
"""Holds the pom.xml that the jars were fetched for."""

RunKafka = Callable[..., str]


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
def run_kafka() -> RunKafka:
    """run_kafka("kafka.tools.DumpLogSegments", "--files", …) → everything it printed; fails unless it exits with 0."""
    if not have_jars():
        if not os.environ.get("STRANDLINE_COMPAT"):
            pytest.skip("Kafka's jars are not in .cache/kafka-jars: run `make compat`")
        fetch_jars()
    java = str(find_java().command)  # the machine's, or the one that the set-up brings

    def run(main_class: str, *arguments: str) -> str:
        # The serial collector: nothing here is worth more threads than the machine has cores for.
        command = [java, "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{JARS}/*", main_class, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        # Newer Java runtimes warn of what Kafka's libraries do; that is no complaint about our files.
        complaints = [line for line in result.stderr.splitlines(keepends=True) if not line.startswith("WARNING:")]
        output = result.stdout + "".join(line for line in complaints if line.strip())
        assert result.returncode == 0, f"{main_class} {' '.join(arguments)} ended with {result.returncode}:\n{output}"
        return output

    return run
