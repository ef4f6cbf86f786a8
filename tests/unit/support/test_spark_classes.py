"""The archive of Spark's classes is used for as long as it is of the Spark and the Java that are here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import spark_classes
from support.spark import SHORT_LIVED_JAVA


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "spark.jsa"
    monkeypatch.setattr(spark_classes, "ARCHIVE", path)
    return path


def test_spark_starts_without_an_archive_that_was_not_made(archive: Path) -> None:
    assert spark_classes.java_options() == SHORT_LIVED_JAVA


def test_an_archive_is_used_until_spark_or_java_is_newer(archive: Path) -> None:
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in spark_classes.java_options().split()
    os.utime(archive, (0, 0))
    assert spark_classes.java_options() == SHORT_LIVED_JAVA
