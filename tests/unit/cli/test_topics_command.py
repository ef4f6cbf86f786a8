"""`strandline topics`: what is set for a topic and what it holds, choosing by a pattern, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.client.errors import RequestTimedOut
from strandline.client.metadata import PartitionView, TopicView
from strandline.protocol.types import TopicPartition


@pytest.fixture
def several(shell: Any) -> Any:
    for name in ("tmp-a", "tmp-b", "kept"):
        shell.cluster.add_topic(name, {0: PartitionView(1, 1, (1, 2), (1, 2))})
        shell.cluster.fill(name, 0, [b"1", b"2"])
    shell.cluster.topics["__own"] = TopicView("__own", bytes(16), {}, is_internal=True)
    return shell


def test_describe_shows_what_is_set_for_a_topic_and_nothing_where_nobody_says(
    several: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = several("topics", "describe", "kept").out.splitlines()[0]
    assert line.endswith("\tConfigs: retention.ms=7,secret=(not shown)")
    told = json.loads(several("topics", "describe", "kept", "--output", "json").out)
    assert told["topics"][0]["configs"] == {"retention.ms": "7", "secret": None}
    several.cluster.unanswered["configs"] = RequestTimedOut("silence")
    ran = several("topics", "describe", "kept")
    assert (ran.code, "Configs:" in ran.out) == (0, False)
    assert ran.err == "note: what is configured for topics cannot be told: silence\n"
    assert json.loads(several("topics", "describe", "kept", "--output", "json").out)["topics"][0]["configs"] is None


def test_describe_shows_where_partitions_begin_and_end_when_asked(several: Any) -> None:
    assert "Latest" not in several("topics", "describe", "kept").out
    assert "\tIsr: 1,2\tEarliest: 0\tLatest: 2\n" in several("topics", "describe", "kept", "--offsets").out
    told = json.loads(several("topics", "describe", "kept", "--offsets", "--output", "json").out)
    [partition] = told["topics"][0]["partitions"]
    assert (partition["earliest"], partition["latest"]) == (0, 2)
    several.cluster.unanswered[TopicPartition("tmp-a", 0)] = RequestTimedOut("silence")
    ran = several("topics", "describe", "tmp-a", "--offsets")
    assert ran.code == 1 and "Isr: 1,2\n" in ran.out
    assert ran.err == "strandline: the offsets of tmp-a-0 cannot be told: silence\n"


def test_topics_are_chosen_by_a_pattern_but_for_the_brokers_own(several: Any) -> None:
    assert several("topics", "list", "--include", "tmp-.*").out == "tmp-a\ntmp-b\n"
    assert "__own" not in several("topics", "list", "--include", ".*").out
    assert several("topics", "describe", "--include", "tmp").code == 1, "a part of the name is not enough"
    ran = several("topics", "delete", "--include", "tmp-.*", "--yes")
    assert (ran.code, ran.out) == (0, "Deleted topic tmp-a.\nDeleted topic tmp-b.\n")
    assert sorted(several.cluster.topics) == ["__own", "kept"]


def test_a_list_is_names_for_pipes_and_tells_people_and_programs_of_partitions(
    several: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert several("topics", "list").out == "__own\nkept\ntmp-a\ntmp-b\n"
    told = json.loads(several("topics", "list", "--output", "json").out)["topics"]
    assert told[:2] == [
        {"topic": "__own", "partitions": 0, "replication_factor": 0, "internal": True},
        {"topic": "kept", "partitions": 1, "replication_factor": 2, "internal": False},
    ]
    monkeypatch.setattr("strandline.cli.topics.sys.stdout.isatty", lambda: True)
    heading, row = several("topics", "list", "--include", "kept").out.splitlines()
    assert "partitions" in heading
    assert row.split() == ["kept", "1", "2"]


def test_before_several_are_deleted_each_is_named(several: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return "n"

    monkeypatch.setattr("click.termui.visible_prompt_func", answer)
    ran = several("topics", "delete", "--include", "tmp-.*")
    assert ran.code == 1
    assert ran.err.startswith("  tmp-a\n  tmp-b\n")
    assert asked == ["Delete these 2 topics and all records there? [y/N]: "]
    assert sorted(several.cluster.topics) == ["__own", "kept", "tmp-a", "tmp-b"]


def test_who_asks_for_fewer_partitions_hears_that_they_stay(several: Any) -> None:
    several.cluster.add_topic("t", {number: PartitionView(1, 1, (1,)) for number in range(3)})
    ran = several("topics", "alter", "t", "--partitions", "2")
    assert (ran.code, ran.out) == (1, "")
    assert "never taken away" in ran.err
    told = json.loads(several("topics", "alter", "t", "--partitions", "2", "--output", "json").out)
    assert told["topics"][0]["error"] == "INVALID_PARTITIONS"


@pytest.mark.parametrize(
    "args",
    [
        ("create", "--include", "t"),
        ("delete", "t", "--include", "t"),
        ("list", "--offsets"),
        ("list", "--if-exists"),
        ("create", "new", "--if-exists"),
        ("list", "--yes"),
        ("alter", "kept", "--partitions", "2", "-y"),
        ("create", "new", "--config", "a=1", "--config", "a=2"),
        ("describe", "--include", "("),
    ],
    ids=" ".join,
)
def test_options_that_do_not_go_together_are_refused(several: Any, args: tuple[str, ...]) -> None:
    ran = several("topics", *args)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
