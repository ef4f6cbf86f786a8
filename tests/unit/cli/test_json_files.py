"""The JSON files of Kafka's tools: theirs are read, ours are theirs, and what is wrong is named with its place."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from strandline.cli import json_files
from strandline.cli.json_files import (
    assignment_json,
    read_assignment,
    read_json,
    read_partitions,
    read_topics,
    write_assignment,
)
from strandline.protocol.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GOOD = '{"topic":"t","partition":0,"replicas":[1,2]}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def test_kafkas_files_are_read(file: Path) -> None:
    file.write_text(
        '{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[3,1],"log_dirs":["any","any"]},'
        '{"partition":0,"topic":"t","replicas":[2]}]}'
    )
    assert list(read_assignment(file).items()) == [(T1, (3, 1)), (T0, (2,))]
    file.write_text('\ufeff{"partitions":[' + GOOD + "]}")
    assert read_assignment(file) == {T0: (1, 2)}
    file.write_text('{"topics":[{"topic":"t"},{"topic":"u.v"}],"version":1}')
    assert read_topics(file) == ["t", "u.v"]
    file.write_text('{"partitions":[{"topic":"t","partition":1},{"topic":"t","partition":0}]}')
    assert read_partitions(file) == [T1, T0]


def test_the_directories_that_a_later_tool_prints_are_passed_over_and_that_is_said(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        '{"partitions":[{"topic":"t","partition":1,"replicas":[3,1],"log_dirs":["/data","any"]},' + GOOD + "]}"
    )
    assert read_assignment(file) == {T1: (3, 1), T0: (1, 2)}
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "plan.json names log_dirs, which are passed over" in said
    file.write_text('{"partitions":[' + GOOD + "]}")
    read_assignment(file)
    assert not capsys.readouterr().err


def test_what_is_written_has_every_field_and_is_read_again(file: Path) -> None:
    plan = {T1: (3, 1), T0: (2,)}
    write_assignment(file, plan)
    assert list(read_assignment(file).items()) == list(plan.items())
    assert json.loads(file.read_text()) == json.loads(assignment_json(plan))
    assert json.loads(assignment_json(plan))["partitions"][0] == {
        "topic": "t",
        "partition": 1,
        "replicas": [3, 1],
        "log_dirs": ["any", "any"],
    }
    assert [each.name for each in file.parent.iterdir()] == ["plan.json"], "nothing half-written is left"


def test_a_folder_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(click.ClickException, match=r"absent/plan.json cannot be written"):
        write_assignment(file.parent / "absent" / "plan.json", {T0: (1,)})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("{", "is no JSON: .*line 1 column 2"),
        ("[" * 100_000, "is no JSON for us: .*too deep"),
        ("9" * 10_000, "a number is too long"),
        ("[]", "is not"),
        ("{}", "is not"),
        ('{"partitions": 3}', "is not"),
        ('{"partitions": []}', "partitions is empty"),
        ('{"partitions": [3]}', r"partitions\[0\] is no object but 3"),
        ('{"version": 2, "partitions": [' + GOOD + "]}", "version 2 is not known"),
        ('{"version": true, "partitions": [' + GOOD + "]}", "version true is not known"),
        ('{"partitions": [' + GOOD + '], "partitions": []}', 'the key "partitions" is there twice'),
        ('{"partitions": [{"topic":"t","topic":"u","partition":0,"replicas":[1]}]}', 'the key "topic" is there twice'),
        ('{"partitions": [' + GOOD + '], "throttle": 3}', 'unknown field "throttle"; known are partitions, version'),
        ('{"partitions": [{"topic":"t","partition":0,"replica":[1]}]}', r'partitions\[0\]: unknown field "replica"'),
        ('{"partitions": [{"partition":0,"replicas":[1]}]}', r"partitions\[0\]: topic null is no name"),
        ('{"partitions": [{"topic":"a b","partition":0,"replicas":[1]}]}', r"partitions\[0\]: .*a b"),
        ('{"partitions": [{"topic":"t","partition":"0","replicas":[1]}]}', 'partition "0" is no number'),
        ('{"partitions": [{"topic":"t","partition":true,"replicas":[1]}]}', "partition true is no number"),
        ('{"partitions": [{"topic":"t","partition":-1,"replicas":[1]}]}', "partition -1 is no number"),
        ('{"partitions": [{"topic":"t","partition":2147483648,"replicas":[1]}]}', "is no number"),
        ('{"partitions": [' + GOOD + "," + GOOD + "]}", r"partitions\[1\]: t-0 is named twice"),
        ('{"partitions": [{"topic":"t","partition":0}]}', r"partitions\[0\] \(t-0\): replicas null is no list"),
        ('{"partitions": [{"topic":"t","partition":0,"replicas":[]}]}', r"\(t-0\): replicas is empty"),
        ('{"partitions": [{"topic":"t","partition":0,"replicas":[1,2,1]}]}', r"\(t-0\): replicas names broker 1 twice"),
        ('{"partitions": [{"topic":"t","partition":0,"replicas":[1.5]}]}', r"replicas has 1.5, which is no broker id"),
        ('{"partitions": [{"topic":"t","partition":0,"replicas":[-1]}]}', "replicas has -1"),
        ('{"partitions": [{"topic":"t","partition":0,"replicas":["1"]}]}', 'replicas has "1"'),
        (
            '{"partitions": [{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any","any"]}]}',
            "one directory for each of 1 replicas",
        ),
        (
            '{"partitions": [{"topic":"t","partition":0,"replicas":[1],"log_dirs":["data"]}]}',
            'log_dirs has "data", which is neither "any" nor a full path',
        ),
    ],
)
def test_what_is_wrong_with_a_plan_is_named_with_its_place(file: Path, text: str, complaint: str) -> None:
    file.write_text(text)
    with pytest.raises(click.UsageError, match=complaint) as refused:
        read_assignment(file)
    assert "plan.json" in refused.value.message and len(refused.value.message) < 400


def test_other_files_are_checked_likewise(file: Path) -> None:
    file.write_text('{"topics":[{"topic":"t"},{"topic":"t"}]}')
    with pytest.raises(click.UsageError, match=r"topics\[1\]: topic t is named twice"):
        read_topics(file)
    file.write_text('{"partitions":[{"topic":"t","partition":1,"replicas":[1]}]}')
    with pytest.raises(click.UsageError, match='unknown field "replicas"'):
        read_partitions(file)


def test_files_that_cannot_be_read_are_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(click.UsageError, match="is not UTF-8 text: invalid start byte at byte 7"):
        read_json(file)
    monkeypatch.setattr(json_files, "MAX_FILE_BYTES", 5)
    with pytest.raises(click.UsageError, match="is larger than 5 B"):
        read_json(file)
    with pytest.raises(click.UsageError, match="cannot be read: No such file"):
        read_json(file.with_name("absent"))
