"""Make archives of Kafka's classes as a Java has loaded them. Whatever of Kafka is started then takes two thirds of the
processor's time until it serves; without them the tests run as well, only longer.

    PYTHONPATH=tests python -m compat.class_archives

Idempotent: they are made anew when the jars or the Java are newer. Of 3.9 they have what a broker loads, of 4 what a
consumer does; much of that is common to all tools.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from compat.jars import KAFKA_3, KAFKA_4, Jars
from compat.other_clients import java
from compat.real_kafka import Site, numbered
from strandline.cli.java import find_java


def is_fresh(jars: Jars) -> bool:
    jars.class_path()
    made_of = (jars.pom, jars.folder / ".complete", find_java().command.resolve())
    return jars.archive.exists() and jars.archive.stat().st_mtime > max(each.stat().st_mtime for each in made_of)


def make(folder: Path) -> None:
    """They take the place of the old ones once they are whole. folder: for what is made meanwhile, on the same disk."""
    new = {jars: folder / jars.archive.name for jars in (KAFKA_3, KAFKA_4)}
    _run_with(new, folder)
    for jars, path in new.items():
        if path.exists():  # a Java that has no archive of its own classes writes none
            path.chmod(0o444)
            os.replace(path, jars.archive)


def _run_with(new: Mapping[Jars, Path], folder: Path) -> None:
    """A broker and a consumer, of which each writes its archive as it ends."""
    site = Site(
        folder,
        java=str(find_java().command),
        class_path=KAFKA_3.class_path(),
        java_options=[f"-XX:ArchiveClassesAtExit={new[KAFKA_3]}"],
    )
    try:
        site.zookeeper.start()
        site.kafka.start()
        site.kafka.create_topic("t")
        site.kafka.produce("t", numbered(1))
        options = ["--bootstrap-server", site.kafka.address, "--topic", "t", "--from-beginning", "--max-messages", "1"]
        command = java(KAFKA_4, "org.apache.kafka.tools.consumer.ConsoleConsumer", *options)
        command = [each for each in command if each not in KAFKA_4.from_archive()]  # one that reads one writes none
        command.insert(1, f"-XX:ArchiveClassesAtExit={new[KAFKA_4]}")
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        site.kafka.stop()
    finally:
        site.close()


def main() -> None:
    """One run at a time; another one waits, and finds them made."""
    KAFKA_3.class_path()
    with (KAFKA_3.folder.parent / "class-archives.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_fresh(KAFKA_3) and is_fresh(KAFKA_4):
            return
        with tempfile.TemporaryDirectory(prefix="archives-", dir=KAFKA_3.folder.parent) as folder:
            try:
                make(Path(folder))
            except Exception as failure:
                sys.stderr.write(f"compat: no new archives of Kafka's classes, it starts more slowly: {failure!r}\n")


if __name__ == "__main__":
    main()
