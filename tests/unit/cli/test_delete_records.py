"""`strandline delete-records`: what is asked for, what is printed, what is refused before anybody is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.client.metadata import PartitionView
from strandline.protocol.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def topic(shell: Any) -> Any:
    """`t` has two partitions of five records each."""
    shell.cluster.add_topic("t", {0: PartitionView(1, 0, (1,), (1,)), 1: PartitionView(2, 0, (2,), (2,))})
    for partition in (0, 1):
        shell.cluster.fill("t", partition, [b"v"] * 5)
    return shell


def test_one_partition_before_an_offset(topic: Any) -> None:
    ran = topic("delete-records", "t:1", "--before", "3", "--yes")
    assert (ran.code, ran.out) == (0, "partition: t-1\tlow_watermark: 3\n")
    assert topic.cluster.settings["deleted"] == {T1: 3}


def test_a_whole_topic_and_everything(topic: Any) -> None:
    ran = topic("delete-records", "t", "--all", "-y")
    assert (ran.code, ran.out) == (0, "partition: t-0\tlow_watermark: 5\npartition: t-1\tlow_watermark: 5\n")
    assert topic.cluster.settings["deleted"] == {T0: -1, T1: -1}


def test_a_file_as_for_kafkas_tool(topic: Any, tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": -1}], "version": 1}')
    assert topic("delete-records", "--offset-json-file", str(path), "--yes").out == "partition: t-0\tlow_watermark: 5\n"


def test_json_names_each_partition_with_its_error(topic: Any) -> None:
    ran = topic("delete-records", "t:0", "t:7", "--before", "2", "--yes", "--output", "json")
    shown = json.loads(ran.out)
    assert (ran.code, shown["_command"], shown["_version"]) == (1, "delete-records", 1)
    found, absent = shown["partitions"]
    assert found == {"topic": "t", "partition": 0, "low_watermark": 2, "error": None, "message": ""}
    assert (absent["partition"], absent["low_watermark"]) == (7, None)
    assert absent["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_without_a_terminal_it_wants_yes(topic: Any) -> None:
    ran = topic("delete-records", "t", "--all")
    assert ran.code == 2 and "for good; add --yes" in ran.err and "deleted" not in topic.cluster.settings


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "either TOPIC[:PARTITION] or --offset-json-file"),
        (("t",), "either --before OFFSET or --all"),
        (("t", "--all", "--before", "3"), "either --before OFFSET or --all"),
        (("t:x", "--all"), "'t:x' is not TOPIC or TOPIC:PARTITION"),
        (("t:-1", "--all"), "'t:-1' is not TOPIC or TOPIC:PARTITION"),
        (("a/b", "--all"), "may only have letters"),
        (("t", "--before", "-1"), "--before"),
        (("--offset-json-file", "/nowhere/file"), "does not exist"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(topic: Any, arguments: tuple[str, ...], told: str) -> None:
    ran = topic("delete-records", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1) and told in ran.err


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "is not {"),
        ('{"partitions": [], "version": 2}', "is not {"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "lacks a topic, a partition or an offset"),
        ('{"partitions": [{"topic": "t", "partition": true, "offset": 1}]}', "lacks"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": -2}]}', "lacks"),
        ('{"partitions": [7]}', "lacks"),
        ('{"partitions": [{"topic": "../t", "partition": 0, "offset": 1}]}', "may only have letters"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 1},'
            ' {"topic": "t", "partition": 0, "offset": 2}]}',
            "names t-0 twice",
        ),
    ],
)
def test_a_file_that_is_no_such_file_is_told_in_one_line(topic: Any, tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "offsets.json"
    path.write_text(content)
    ran = topic("delete-records", "--offset-json-file", str(path), "--yes")
    assert (ran.code, ran.err.count("\n")) == (2, 1) and told in ran.err
    assert "deleted" not in topic.cluster.settings
