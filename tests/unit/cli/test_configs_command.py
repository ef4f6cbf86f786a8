"""`strandline configs` and `strandline topics --alter`: what they ask for, what they show, what they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.cli.configs import _row
from strandline.client.metadata import PartitionView
from strandline.protocol.messages import ConfigResource, DescribeConfigsResourceResult, DescribeConfigsSynonym
from strandline.runtime.config.broker import BROKER_KEYS
from strandline.runtime.config.describing import BrokerView
from strandline.runtime.config.dynamic import Layer
from strandline.runtime.config.reading import load_broker_config
from unit.cli.fake_configs import FakeConfigAdmin


@pytest.fixture
def shell(shell: Any) -> Any:
    """Of a cluster in which brokers 0 and 1 run."""
    shell.cluster.moves.racks = dict.fromkeys((0, 1))
    return shell


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("-t", "t", "--add", "a=1", "--add", "b=x=y"), (ConfigResource.TOPIC, "t", {"a": "1", "b": "x=y"}, False)),
        (("--topic", "t", "--delete", "retention.ms"), (ConfigResource.TOPIC, "t", {"retention.ms": None}, False)),
        (
            ("--topic", "t", "--delete", "retention.ms", "--add", "cleanup.policy=compact,delete"),
            (ConfigResource.TOPIC, "t", {"cleanup.policy": "compact,delete", "retention.ms": None}, False),
        ),
        (("--broker", "0", "--add", "a=1", "--dry-run"), (ConfigResource.BROKER, "0", {"a": "1"}, True)),
        (("--all-brokers", "--add", "a="), (ConfigResource.BROKER, "", {"a": ""}, False)),
    ],
)
def test_changes_are_passed_on_in_one_request(shell: Any, args: tuple[str, ...], expected: object) -> None:
    shell.cluster.add_topic("t", {})
    ran = shell("configs", "alter", *args)
    assert (ran.code, ran.err) == (0, "")
    assert shell.cluster.settings["altered"] == expected
    assert ("would be set" in ran.out) == ("--dry-run" in args)


def test_what_was_changed_is_told(shell: Any) -> None:
    shell.cluster.add_topic("t", {})
    ran = shell("configs", "alter", "-t", "t", "--add", "a=1", "--delete", "retention.ms")
    assert ran.out == "a=1 is set for topic t\nretention.ms is no longer set for topic t\n"
    shown = json.loads(shell("configs", "alter", "--broker", "1", "--add", "a=1", "--output", "json").out)
    assert shown == {
        "_command": "configs.alter",
        "_version": 1,
        "entity_type": "broker",
        "entity_name": "1",
        "dry_run": False,
        "changes": [{"key": "a", "value": "1"}],
        "notes": [],
    }


def test_what_cannot_be_deleted_because_it_does_not_exist_is_an_error(shell: Any) -> None:
    """Brokers take it for done."""
    shell.cluster.add_topic("t", {})
    ran = shell("configs", "alter", "-t", "t", "--delete", "retention.m")
    assert ran.code == 1
    assert ran.err == "strandline: there is no key retention.m of topic t; did you mean retention.ms?\n"
    ran = shell("configs", "alter", "--all-brokers", "--delete", "log.cleaner.thread")
    assert ran.code == 1 and "did you mean log.cleaner.threads?" in ran.err
    assert "altered" not in shell.cluster.settings


@pytest.mark.parametrize("args", [("describe",), ("alter", "--add", "a=1"), ("alter", "--add", "a=1", "--dry-run")])
def test_a_broker_that_there_is_not_is_a_usage_error_that_names_those_that_run(
    shell: Any, args: tuple[str, ...]
) -> None:
    ran = shell("configs", *args, "--broker", "9")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "--broker: there is no broker 9 that runs; those are 0, 1" in ran.err
    assert "altered" not in shell.cluster.settings


def test_who_deletes_what_is_not_set_or_sets_what_counts_later_hears_it(shell: Any) -> None:
    shell.cluster.add_topic("t", {})
    ran = shell("configs", "alter", "-t", "t", "--delete", "segment.bytes")
    assert (ran.code, ran.err) == (0, "note: segment.bytes was not set for topic t\n")
    late = next(name for name, key in BROKER_KEYS.items() if key.dynamic and not key.live)
    ran = shell("configs", "alter", "--broker", "1", "--add", f"{late}=1")
    assert (ran.code, ran.err) == (0, f"note: {late} counts at a broker's next start\n")


def test_what_somebody_has_set_is_shown_and_with_all_every_key_and_its_meaning(shell: Any) -> None:
    shell.cluster.add_topic("t", {})
    shown = shell("configs", "describe", "-t", "t").out
    assert shown == "retention.ms=7\ttopic\tdynamic\nsecret=(not shown)\ttopic\tread-only\n"
    last = shell("configs", "describe", "-t", "t", "--all").out.splitlines()[-1]
    assert last == "segment.bytes=99\tdefault\tdynamic\tbytes\tHow large."
    told = json.loads(shell("configs", "describe", "-t", "t", "--output", "json").out)
    assert (told["_command"], told["entity_type"], told["entity_name"]) == ("configs.describe", "topic", "t")
    assert told["configs"][0] == {
        "key": "retention.ms",
        "value": "7",
        "set_in": "topic",
        "read_only": False,
        "takes_effect": "at once",
        "sensitive": False,
        "unit": "ms",
        "documentation": None,
        "synonyms": [
            {"key": "retention.ms", "value": "7", "set_in": "topic"},
            {"key": "a", "value": "7", "set_in": "broker's file"},
        ],
    }
    assert shell("configs", "describe", "-t", "missing").code == 1


def test_a_row_tells_what_counts_when_its_value_is_no_longer_set() -> None:
    places = [DescribeConfigsSynonym("k", value, source) for value, source in (("3", 2), ("2", 3), ("1", 5))]
    entry = DescribeConfigsResourceResult("k", "3", False, False, 2, places)
    assert _row(entry, {}).set_in == "broker, dynamic"
    assert _row(entry, {}).otherwise == "2 (all brokers, dynamic); 1 (default)"
    wrong = DescribeConfigsResourceResult("k", "3", False, False, 2, [places[0], places[2], places[1]])
    assert _row(wrong, {}).otherwise == "1 (default)", "what stands for all brokers does not count"
    secret = DescribeConfigsResourceResult("k", None, False, True, 2, places)
    assert (_row(secret, {}).value, _row(secret, {}).otherwise) == ("(not shown)", "")


WRONG = {"log.retention.bytes": "abc", "log.retention.hours": "5"}


@pytest.mark.parametrize(
    ("place", "args", "lines"),
    [
        (
            0,
            ("--all-brokers",),
            ["log.retention.bytes=abc\tall brokers, dynamic", "log.retention.hours=5\tall brokers"],
        ),
        (0, ("--broker", "1"), ["log.retention.bytes=-1\tdefault", "log.retention.hours=168\tdefault"]),
        (1, ("--broker", "1"), ["log.retention.bytes=-1\tdefault", "log.retention.hours=168\tdefault"]),
    ],
)
def test_what_stands_and_does_not_count_is_shown_and_deleted_as_what_was_set(
    shell: Any, monkeypatch: pytest.MonkeyPatch, place: int, args: tuple[str, ...], lines: list[str]
) -> None:
    standing = [Layer("/config/brokers/<default>", {}, False), Layer("/config/brokers/1", {}, True)]
    standing[place] = standing[place]._replace(overrides=WRONG)
    file = load_broker_config({"broker.id": "1", "zookeeper.connect": "z:1", "log.dirs": "/data"})
    view = BrokerView(file, standing)
    monkeypatch.setattr(
        FakeConfigAdmin,
        "describe_configs",
        lambda _, kind, name: list(view.of_this_broker() if name else view.of_all_brokers()),
    )
    ran = shell("configs", "describe", *args)
    shown = [line for line in ran.out.splitlines() if line.startswith("log.retention.")]
    assert all(line.startswith(begin) for line, begin in zip(shown, lines, strict=True))
    where = ("all brokers, dynamic", "broker, dynamic")[place]
    noted = [f"note: {key}={text} ({where}) does not count; the broker's log says why" for key, text in WRONG.items()]
    assert ran.err.splitlines() == (noted if args[0] == "--broker" else [])
    ran = shell("configs", "alter", *args, "--delete", "log.retention.bytes")
    is_there = args[0] == "--all-brokers" or place == 1
    assert "log.retention.bytes is no longer set for" in ran.out
    assert ran.err == ("" if is_there else "note: log.retention.bytes was not set for broker 1\n")


@pytest.mark.parametrize(
    ("key", "own", "for_all"),
    [
        ("listener.name.plaintext.max.connections", "4", "many"),
        ("advertised.listeners", "PLAINTEXT://own:1", "PLAINTEXT://all:1"),
    ],
)
def test_of_a_key_without_a_default_nothing_counts_otherwise_where_what_stands_below_is_in_vain(
    shell: Any, monkeypatch: pytest.MonkeyPatch, key: str, own: str, for_all: str
) -> None:
    standing = [
        Layer("/config/brokers/<default>", {key: for_all}, False),
        Layer("/config/brokers/1", {key: own}, True),
    ]
    file = {"broker.id": "1", "zookeeper.connect": "z:1", "log.dirs": "/data", "listeners": "PLAINTEXT://h:1"}
    entries = list(BrokerView(load_broker_config(file), standing).of_this_broker())
    [entry] = [each for each in entries if each.name == key]
    assert (_row(entry, {}).value, _row(entry, {}).otherwise) == (own, "")
    monkeypatch.setattr(FakeConfigAdmin, "describe_configs", lambda *_: entries)
    ran = shell("configs", "describe", "--broker", "1", key)
    assert ran.err == f"note: {key}={for_all} (all brokers, dynamic) does not count; the broker's log says why\n"


def test_a_key_without_effect_is_told_to_who_sets_it(shell: Any) -> None:
    shell.cluster.add_topic("t", {})
    ran = shell("configs", "alter", "-t", "t", "--add", "message.downconversion.enable=true")
    assert (ran.code, ran.err.count("\n")) == (0, 1)
    assert ran.err.startswith("note: message.downconversion.enable is kept without effect: Fetch is served from")
    assert shell("configs", "alter", "-t", "t", "--delete", "message.downconversion.enable").err.count("effect") == 0


def test_single_keys_are_shown_whether_they_are_set_or_not(shell: Any) -> None:
    shell.cluster.add_topic("t", {})
    assert shell("configs", "describe", "-t", "t", "segment.bytes").out == "segment.bytes=99\tdefault\tdynamic\n"
    ran = shell("configs", "describe", "-t", "t", "segment.byte")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "strandline: there is no key segment.byte of topic t; did you mean segment.bytes?\n"
    ran = shell("configs", "describe", "--all-brokers", "log.cleaner.threads")
    assert (ran.code, ran.out, ran.err) == (0, "", "note: nothing is set for all brokers\n")


@pytest.mark.parametrize(
    "args",
    [
        ("show", "-t", "t"),
        ("describe",),
        ("describe", "-t", "t", "--broker", "1"),
        ("describe", "-t", "t", "retention.ms", "--all"),
        ("describe", "-t", "t", "--dry-run"),
        ("alter", "-t", "t"),
        ("alter", "--add", "a=1"),
        ("alter", "-t", "t", "--add", "retention.ms"),
        ("alter", "-t", "t", "--add", "retention.ms=1,segment.bytes=2"),
        ("alter", "-t", "t", "--add", "a=1", "--delete", "a"),
        ("alter", "-t", "t", "--delete", "a=1"),
        ("alter", "-t", "t", "--delete", "a,b"),
        ("alter", "-t", "t", "--delete", "a", "--all"),
        ("describe", "-t", "a/b"),
    ],
    ids=" ".join,
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
