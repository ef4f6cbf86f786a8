"""Kafka's jars from Maven Central, of two versions: the one whose broker we are held against, and the newest clients.
And those with which Spark itself reads a Kafka.

They stay in `.cache`, until another pom.xml asks for others.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_CACHE = _HERE.parents[1] / ".cache"


@dataclass(frozen=True, slots=True)
class Jars:
    pom: Path
    folder: Path

    def class_path(self) -> str:
        """Of all of them; they are fetched first where they are missing. Fails the test where they cannot be had."""
        complete = self.folder / ".complete"
        _CACHE.mkdir(exist_ok=True)
        with self.folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
            if not complete.exists() or complete.read_text() != self.pom.read_text():
                self._fetch()
                complete.write_text(self.pom.read_text())
        return f"{self.folder}/*"

    @property
    def archive(self) -> Path:
        """Of these classes as a Java has loaded them: compat.class_archives makes it."""
        return self.folder.with_suffix(".jsa")

    def from_archive(self) -> tuple[str, ...]:
        """What has a Java take its classes from the archive, if there is one. A Java that has no use for it, as one of
        another version, says nothing and does without."""
        return (f"-XX:SharedArchiveFile={self.archive}", "-Xlog:cds*=off") if self.archive.exists() else ()

    def _fetch(self) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            pytest.fail("Maven (mvn) is missing: install it (Debian: apt-get install maven) and run make compat again")
        shutil.rmtree(self.folder, ignore_errors=True)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={self.folder}"]
        command = [maven, "-q", "-B", "-f", str(self.pom), *copy]
        result = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if result.returncode:
            pytest.fail(f"Kafka's jars could not be fetched: {' '.join(command)}\n{result.stdout}{result.stderr}")


KAFKA_3 = Jars(_HERE / "pom.xml", _CACHE / "kafka-jars")
KAFKA_4 = Jars(_HERE / "pom-4.xml", _CACHE / "kafka-4-jars")
KAFKA_OF_SPARK = Jars(_HERE / "pom-spark.xml", _CACHE / "spark-kafka-jars")
