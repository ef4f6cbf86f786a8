"""`strandline archive` and `restore`: what is asked for, shown and refused; the pipelines are fakes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline.cli import archive as commands
from strandline.cli.options import LOOK_TIMEOUT_MS
from strandline.spark_connector.pipelines import archive as archiving
from strandline.spark_connector.pipelines import restore as restoring
from strandline.spark_connector.pipelines.archive import ArchivedPartition, ArchiveOptions, ArchiveSummary
from strandline.spark_connector.pipelines.manifest import Missing
from strandline.spark_connector.pipelines.restore import RestoredPartition, RestoreOptions, RestoreSummary


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options that the pipelines were given; no Spark starts."""
    given: list[Any] = []

    @contextmanager
    def pipeline(name: str, output: str) -> Iterator[tuple[object, object]]:
        yield None, print

    def archive(spark: object, options: ArchiveOptions, disk: object, **told: Any) -> ArchiveSummary:
        given.append(options)
        told["warn"]("records are gone")
        partitions = (ArchivedPartition(0, 5, 9, 4, 2048),)
        run = None if options.topic == "idle" else 2
        return ArchiveSummary(
            options.topic, "07", options.folder, run, partitions, (Missing(0, 3, 5),), 1, 900, 4, 7, "/o.html"
        )

    def restore(spark: object, options: RestoreOptions, disk: object, **told: Any) -> RestoreSummary:
        given.append(options)
        partitions = (RestoredPartition(0, 1, 3, 2048, False),)
        return RestoreSummary(options.topic, options.folder, "clicks", True, partitions, 1, 3, 2048, False)

    monkeypatch.setattr(commands, "pipeline", pipeline)
    monkeypatch.setattr(archiving, "archive", archive)
    monkeypatch.setattr(restoring, "restore", restore)
    return given


def test_an_archive_is_told_as_a_table(shell: Any, asked: list[Any], tmp_path: Path) -> None:
    ran = shell("archive", "clicks", "--to", str(tmp_path / "a"), "-b", "there:1", "-X", "request.timeout.ms=5")
    assert ran.code == 0 and ran.err == "strandline: warning: records are gone\n"
    assert ran.out.splitlines() == [
        "PARTITION FROM-OFFSET TO-OFFSET RECORDS DATA",
        "0         5           9         4       2.0 KiB",
        "run 2: 4 records in 1 file, 900 B; 7 records are archived",
        "overview: /o.html",
    ]
    assert asked == [
        ArchiveOptions("there:1", "clicks", str(tmp_path / "a"), False, {"kafka.request.timeout.ms": "5"}),
    ]
    assert (tmp_path / "a").is_dir()
    assert "nothing new in idle; 7 records" in shell("archive", "idle", "--to", str(tmp_path / "a")).out


def test_json_has_the_whole_summary(shell: Any, asked: list[Any], tmp_path: Path) -> None:
    ran = shell("archive", "clicks", "--to", str(tmp_path), "--output", "json", "--allow-missing")
    shown = json.loads(ran.out)
    assert (shown["_command"], shown["run"], shown["missing"]) == (
        "archive",
        2,
        [{"partition": 0, "start": 3, "end": 5}],
    )
    assert asked[-1].allow_missing
    shown = json.loads(shell("restore", str(tmp_path), "-t", "again", "--output", "json").out)
    assert (shown["_command"], shown["written"], shown["partitions"][0]["verified"]) == ("restore", 3, 1)


def test_a_restore_is_told_as_a_table_and_a_page(shell: Any, asked: list[Any], tmp_path: Path) -> None:
    options = ("--resume", "--replication-factor", "2", "--config", "retention.ms=5", "-X", "linger.ms=1")
    ran = shell("restore", str(tmp_path), "-t", "again", "-b", "there:1", *options, "--page", str(tmp_path / "p.html"))
    assert ran.out.splitlines() == [
        "PARTITION FOUND-THERE WRITTEN DATA    OFFSETS",
        "0         1           3       2.0 KiB without gaps",
        "3 records of clicks written to again (created), 1 were there",
        "offsets differ from the archived ones behind gaps; the order is the same",
    ]
    assert asked == [
        RestoreOptions("there:1", str(tmp_path), "again", True, 2, {"retention.ms": "5"}, {"linger_ms": 1})
    ]
    assert "Restore of clicks into again" in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("archive", "a/b", "--to", "x"), "may only have letters"),
        (("archive", "clicks"), "--to"),
        (("restore", "/nowhere/at/all", "-t", "again"), "does not exist"),
        (("restore", ".", "-t", "again", "--config", "x"), "is not KEY=VALUE"),
        (("restore", ".", "-t", "again", "--page", "/nowhere/p.html"), "there is no folder /nowhere"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(shell: Any, arguments: tuple[str, ...], told: str) -> None:
    ran = shell(*arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1) and told in ran.err


@pytest.mark.parametrize("package", ["pyspark.sql", "pyarrow"])
def test_what_is_not_installed_is_told_in_one_line(
    shell: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    ran = shell("archive", "clicks", "--to", str(tmp_path), "-b", "there:1")
    assert (ran.code, ran.err.count("\n")) == (1, 1) and "pip install '.[spark]'" in ran.err


@pytest.mark.parametrize("arguments", [("archive", "clicks", "--to", "new"), ("restore", ".", "-t", "again")])
def test_a_cluster_that_does_not_answer_is_told_before_spark_starts(
    shell: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(commands, "pipeline", lambda name, output: pytest.fail("Spark starts"))
    monkeypatch.chdir(tmp_path)
    cluster.is_reachable = False
    ran = shell(*arguments, "-b", "there:1", "-X", "request.timeout.ms=5", "-X", "linger.ms=1")
    assert (ran.code, ran.err) == (1, "strandline: no broker answers\n")
    assert not (tmp_path / "new").exists()
    assert cluster.settings == {"default_api_timeout_ms": LOOK_TIMEOUT_MS, "request_timeout_ms": 5}
