"""Manifests: what is written is read, damage is named, and the next run begins where the last one ended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from strandline.spark_connector.errors import ArchiveDamaged, ArchiveMismatch
from strandline.spark_connector.pipelines.archive import archive_page
from strandline.spark_connector.pipelines.manifest import (
    ArchivedFile,
    Manifest,
    Missing,
    Offsets,
    check_history,
    from_json,
    next_run,
    to_json,
)
from strandline.spark_connector.reading.planning import Held

ID = "00" * 15 + "07"
FILE = ArchivedFile("day=2026-11-24/part-0.parquet", 900, "2026-11-24", 0, 7, 70, 0, 9, 30)


def manifest(run: int = 1, **offsets: Any) -> Manifest:
    """`p0=(0, 10)`: what the run covered."""
    covered = {int(name[1:]): Offsets(*each) for name, each in offsets.items()}
    return Manifest(run, "clicks", ID, covered, (), (FILE,) if run == 1 else ())


def planned(last: Manifest | None, held: dict[int, tuple[int, int]], **options: Any) -> Any:
    settings = {"topic": "clicks", "topic_id": ID, "allow_missing": False, "warn": pytest.fail, **options}
    return next_run(last, held={partition: Held(*each) for partition, each in held.items()}, **settings)


offsets = some.tuples(some.integers(0, 2**62), some.integers(0, 2**62)).map(lambda pair: Offsets(*sorted(pair)))


@given(some.dictionaries(some.integers(0, 2**31), offsets), some.text(), some.integers(1, 10**7))
def test_what_is_written_is_read(covered: dict[int, Offsets], topic: str, run: int) -> None:
    whole = Manifest(run, topic, ID, covered, (Missing(3, 4, 5),), (FILE,))
    assert from_json(to_json(whole), "there") == whole


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-2],
        lambda text: "[]",
        lambda text: "[" * 100_000,
        lambda text: text.replace('"version": 1', '"version": 2'),
        lambda text: text.replace('"topic_id"', '"other"'),
        lambda text: text.replace('"size_bytes"', '"other"'),
        lambda text: json.dumps({**json.loads(text), "offsets": {"0": [5, 3]}}),
        lambda text: json.dumps({**json.loads(text), "offsets": {"0": [0]}}),
        lambda text: json.dumps({**json.loads(text), "offsets": {"x": [0, 1]}}),
        lambda text: json.dumps({**json.loads(text), "run": "1"}),
    ],
)
def test_a_damaged_manifest_is_named(damage: Any) -> None:
    with pytest.raises(ArchiveDamaged, match="/data/m"):
        from_json(damage(to_json(manifest(p0=(0, 10)))), "/data/m")


def test_runs_must_follow_each_other() -> None:
    check_history([], "d")
    check_history(
        [manifest(1, p0=(0, 10)), manifest(2, p0=(10, 12), p1=(0, 3)), manifest(3, p0=(12, 12), p1=(3, 4))], "d"
    )
    gap = Manifest(2, "clicks", ID, {0: Offsets(15, 20)}, (Missing(0, 10, 15),), ())
    check_history([manifest(1, p0=(0, 10)), gap], "d")
    for second, told in (
        (manifest(3, p0=(10, 11)), "lacks run 2"),
        (manifest(2, p0=(11, 12)), "does not go on"),
        (manifest(2, p1=(0, 1)), "does not go on"),
        (Manifest(2, "clicks", "ff", {0: Offsets(10, 11)}, (), ()), "another topic"),
    ):
        with pytest.raises(ArchiveDamaged, match=told):
            check_history([manifest(1, p0=(0, 10)), second], "d")


def test_the_first_run_takes_what_there_is_and_later_ones_what_is_new() -> None:
    first = planned(None, {0: (5, 9), 1: (0, 0)})
    assert (first.run, first.offsets, first.wanted) == (1, {0: (5, 9), 1: (0, 0)}, {0: (5, 9)})
    last = manifest(1, p0=(5, 9), p1=(0, 0))
    assert planned(last, {0: (6, 9), 1: (0, 0)}).is_empty
    later = planned(last, {0: (9, 12), 1: (0, 0), 2: (0, 4)})
    assert (later.run, later.wanted, later.is_empty) == (2, {0: (9, 12), 2: (0, 4)}, False)


def test_what_was_deleted_before_it_was_archived_is_told() -> None:
    last = manifest(1, p0=(0, 10))
    with pytest.raises(ArchiveMismatch, match=r"\[10, 15\) of clicks-0 were deleted .*--allow-missing"):
        planned(last, {0: (15, 15)})
    told: list[str] = []
    allowed = planned(last, {0: (15, 15)}, allow_missing=True, warn=told.append)
    assert (allowed.missing, allowed.offsets, allowed.is_empty, len(told)) == (
        (Missing(0, 10, 15),),
        {0: (15, 15)},
        False,
        1,
    )


@pytest.mark.parametrize(
    ("held", "options", "told"),
    [
        ({0: (0, 8)}, {"allow_missing": True}, "lost records"),
        ({1: (0, 8)}, {}, "no partition 0 any more"),
        ({0: (0, 10)}, {"topic": "other"}, "archive of topic 'clicks'"),
        ({0: (0, 10)}, {"topic_id": "ff"}, "created anew"),
    ],
)
def test_a_topic_that_is_not_the_archived_one_is_refused(held: Any, options: Any, told: str) -> None:
    with pytest.raises(ArchiveMismatch, match=told):
        planned(manifest(1, p0=(0, 10)), held, **options)


def test_the_page_shows_days_partitions_and_what_is_missing() -> None:
    gap = Manifest(2, "clicks", ID, {0: Offsets(15, 20)}, (Missing(0, 10, 15),), ())
    shown = archive_page([manifest(1, p0=(0, 10)), gap])
    assert "2026-11-24, partition 0: 7 records" in shown and "Deleted before they were archived" in shown
    assert "nothing to show" in archive_page([Manifest(1, "clicks", ID, {}, (), ())])
