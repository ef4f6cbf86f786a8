"""A restore, on the driver: what a topic may hold before and after it, and how it is created and written to."""

from __future__ import annotations

import pytest

from strandline.spark_connector.errors import RestoreRefused
from strandline.spark_connector.pipelines.manifest import ArchivedFile, Manifest
from strandline.spark_connector.pipelines.restore import (
    RestoreOptions,
    bytes_needed_for,
    check_present,
    check_topic,
    check_whole,
    topic_configs,
    writer_settings,
)
from strandline.spark_connector.reading.planning import Held

OPTIONS = RestoreOptions("localhost:1", "/d", "t")


@pytest.mark.parametrize(
    ("held", "resume", "told"),
    [
        (Held(0, 1), False, "t-0 is not empty"),
        (Held(3, 3), False, "t-0 is not empty"),
        (Held(3, 3), True, "begins at offset 3"),
        (Held(0, 4), True, "holds 4 records, the archive only 3"),
        (Held(0, 3), True, None),
        (Held(0, 0), False, None),
    ],
)
def test_only_an_empty_topic_or_the_beginning_of_the_archive_is_taken(
    held: Held, resume: bool, told: str | None
) -> None:
    options = RestoreOptions("localhost:1", "/d", "t", resume=resume)
    if told is None:
        check_present({0: held}, {0: 3}, options)
    else:
        with pytest.raises(RestoreRefused, match=told):
            check_present({0: held}, {0: 3}, options)


def test_a_topic_that_holds_more_than_was_restored_is_told() -> None:
    check_whole({0: Held(0, 3), 1: Held(0, 0)}, {0: 3, 1: 0}, OPTIONS)
    with pytest.raises(RestoreRefused, match="t-1 holds 4 records, and the archive 3 of it: somebody else"):
        check_whole({0: Held(0, 3), 1: Held(0, 4)}, {0: 3, 1: 3}, OPTIONS)


def test_the_largest_record_of_all_runs_decides_how_large_a_batch_must_be() -> None:
    files = [ArchivedFile("f", 9, "2026-11-24", 0, 1, 1, 0, 0, largest_record_bytes=size) for size in (7, 5_000_000, 9)]
    runs = [Manifest(run, "t", "", {}, (), (file,)) for run, file in enumerate(files, 1)]
    assert bytes_needed_for(runs) > 5_000_000 > bytes_needed_for([runs[0], runs[2]])
    assert bytes_needed_for([Manifest(1, "t", "", {}, (), ())]) > 0


def test_a_topic_is_created_for_the_largest_record() -> None:
    assert topic_configs({}, 2_000)["max.message.bytes"] == "1048588"
    assert topic_configs({}, 5_000_000)["max.message.bytes"] == "5000000"
    asked = topic_configs({"max.message.bytes": "7", "retention.ms": "9"}, 5_000_000)
    assert (asked["max.message.bytes"], asked["retention.ms"], asked["retention.bytes"]) == ("7", "9", "-1")


def test_the_writer_takes_the_largest_record_and_fills_no_batch_that_the_topic_refuses() -> None:
    usual = writer_settings({}, 1_048_588, 2_000)
    assert usual["batch_size"] == 262_144 and usual["max_request_size"] == 32 << 20
    assert writer_settings({}, 20_000, 2_000)["batch_size"] < 20_000
    large = writer_settings({}, 90_000_000, 80_000_000)
    assert large["buffer_memory"] > large["max_request_size"] > 80_000_000
    asked = writer_settings({"batch_size": "5", "max_request_size": "6", "buffer_memory": "7", "acks": "all"}, 9, 8)
    assert (asked["batch_size"], asked["max_request_size"], asked["buffer_memory"]) == ("5", "6", "7")


def test_a_topic_whose_batches_may_be_too_small_is_warned_of_with_the_remedy() -> None:
    warned: list[str] = []
    check_topic(OPTIONS, 2, 2, {"max.message.bytes": "1048588"}, 1_048_588, warned.append)
    assert not warned
    check_topic(OPTIONS, 2, 2, {"max.message.bytes": "1048588"}, 5_000_000, warned.append)
    [text] = warned
    assert "'strandline configs alter --topic t --add max.message.bytes=5000000'" in text and "--resume" in text
    with pytest.raises(RestoreRefused, match="has 3 partitions, the archive 2"):
        check_topic(OPTIONS, 3, 2, {}, 0, warned.append)
