"""`--output json` of every command: one object, on success and on failure, or of a stream one object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from strandline.cli import archive as archive_commands
from strandline.cli import audit as audit_command
from strandline.cli import cluster, cluster_commands, demo, doctor
from strandline.cli import history as history_command
from strandline.cli import status as status_command
from strandline.cli.json_files import write_assignment
from strandline.cli.main import cli
from strandline.client.errors import NoBrokerReachable
from strandline.client.groups.administration import GroupOffset, GroupView
from strandline.client.metadata import PartitionView
from strandline.client.replicas.rounds import Round, Rounds
from strandline.protocol.types import TopicPartition
from strandline.runtime import http_client
from strandline.spark_connector.pipelines import archive as archiving
from strandline.spark_connector.pipelines import audit as auditing
from strandline.spark_connector.pipelines import history as telling
from strandline.spark_connector.pipelines import restore as restoring
from strandline.spark_connector.pipelines.archive import ArchiveSummary
from strandline.spark_connector.pipelines.restore import RestoreSummary
from unit.cli.test_audit_command import EQUAL, summary_of
from unit.cli.test_history_command import SUMMARY
from unit.cli.test_recover import FOUND

STREAMS = ("produce", "consume", "dump-log", "watch", "state-changes")
LOCAL = (
    "up",
    "status",
    "down",
    "demo",
    "history",
    "state-changes",
    "simulate",
    "dump-log",
    "log-check",
    "broker",
    "ready",
    "doctor",
)
"""Commands that ask no cluster, or go on without."""
T0 = TopicPartition("t", 0)

WORKING: dict[str, tuple[str, ...]] = {
    "up": (),
    "status": ("--data", "d"),
    "down": (),
    "demo": (),
    "produce": ("-t", "t", "--file", "lines"),
    "consume": ("-t", "t", "-o", ":end"),
    "topics": ("describe",),
    "offsets": (),
    "configs.describe": ("-t", "t"),
    "configs.alter": ("-t", "t", "--add", "a=1"),
    "quotas.describe": (),
    "quotas.alter": ("--user", "u", "producer_byte_rate=1"),
    "groups.list": (),
    "groups.describe": ("g",),
    "groups.reset": ("g", "-t", "t", "--to-latest"),
    "groups.delete": ("g", "--yes"),
    "groups.delete-offsets": ("g", "-t", "t", "--yes"),
    "reassign.generate": ("--all",),
    "reassign.execute": ("plan.json",),
    "reassign.verify": (),
    "reassign.cancel": ("--all",),
    "load": ("--threshold", "500%", *(f"--admin={broker_id}=127.0.0.1:1" for broker_id in (1, 2, 3))),
    "broker-decommission": ("3", "--dry-run"),
    "elect-leaders": ("--all",),
    "recover": ("t:0",),
    "delete-records": ("t", "--all", "--yes"),
    "archive": ("t", "--to", "archived"),
    "restore": ("archived", "-t", "t"),
    "audit": (),
    "verify-replicas": ("--once",),
    "history": (".",),
    "watch": ("t", "--once"),
    "state-changes": (".",),
    "simulate": ("--seed", "1", "--until", "1s", "--faults", ""),
    "dump-log": ("recovery-point-offset-checkpoint",),
    "log-check": ("empty",),
    "doctor": (),
    "broker": ("--reference",),
    "ready": ("--admin", "127.0.0.1:1"),
}
"""Of each command a call that works in `site`. `bench` measures real clusters; its answers have tests of their own."""


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        yield path
        return
    ctx = click.Context(command)
    for name in command.list_commands(ctx):
        found = command.get_command(ctx, name)
        assert found is not None
        yield from leaves(found, (*path, name))


EVERY = [".".join(path) for path in leaves(cli)]
ASKING = [name for name in EVERY if name not in LOCAL]


def words(name: str) -> list[str]:
    return name.split(".")


@pytest.fixture
def site(shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster with something of everything; what would start processes is put aside."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text("a\nb\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    alive = {"broker_id": 1, "event": "broker alive", "timestamp": "1970-01-01T00:00:07Z"}
    (tmp_path / "state-change.log").write_text(json.dumps(alive) + "\n")
    for folder in ("empty", "archived"):
        (tmp_path / folder).mkdir()
    write_assignment(tmp_path / "plan.json", {T0: (1, 2)})
    shell.cluster.moves.racks = dict.fromkeys((1, 2, 3))
    shell.cluster.add_topic("t", {0: PartitionView(1, 1, (1, 2), (1, 2))})
    shell.cluster.fill("t", 0, [b"1", b"2"])
    shell.cluster.groups["g"] = GroupView("g", "Empty", "consumer", "", 1, ())
    shell.cluster.committed["g"] = {T0: GroupOffset(1)}
    shell.cluster.recovered = {T0: FOUND}
    report = {"data_dir": "d", "healthy": True, "brokers": []}
    for command in (cluster_commands, status_command):
        monkeypatch.setattr(command, "embedded_report", lambda *_: report)
    monkeypatch.setattr(cluster.EmbeddedCluster, "recorded", lambda folder: cluster.EmbeddedCluster(folder))
    monkeypatch.setattr(cluster, "up", lambda *_, **__: cluster.EmbeddedCluster(tmp_path))
    monkeypatch.setattr(cluster, "down", lambda *_: cluster.EmbeddedCluster(tmp_path))
    monkeypatch.setattr(demo.Demo, "run", lambda self: self._step(1, "starting"))
    monkeypatch.setattr(doctor, "CHECKS", {"first": lambda session, target: "fine"})
    figures = {"/metrics": b"process_cpu_seconds_total 1\n"}
    monkeypatch.setattr(http_client, "get", lambda _, path, *__: (200, figures.get(path, b'{"waits": []}')))
    archived = ArchiveSummary("t", "07", "archived", 1, (), (), 1, 900, 4, 7, "/o.html")
    restored = RestoreSummary("t", "archived", "t", True, (), 1, 3, 2048, False)

    @contextmanager
    def pipeline(name: str, output: str) -> Iterator[tuple[object, object]]:
        yield None, print

    for command in (archive_commands, audit_command, history_command):
        monkeypatch.setattr(command, "pipeline", pipeline)
    monkeypatch.setattr(archiving, "archive", lambda *_, **__: archived)
    monkeypatch.setattr(restoring, "restore", lambda *_, **__: restored)
    monkeypatch.setattr(auditing, "audit", lambda *_, **__: summary_of(EQUAL))
    monkeypatch.setattr(Rounds, "next", lambda self: Round(summary_of(EQUAL), (), None))
    monkeypatch.setattr(telling, "history", lambda *_, **__: SUMMARY)
    return shell


def test_of_each_command_a_working_call_is_known() -> None:
    assert sorted(WORKING) == sorted(name for name in EVERY if not name.startswith("bench."))


@pytest.mark.parametrize("name", WORKING)
def test_every_command_answers_with_one_object(site: Any, name: str) -> None:
    ran = site(*words(name), *WORKING[name], "--output", "json")
    assert ran.code == 0, ran.err
    if name in STREAMS:
        assert ran.out and all(isinstance(json.loads(line), dict) for line in ran.out.splitlines())
        return
    told = json.loads(ran.out)
    assert told["_command"] == ("topics.describe" if name == "topics" else name)
    assert told["_version"] == 1
    assert "error" not in told


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("order", [0, 1])
def test_a_wrong_command_line_is_told_to_programs_too(site: Any, name: str, order: int) -> None:
    """Wherever the option stands: nothing of the line has been understood yet."""
    options = [["--output", "json"], ["--no-such-option"]]
    ran = site(*words(name), *options[order], *options[1 - order])
    told = json.loads(ran.out)
    assert (ran.code, ran.out.count("\n"), ran.err.count("\n")) == (2, 1, 1)
    assert (told["_command"], told["_version"]) == (name, 1)
    error = told["error"]
    assert (error["name"], error["exit_code"]) == ("UsageError", 2)
    assert error["message"] in ran.err and "no-such-option" in error["message"]


@pytest.mark.parametrize("name", ASKING)
def test_a_cluster_that_is_down_is_told_to_programs_too(site: Any, name: str) -> None:
    ran = site(*words(name), *WORKING.get(name, ()), "--output=json", "--data", "gone")
    told = json.loads(ran.out)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert told["_command"] == ("topics.describe" if name == "topics" else name)
    error = told["error"]
    assert (error["name"], error["exit_code"]) == ("ClusterIsDown", 1)
    assert f"strandline: {error['message']}\n" == ran.err


def test_what_a_broker_answers_has_the_brokers_name(site: Any) -> None:
    told = json.loads(site("configs", "describe", "-t", "gone", "--output", "json").out)
    assert told["error"]["name"] == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize(
    ("raised", "name", "code"),
    [
        (KeyboardInterrupt(), "Interrupted", 130),
        (NoBrokerReachable("nobody"), "NoBrokerReachable", 1),
        (ZeroDivisionError("oh"), "ZeroDivisionError", 1),
    ],
)
def test_other_ends_have_the_same_shape(
    site: Any, monkeypatch: pytest.MonkeyPatch, raised: BaseException, name: str, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(site.session, "admin", fail)
    ran = site("groups", "list", "--output", "json")
    error = json.loads(ran.out)["error"]
    assert (ran.code, error["name"], error["exit_code"]) == (code, name, code)
    assert site("groups", "list").out == "", "people read stderr"


def test_the_failure_of_a_stream_is_its_last_line(site: Any) -> None:
    site.cluster.fail_after = 1
    ran = site("produce", "-t", "t", "--file", "lines", "--output", "json")
    first, last = map(json.loads, ran.out.splitlines())
    assert (ran.code, first["offset"]) == (1, 0)
    assert (last["_command"], last["error"]["exit_code"]) == ("produce", 1)


def test_an_item_that_failed_does_not_make_a_second_object(site: Any) -> None:
    ran = site("topics", "delete", "gone", "--yes", "--output", "json")
    assert ran.code == 1
    assert json.loads(ran.out)["topics"][0]["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_failure_behind_the_answer_makes_no_second_object(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise NoBrokerReachable("while it is closed")

    monkeypatch.setattr(type(site.session.admin("a:1")), "__exit__", fail)
    ran = site("topics", "list", "--output", "json")
    assert (ran.code, json.loads(ran.out)["_command"]) == (1, "topics.list")
    assert "while it is closed" in ran.err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("-J", "-t", "gone"), 1),
        (("-eJ", "-t", "gone"), 1),
        (("-t", "gone", "-qJe"), 1),
        (("-eqJtgone",), 1),
        (("--topic", "gone", "-f", "%v", "-eJ"), 2),
        (("-eJ", "-t", "gone", "--wrong"), 2),
        (("-Je", "-t"), 2),
    ],
)
def test_consumes_short_form_asks_for_json_too(site: Any, args: tuple[str, ...], code: int) -> None:
    ran = site("consume", *args)
    assert (ran.code, json.loads(ran.out)["error"]["exit_code"]) == (code, code)


@pytest.mark.parametrize(
    "args",
    [("-tJ",), ("-t", "-J"), ("-etJ",), ("-t", "gone", "-gJ"), ("--topic", "-J"), ("-t", "gone", "-e", "--", "-J")],
)
def test_a_value_of_another_option_does_not_ask_for_json(site: Any, args: tuple[str, ...]) -> None:
    ran = site("consume", *args)
    assert ran.code in (1, 2)
    assert ran.out == ""


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("topics", "topics"),
        ("offsets", "partitions"),
        ("groups.describe", "groups"),
        ("groups.reset", "partitions"),
        ("groups.delete", "groups"),
        ("groups.delete-offsets", "partitions"),
        ("elect-leaders", "partitions"),
        ("recover", "partitions"),
        ("delete-records", "partitions"),
    ],
)
def test_each_of_several_things_has_an_error_of_its_own(site: Any, name: str, rows: str) -> None:
    site.cluster.moves.election = {T0: 1}
    told = json.loads(site(*words(name), *WORKING[name], "--output", "json").out)[rows]
    assert told
    assert all((each["error"], each["message"]) == (None, "") for each in told)
