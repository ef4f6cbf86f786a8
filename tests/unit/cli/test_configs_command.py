"""`strandline configs` and `strandline topics --alter`: what they ask for, what they show, what they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.client.metadata import PartitionView
from strandline.protocol.messages import ConfigResource


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("set", "-t", "t", "a=1", "b=x=y"), (ConfigResource.TOPIC, "t", {"a": "1", "b": "x=y"}, False)),
        (("delete", "--topic", "t", "a", "b"), (ConfigResource.TOPIC, "t", {"a": None, "b": None}, False)),
        (("set", "--broker", "0", "a=1", "--dry-run"), (ConfigResource.BROKER, "0", {"a": "1"}, True)),
        (("set", "--all-brokers", "a="), (ConfigResource.BROKER, "", {"a": ""}, False)),
    ],
)
def test_changes_are_passed_on(shell: Any, args: tuple[str, ...], expected: object) -> None:
    ran = shell("configs", *args)
    assert (ran.code, ran.err) == (0, "")
    assert shell.cluster.settings["altered"] == expected
    assert ran.out.startswith("Would change a" if "--dry-run" in args else "Changed a")


def test_what_somebody_has_set_is_shown_and_with_all_every_key(shell: Any) -> None:
    shell.cluster.add_topic("t", {})
    assert shell("configs", "describe", "-t", "t").out == "retention.ms=7\ttopic\nsecret=(not shown)\ttopic\n"
    assert shell("configs", "describe", "-t", "t", "--all").out.endswith("segment.bytes=99\tdefault\n")
    shown = json.loads(shell("configs", "describe", "-t", "t", "--output", "json").out)
    assert shown["_command"] == "configs.describe"
    assert shown["configs"][0] == {
        "key": "retention.ms",
        "value": "7",
        "set_in": "topic",
        "read_only": False,
        "sensitive": False,
        "synonyms": [{"key": "a", "value": "7", "set_in": "broker's file"}],
    }
    assert shell("configs", "describe", "-t", "missing").code == 1


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("show", "-t", "t"),
        ("describe",),
        ("describe", "-t", "t", "--broker", "1"),
        ("describe", "-t", "t", "retention.ms"),
        ("set", "-t", "t"),
        ("set", "-t", "t", "retention.ms"),
        ("delete", "-t", "t"),
        ("delete", "-t", "t", "a", "--all"),
        ("describe", "-t", "a/b"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(shell: Any, args: tuple[str, ...]) -> None:
    ran = shell("configs", *args)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "altered" not in shell.cluster.settings


def test_topics_are_enlarged_by_either_spelling(shell: Any) -> None:
    shell.cluster.add_topic("t", {})
    ran = shell("topics", "--alter", "--topic", "t", "--partitions", "12")
    assert (ran.code, ran.out) == (0, "Topic t has 12 partitions now.\n")
    assert "keys" in ran.err
    assert shell.cluster.settings["enlarged"] == ("t", 12)
    assert shell("topics", "alter", "t", "-p", "13").code == 0
    assert shell("topics", "alter", "missing", "-p", "13").code == 1
    assert shell("topics", "alter", "missing", "-p", "13", "--if-exists").code == 0
    assert shell("topics", "alter", "t").code == 2
    assert shell("topics", "alter", "-p", "3").code == 2
    assert shell("topics", "alter", "t", "-p", "3", "-c", "a=b").code == 2
    assert shell("topics", "describe", "t", "-p", "3").code == 2


def test_new_partitions_lie_where_they_are_said_to(shell: Any) -> None:
    """As in Kafka's tool: the list has all partitions, and those that there are stay where they are."""
    shell.cluster.add_topic("t", {0: PartitionView(1, 1, (1, 2)), 1: PartitionView(2, 1, (2, 1))})
    ran = shell("topics", "--alter", "--topic", "t", "--replica-assignment", "1:2,2:1,2:3,3:1")
    assert (ran.code, ran.out) == (0, "Topic t has 4 partitions now.\n")
    assert shell.cluster.settings["enlarged"] == ("t", 4)
    assert shell.cluster.settings["assigned"] == ((2, 3), (3, 1))
    assert shell("topics", "alter", "t", "-p", "4", "--replica-assignment", "1,1,1,1").code == 0


def test_a_topic_is_made_of_the_replicas_that_are_named(shell: Any) -> None:
    ran = shell("topics", "create", "t", "--replica-assignment", "1:2,2:1")
    assert ran.code == 0
    assert shell.cluster.settings["assigned"] == {0: (1, 2), 1: (2, 1)}
    assert shell.cluster.settings["created"] == ("t", -1, -1, {})


def test_a_change_may_be_checked_only(shell: Any) -> None:
    shell.cluster.add_topic("t", {})
    ran = shell("topics", "alter", "t", "-p", "12", "--validate-only")
    assert (ran.code, ran.out, ran.err) == (0, "Topic t can have 12 partitions.\n", "")
    assert shell.cluster.settings["validate_only"]
    ran = shell("topics", "create", "new", "--validate-only")
    assert (ran.code, ran.out) == (0, "Topic new can be created so.\n")
    assert "new" not in shell.cluster.topics


@pytest.mark.parametrize(
    "arguments",
    [
        ("alter", "t", "--replica-assignment", "1:x"),
        ("alter", "t", "--replica-assignment", "1:2,"),
        ("alter", "t", "--replica-assignment", "1:1"),
        ("alter", "t", "-p", "3", "--replica-assignment", "1,2"),
        ("create", "t", "-p", "2", "--replica-assignment", "1,2"),
        ("describe", "t", "--replica-assignment", "1,2"),
        ("delete", "t", "--validate-only"),
    ],
)
def test_assignments_that_cannot_be_meant_are_refused(shell: Any, arguments: tuple[str, ...]) -> None:
    ran = shell("topics", *arguments)
    assert ran.code == 2 and ran.err.count("\n") == 1
