"""`strandline configs` and `strandline topics --alter`: what they ask for, what they show, what they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
