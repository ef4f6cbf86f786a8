"""`strandline quotas`: what it asks for, what it shows, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from strandline.client.errors import NoBrokerReachable
from strandline.client.quotas import DEFAULT_ENTITY, QuotaOwner

ALICE = QuotaOwner("alice")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (
            ("--user", "alice", "producer_byte_rate=1MiB", "consumer_byte_rate=500k"),
            (ALICE, {"producer_byte_rate": 1048576.0, "consumer_byte_rate": 500_000.0}, False),
        ),
        (
            ("--user", "alice", "--client-id", "app", "request_percentage=12.5%", "--dry-run"),
            (QuotaOwner("alice", "app"), {"request_percentage": 12.5}, True),
        ),
        (
            ("--user-default", "--remove", "producer_byte_rate", "controller_mutation_rate=2.5"),
            (
                QuotaOwner(DEFAULT_ENTITY),
                {"controller_mutation_rate": 2.5, "producer_byte_rate": None},
                False,
            ),
        ),
        (
            ("--client-id-default", "producer_byte_rate=10"),
            (QuotaOwner(client_id=DEFAULT_ENTITY), {"producer_byte_rate": 10.0}, False),
        ),
        (
            ("--ip", "10.0.0.7", "connection_creation_rate=5"),
            (QuotaOwner(ip="10.0.0.7"), {"connection_creation_rate": 5.0}, False),
        ),
    ],
)
def test_changes_are_passed_on_in_one_request(shell: Any, args: tuple[str, ...], expected: object) -> None:
    ran = shell("quotas", "alter", *args)
    assert (ran.code, ran.err) == (0, "")
    assert shell.cluster.settings["quotas"] == expected
    assert ("would be set" in ran.out) == ("--dry-run" in args)


def test_what_was_changed_is_told(shell: Any) -> None:
    ran = shell("quotas", "alter", "--user", "alice", "producer_byte_rate=1KiB", "--remove", "request_percentage")
    assert ran.out == (
        "producer_byte_rate=1024 (bytes per second) is set for user alice\n"
        "request_percentage is no longer set for user alice\n"
    )
    ran = shell("quotas", "alter", "--user", "alice", "controller_mutation_rate=0.1")
    assert ran.out == "controller_mutation_rate=0.1 (partitions per second) is set for user alice\n"
    shown = json.loads(shell("quotas", "alter", "--ip-default", "connection_creation_rate=5", "--output", "json").out)
    assert (shown["ip"], shown["changes"]) == (None, [{"key": "connection_creation_rate", "value": 5.0}])
    assert "user" not in shown


def test_what_is_set_is_shown_with_whose_it_is(shell: Any) -> None:
    shell.cluster.settings["quotas there are"] = {
        ALICE: {"producer_byte_rate": 2.0**40, "consumer_byte_rate": 5.0},
        QuotaOwner(DEFAULT_ENTITY, "app"): {"request_percentage": 0.1},
    }
    lines = shell("quotas", "describe").out.splitlines()
    assert [line.split()[:5] for line in lines] == [
        ["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"],
        ["alice", "-", "-", "consumer_byte_rate", "5"],
        ["alice", "-", "-", "producer_byte_rate", "1099511627776"],
        ["<default>", "app", "-", "request_percentage", "0.1"],
    ]
    shown = json.loads(shell("quotas", "describe", "--user", "alice", "--output", "json").out)["quotas"]
    assert shown[0] == {"user": "alice", "key": "consumer_byte_rate", "value": 5.0, "unit": "bytes per second"}
    assert shown[2]["user"] is None and shown[2]["client_id"] == "app"
    assert shell.cluster.settings["asked about"] == ALICE


@pytest.mark.parametrize(
    ("value", "text"), [(0.1, "0.1"), (2.3, "2.3"), (12.5, "12.5"), (5.0, "5"), (2.0**53 - 1, "9007199254740991")]
)
def test_an_amount_is_told_with_the_digits_it_was_given_with(shell: Any, value: float, text: str) -> None:
    ran = shell("quotas", "alter", "--user", "alice", f"controller_mutation_rate={text}")
    assert ran.out.startswith(f"controller_mutation_rate={text} (partitions per second) is set")
    shell.cluster.settings["quotas there are"] = {ALICE: {"controller_mutation_rate": value}}
    assert shell("quotas", "describe").out.splitlines()[1].split()[4] == text


@pytest.mark.parametrize(
    ("quota", "told"),
    [
        ("request_percentage=0.25", "holds user alice to 2.5 ms of each second"),
        ("request_percentage=0.07", "to 0.7 ms of each second"),
        ("request_percentage=1", ""),
        ("controller_mutation_rate=0.25", ""),
    ],
)
def test_hardly_any_time_is_set_with_a_note_of_how_little_it_is(shell: Any, quota: str, told: str) -> None:
    ran = shell("quotas", "alter", "--user", "alice", quota)
    assert ran.code == 0 and ran.out.startswith(quota)
    assert told in ran.err and ran.err.count("note: ") == ran.err.count("\n") == bool(told)


COMMANDS = [("describe",), ("alter", "--user", "alice", "--remove", "request_percentage")]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("is_silence", [True, False])
def test_who_gets_no_answer_is_told_that_a_quota_may_be_why(
    shell: Any, command: tuple[str, ...], is_silence: bool
) -> None:
    failure = NoBrokerReachable("no broker answers")
    failure.is_silence = is_silence
    shell.cluster.settings["quotas fail"] = failure
    ran = shell("quotas", *command)
    assert (ran.code, ran.out) == (1, "")
    assert ("a quota (request_percentage) may hold this client" in ran.err) == is_silence
    assert ran.err.startswith("strandline: no broker answers") and ran.err.count("\n") == 1


@pytest.mark.parametrize("was_reached", [True, False])
def test_a_terminal_names_a_quota_only_once_a_broker_has_told_its_versions(
    shell: Any, was_reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    @contextmanager
    def noted(text: Callable[[], str], monotonic: object) -> Iterator[None]:
        shown.append(text())
        yield

    monkeypatch.setattr("strandline.cli.quotas.shown_waiting", noted)
    shell.cluster.settings["was reached"] = was_reached
    assert shell("quotas", "describe").code == 0
    assert shown == ["no answer yet" + ": a quota may hold this client" * was_reached]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_is_waited_for_as_long_as_a_line_may_be_and_a_place_in_it_is_kept(
    shell: Any, command: tuple[str, ...]
) -> None:
    shell("quotas", *command)
    limits = {key: shell.cluster.settings[key] for key in ("default_api_timeout_ms", "request_timeout_ms")}
    assert set(limits.values()) == {60_000}


def test_where_there_is_none_that_is_said(shell: Any) -> None:
    ran = shell("quotas", "describe", "--user", "bob")
    assert (ran.code, ran.out, ran.err) == (0, "", "note: no quota is set for user bob\n")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("producer_byte_rate=1",), "whose quotas?"),
        (("--user", "a"), "give KEY=VALUE or --remove KEY"),
        (("--user", "a", "--user-default", "producer_byte_rate=1"), "either --user or --user-default"),
        (("--user", "a", "--ip", "1.2.3.4", "producer_byte_rate=1"), "--ip without --user"),
        (("--user", "", "producer_byte_rate=1"), "--user is empty"),
        (("--user", "a", "producer_byte_rat=1"), "did you mean producer_byte_rate?"),
        (("--user", "a", "producer_byte_rate=fast"), "it looks like 1048576, 500k or 1MiB"),
        (("--user", "a", "request_percentage=1k"), "it looks like 2.5"),
        (("--user", "a", "producer_byte_rate=1", "--remove", "producer_byte_rate"), "given twice"),
    ],
)
def test_what_makes_no_sense_is_a_wrong_command_line(shell: Any, args: tuple[str, ...], told: str) -> None:
    ran = shell("quotas", "alter", *args)
    assert ran.code == 2 and told in ran.err
    assert "quotas" not in shell.cluster.settings
