"""`strandline groups`: what it shows, what it asks for, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.group_reset import Holding, Plan, Target, planned
from strandline.client.errors import RequestTimedOut
from strandline.client.groups.administration import GroupMemberView, GroupOffset, GroupView
from strandline.client.metadata import PartitionView
from strandline.protocol.types import TopicPartition

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
MEMBER = GroupMemberView("m-1", None, "app", "/10.0.0.1", (T1, T2))


@pytest.fixture
def site(shell: Any) -> Any:
    """`t` has three partitions of five records each, nobody leads the last one; `idle` stands at 2 of the first, `busy`
    has a member with the other two, one of which it has committed."""
    leaders = {0: 1, 1: 1, 2: -1}
    shell.cluster.add_topic("t", {number: PartitionView(who, 0, (1,), (1,)) for number, who in leaders.items()})
    for partition in leaders:
        shell.cluster.fill("t", partition, [b"v"] * 5)
    shell.cluster.groups = {
        "idle": GroupView("idle", "Empty", "consumer", "", 1, ()),
        "busy": GroupView("busy", "Stable", "consumer", "range", 2, (MEMBER,)),
    }
    shell.cluster.committed = {"idle": {T0: GroupOffset(2)}, "busy": {T1: GroupOffset(4)}}
    return shell


# --- list ------------------------------------------------------------------------------------------------------------


def test_all_groups_are_listed_or_those_of_a_state(site: Any) -> None:
    assert [line.split() for line in site("groups", "list").out.splitlines()] == [
        ["GROUP", "STATE", "TYPE"],
        ["idle", "Empty", "consumer"],
        ["busy", "Stable", "consumer"],
    ]
    shown = json.loads(site("groups", "list", "--state", "stable", "--output", "json").out)
    assert shown["groups"] == [{"group": "busy", "state": "Stable", "protocol_type": "consumer"}]


@pytest.mark.parametrize("command", [("list",), ("describe", "--all-groups")])
def test_a_broker_that_did_not_answer_is_named(site: Any, command: tuple[str, ...]) -> None:
    site.cluster.unheard[3] = RequestTimedOut("broker 3 does not answer")
    ran = site("groups", *command)
    assert (ran.code, ran.err.count("\n")) == (1, 1) and "broker 3" in ran.err and "busy" in ran.out
    shown = json.loads(site("groups", *command, "--output", "json").out)
    assert shown["failures"] == [{"broker": 3, "error": "RequestTimedOut", "message": "broker 3 does not answer"}]


# --- describe --------------------------------------------------------------------------------------------------------


def test_describe_shows_the_lag_of_each_partition_and_their_sum(site: Any) -> None:
    ran = site("groups", "describe", "busy")
    heading, *rows, total = ran.out.splitlines()
    assert heading.split() == (
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    )
    assert [row.split() for row in rows] == [
        ["busy", "t", "1", "4", "5", "1", "m-1", "/10.0.0.1", "app"],
        ["busy", "t", "2", "-", "-", "-", "m-1", "/10.0.0.1", "app"],
    ]
    assert total == "busy: lag 1 in 2 partitions, not counting 1 whose lag cannot be told"
    assert (ran.code, ran.err) == (0, "")


def test_describe_shows_who_is_in_it(site: Any) -> None:
    _, row = site("groups", "describe", "busy", "--members").out.splitlines()
    assert row.split() == ["busy", "m-1", "-", "/10.0.0.1", "app", "t:1,2"]
    assert "lag 1" in site("groups", "describe", "busy", "--members", "--lag").out


def test_json_has_all_of_a_group_and_the_errors_of_others(site: Any) -> None:
    ran = site("groups", "describe", "busy", "nobody", "--output", "json")
    busy, nobody = json.loads(ran.out)["groups"]
    assert ran.code == 1 and nobody["error"] == "GROUP_ID_NOT_FOUND"
    assert (busy["state"], busy["protocol"], busy["coordinator"], busy["lag"]) == ("Stable", "range", 2, 1)
    assert busy["members"][0]["partitions"] == [{"topic": "t", "partition": 1}, {"topic": "t", "partition": 2}]
    first, second = busy["partitions"]
    assert first == {"topic": "t", "partition": 1, "committed": 4, "log_end": 5, "lag": 1, "member": "m-1"}
    assert (second["committed"], second["log_end"], second["lag"]) == (None, None, None)


def test_what_is_committed_of_a_topic_that_is_gone_is_shown_without_its_end(site: Any) -> None:
    site.cluster.committed["idle"][TopicPartition("gone", 0)] = GroupOffset(7)
    assert "idle  gone  0         7              -              -" in site("groups", "describe", "idle").out


def test_a_leader_that_does_not_answer_hides_only_the_ends_of_its_own_logs(site: Any) -> None:
    site.cluster.add_topic("t", {number: PartitionView(1 + number, 0, (1,), (1,)) for number in range(3)})
    site.cluster.committed["idle"] = {T0: GroupOffset(2), T1: GroupOffset(4)}
    site.cluster.unanswered[T1] = RequestTimedOut("broker 2 does not answer")
    ran = site("groups", "describe", "idle")
    assert [row.split()[2:6] for row in ran.out.splitlines()[1:3]] == [["0", "2", "5", "3"], ["1", "4", "-", "-"]]
    told = "strandline: the ends of the logs that broker 2 leads cannot be told: broker 2 does not answer\n"
    assert (ran.code, ran.err) == (0, told)


def test_a_group_whose_offsets_cannot_be_read_does_not_hide_the_others(site: Any) -> None:
    site.cluster.unanswered["busy"] = RequestTimedOut("broker 2 does not answer")
    ran = site("groups", "describe", "--all-groups")
    assert (ran.code, ran.err) == (1, "strandline: broker 2 does not answer\n") and "idle: lag 3" in ran.out


@pytest.mark.parametrize("command", [("list",), ("describe", "--all-groups"), ("delete", "evil\x1b[2J\nline", "-y")])
def test_a_name_with_control_characters_does_nothing_to_the_terminal(site: Any, command: tuple[str, ...]) -> None:
    name = "evil\x1b[2J\nline"
    site.cluster.groups = {name: GroupView(name, "Empty", "", "", 1, ())}
    site.cluster.committed = {name: {T0: GroupOffset(1)}}
    ran = site("groups", *command)
    assert "evil\\x1b[2J line" in ran.out and "\x1b" not in ran.out


def test_an_unknown_group_is_one_line_and_exit_code_1(site: Any) -> None:
    for action in (("describe",), ("delete", "--yes"), ("delete-offsets", "-t", "t", "--yes")):
        ran = site("groups", action[0], "nobody", *action[1:])
        assert (ran.code, ran.err) == (1, "strandline: group 'nobody' does not exist\n")


# --- reset -----------------------------------------------------------------------------------------------------------


def test_a_reset_is_shown_and_only_done_when_asked_for(site: Any) -> None:
    ran = site("groups", "reset", "idle", "--topic", "t:0,1", "--to-earliest")
    assert [line.split() for line in ran.out.splitlines()] == [
        ["GROUP", "TOPIC", "PARTITION", "BEFORE", "NEW-OFFSET"],
        ["idle", "t", "0", "2", "0"],
        ["idle", "t", "1", "-", "0"],
    ]
    assert ran.code == 0 and "--execute" in ran.err and "reset" not in site.cluster.settings
    ran = site("groups", "reset", "idle", "--topic", "t:0,1", "--to-earliest", "--execute")
    assert (ran.code, ran.err) == (0, "")
    assert site.cluster.settings["reset"] == ("idle", {T0: 0, T1: 0})


@pytest.mark.parametrize(
    ("target", "offset"),
    [
        (("--to-latest",), 5),
        (("--to-offset", "3"), 3),
        (("--to-offset", "0"), 0),
        (("--to-offset", "99"), 5),
        (("--shift-by", "-1"), 1),
        (("--shift-by", "-9"), 0),
        (("--to-current",), 2),
        (("--to-datetime", "2023-11-14T22:13:20Z"), 0),
        (("--to-datetime", "2023-11-14T22:13:20"), 0),
        (("--to-datetime", "2023-11-14T23:13:20+01:00"), 0),
        (("--to-datetime", "2023-11-14T22:13:20-01:00"), 5),
        (("--to-datetime", "2023-11-14T22:13:21"), 5),
        (("--to-datetime", "2024-01-01"), 5),
        (("--by-duration", "PT1M"), 0),
        (("--by-duration", "P1DT2H3M4.5S"), 0),
        (("--by-duration", "59s"), 5),
    ],
)
def test_every_way_to_say_where_to(site: Any, target: tuple[str, ...], offset: int) -> None:
    assert site("groups", "reset", "idle", "--all-topics", *target, "--execute").code == 0
    assert site.cluster.settings["reset"] == ("idle", {T0: offset})


def test_the_help_says_which_zone_a_time_without_one_is_in(site: Any) -> None:
    assert "without a zone it is UTC" in " ".join(site("groups", "reset", "--help").out.split())


@pytest.mark.parametrize(
    ("distance", "told"),
    [("-9", "note: t-0: -7 lies before the log's start\n"), ("9", "note: t-0: 11 lies behind the log's end\n")],
)
def test_a_shift_out_of_the_log_is_shortened_and_told(site: Any, distance: str, told: str) -> None:
    ran = site("groups", "reset", "idle", "-t", "t:0", "--shift-by", distance, "--execute")
    assert (ran.code, ran.err) == (0, told)


def test_in_a_partition_without_records_a_time_means_the_end(site: Any) -> None:
    site.cluster.records[T2] = []
    site.cluster.ends[T2] = 7  # there were some
    assert site("groups", "reset", "idle", "-t", "t:2", "--to-datetime", "2000-01-01", "--execute").code == 0
    assert site.cluster.settings["reset"] == ("idle", {T2: 7})


def test_what_is_set_is_what_is_shown_while_the_log_grows(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(partition: TopicPartition) -> int:
        site.cluster.fill("t", partition.partition, [b"new"])
        return len(site.cluster.records[partition])

    monkeypatch.setattr(site.cluster, "end", end)
    arguments = ("groups", "reset", "idle", "-t", "t:0", "--to-latest", "--output", "json")
    assert json.loads(site(*arguments).out)["partitions"][0]["after"] == 6
    shown = json.loads(site(*arguments, "--execute").out)["partitions"][0]["after"]
    assert site.cluster.settings["reset"] == ("idle", {T0: shown}) and shown == 7


def test_a_file_names_partitions_and_offsets(site: Any, tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text("t,1,3\n\nt, 0, 1\n")
    shown = json.loads(site("groups", "reset", "new", "--from-file", str(path), "--execute", "--output", "json").out)
    assert site.cluster.settings["reset"] == ("new", {T0: 1, T1: 3})
    row = {"topic": "t", "partition": 0, "before": None, "after": 1, "note": "", "error": None, "message": ""}
    assert (shown["executed"], shown["partitions"][0]) == (True, row)


@pytest.mark.parametrize("line", ["t,0", "t,x,1", "t,0,-1", "t,0,1,2", f"t,{2**31},0", "a/b,0,1", "t,1,1\nt,1,2", ""])
def test_a_line_that_is_none_is_named(site: Any, tmp_path: Path, line: str) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text(line)
    ran = site("groups", "reset", "idle", "--from-file", str(path))
    assert ran.code == 2 and ran.err.count("\n") == 1


def test_a_group_with_members_is_not_reset(site: Any) -> None:
    ran = site("groups", "reset", "busy", "--topic", "t", "--to-earliest", "--execute")
    assert (ran.code, ran.err) == (1, "strandline: group 'busy' is Stable with 1 member; stop them first\n")
    assert "reset" not in site.cluster.settings


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--topic", "absent"), "absent"),
        (("--topic", "t:7"), "topic 't' has no partition 7: it has 3 partitions"),
    ],
)
def test_what_does_not_exist_is_not_reset(site: Any, arguments: tuple[str, ...], told: str) -> None:
    ran = site("groups", "reset", "idle", *arguments, "--to-earliest", "--execute")
    assert (ran.code, ran.err.count("\n")) == (1, 1) and told in ran.err
    assert "reset" not in site.cluster.settings


def test_of_all_topics_those_that_are_gone_are_left_out(site: Any) -> None:
    site.cluster.committed["idle"][TopicPartition("gone", 0)] = GroupOffset(7)
    assert site("groups", "reset", "idle", "--all-topics", "--to-latest", "--execute").code == 0
    assert site.cluster.settings["reset"] == ("idle", {T0: 5})
    ran = site("groups", "reset", "nobody", "--all-topics", "--to-latest")
    assert ran.code == 1 and "'nobody'" in ran.err


def test_a_partition_of_which_nothing_is_committed_cannot_be_shifted(site: Any) -> None:
    ran = site("groups", "reset", "idle", "--topic", "t:0,1", "--shift-by", "1", "--execute")
    assert ran.code == 1 and "t-1: nothing is committed" in ran.err
    assert site.cluster.settings["reset"] == ("idle", {T0: 3})


def test_an_offset_outside_of_the_log_is_moved_to_its_nearer_end() -> None:
    holding = Holding(committed=50, beginning=10, end=20)
    assert planned(Target("to-offset", 5), T0, holding) == Plan(10, "5 lies before the log's start")
    assert planned(Target("shift-by", 5), T0, holding) == Plan(20, "55 lies behind the log's end")
    assert planned(Target("to-current"), T0, holding) == Plan(20, "50 lies behind the log's end")
    assert planned(Target("from-file", offsets={T0: 12}), T0, holding) == Plan(12)
    nothing = Holding(committed=None, beginning=10, end=20)
    assert planned(Target("to-current"), T0, nothing).after == 20
    assert planned(Target("shift-by", 1), T0, nothing).after is None


# --- delete ----------------------------------------------------------------------------------------------------------


def test_groups_are_deleted_each_with_its_own_outcome(site: Any) -> None:
    ran = site("groups", "delete", "idle", "nobody", "--yes")
    assert (ran.code, ran.out) == (1, "Deleted group idle.\n") and "'nobody'" in ran.err
    shown = json.loads(site("groups", "delete", "busy", "--yes", "--output", "json").out)
    assert shown["groups"] == [{"group": "busy", "error": None, "message": ""}]


def test_what_is_committed_of_a_topic_is_forgotten(site: Any) -> None:
    ran = site("groups", "delete-offsets", "idle", "--topic", "t", "--yes")
    assert (ran.code, ran.out) == (0, "Deleted what group idle had committed of t-0.\n")
    assert site.cluster.settings["forgotten"] == ("idle", [T0])
    assert site("groups", "delete-offsets", "idle", "--topic", "t:1,2", "--yes").code == 0
    assert site.cluster.settings["forgotten"] == ("idle", [T1, T2])
    ran = site("groups", "delete-offsets", "busy", "--topic", "t:1", "--yes", "--output", "json")
    assert ran.code == 1 and json.loads(ran.out)["partitions"][0]["error"] == "GROUP_SUBSCRIBED_TO_TOPIC"
    ran = site("groups", "delete-offsets", "idle", "--topic", "other", "--yes")
    assert (ran.code, ran.err) == (1, "strandline: group 'idle' has committed nothing of topic 'other'\n")


@pytest.mark.parametrize("command", [("delete", "idle"), ("delete-offsets", "idle", "-t", "t")])
def test_without_a_terminal_it_wants_yes(site: Any, command: tuple[str, ...]) -> None:
    ran = site("groups", *command)
    assert ran.code == 2 and "for good; add --yes" in ran.err
    assert "idle" in site.cluster.groups and "forgotten" not in site.cluster.settings


# --- command lines ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("shift",),
        ("list", "--state", "tired"),
        ("describe",),
        ("describe", "idle", "--all-groups"),
        ("delete",),
        ("delete-offsets", "idle"),
        ("delete-offsets", "idle", "-t", "t:"),
        ("reset", "idle"),
        ("reset", "idle", "-t", "t"),
        ("reset", "idle", "--to-latest"),
        ("reset", "idle", "-t", "t", "--all-topics", "--to-latest"),
        ("reset", "idle", "-t", "t", "--to-latest", "--to-earliest"),
        ("reset", "idle", "-t", "t:0,x", "--to-latest"),
        ("reset", "idle", "-t", "t", "--to-offset", "-1"),
        ("reset", "idle", "-t", "t", "--to-datetime", "yesterday"),
        ("reset", "idle", "-t", "t", "--to-datetime", "-48h:-24h"),
        ("reset", "idle", "-t", "t", "--by-duration", "P"),
        ("reset", "idle", "-t", "t", "--by-duration", "P1X"),
        ("reset", "idle", "-t", "t", "--by-duration", "1h:"),
        ("reset", "idle", "--from-file", "absent.csv"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(site: Any, arguments: tuple[str, ...]) -> None:
    ran = site("groups", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("action", ["list", "describe", "reset", "delete", "delete-offsets"])
def test_every_action_has_an_example_in_its_help(site: Any, action: str) -> None:
    ran = site("groups", action, "--help")
    assert ran.code == 0 and "Example" in ran.out and f"strandline groups {action}" in " ".join(ran.out.split())
