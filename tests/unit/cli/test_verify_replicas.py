"""`strandline verify-replicas`: what it compares, shows and refuses, over replicas in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from strandline.client.errors import ClientError, NoBrokerReachable
from strandline.client.replicas.reading import Replica
from strandline.protocol.types import TopicPartition
from support.audited_cluster import END, SIZES, T0, MemoryAdmin, audited_cluster, damage
from support.damaged_replicas import BEGAN_AT_MS, MemoryReplica, plain_batches

OTHER = TopicPartition("other", 0)
DAMAGED = "t-0 on broker 2: damaged [4, 5): its bytes do not have the CRC-32C"
NOW = "2023-11-14 22:14:20.000: "


@pytest.fixture
def admin(shell: Any, monkeypatch: pytest.MonkeyPatch) -> MemoryAdmin:
    made = audited_cluster(T0, OTHER)
    monkeypatch.setattr(shell.session, "admin", lambda servers, **settings: nullcontext(made))
    return made


def lagging(admin: MemoryAdmin) -> None:
    admin.out_of_sync = {Replica(T0, 3)}
    admin.replicas[Replica(T0, 3)] = MemoryReplica(plain_batches(SIZES[:2]))


def at_each_pause(shell: Any, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """One after the other, then Ctrl-C."""
    left = list(steps)

    def sleep(seconds: float) -> None:
        assert seconds == 5
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr(shell.session, "sleep", sleep)


def test_equal_replicas_are_told_with_kafkas_line_about_the_lag(shell: Any, admin: MemoryAdmin) -> None:
    ran = shell("verify-replicas", "--once", "--max-bytes", "100", "-b", "there:1")
    assert (ran.code, ran.err, admin.max_bytes) == (0, "", 100)
    assert ran.out.splitlines()[1:3] == [
        "other-0   1      1,2,3    0           15        15      1.3 KiB equal",
        "t-0       1      1,2,3    0           15        15      1.3 KiB equal",
    ]
    assert ran.out.splitlines()[-1] == f"max lag is 0 for partition other-0 at offset {END} among 2 partitions"


def test_a_flipped_bit_is_named_with_its_replica_and_offsets(shell: Any, admin: MemoryAdmin) -> None:
    damage(admin, 2)
    ran = shell("verify-replicas", "--once", "-b", "there:1")
    assert ran.code == 1 and any(line.startswith(DAMAGED) for line in ran.out.splitlines())
    shown = json.loads(shell("verify-replicas", "--once", "--topics", "t", "--output", "json", "-b", "there:1").out)
    assert (shown["_command"], shown["is_well"], shown["is_equal"]) == ("verify-replicas", False, False)
    [partition] = shown["partitions"]
    assert [each["findings"][0]["kind"] for each in partition["replicas"] if each["findings"]] == ["damaged"]


def test_a_replica_that_lags_out_of_sync_is_named_and_not_well(shell: Any, admin: MemoryAdmin) -> None:
    lagging(admin)
    ran = shell("verify-replicas", "--once", "-b", "there:1")
    assert ran.code == 1
    assert "t-0 on broker 3: behind: 11 offsets from 4 on could not be compared, not in sync" in ran.out
    assert ran.out.splitlines()[-1] == "max lag is 11 for partition t-0 at offset 4 on broker 3 among 2 partitions"
    shown = json.loads(shell("verify-replicas", "--once", "--output", "json", "-b", "there:1").out)
    assert shown["max_lag"] == {"topic": "t", "partition": 0, "broker_id": 3, "offset": 4, "lag": 11}
    assert (shown["is_equal"], shown["is_well"]) == (True, False)


def test_a_replica_that_cannot_be_reached_is_named(shell: Any, admin: MemoryAdmin) -> None:
    admin.offline = {3}
    admin.unreachable = {2}
    ran = shell("verify-replicas", "--once", "-b", "there:1")
    assert ran.code == 1
    assert "t-0 on broker 2: unread: broker 2 cannot be reached" in ran.out.splitlines()
    assert "2 replicas: broker 3 is not running" in ran.out.splitlines()
    assert ran.out.splitlines()[-1].endswith("among 2 partitions, without 4 replicas that could not be read")
    admin.unreachable = set()
    assert shell("verify-replicas", "--once", "--allow-offline", "-b", "there:1").code == 0


@pytest.mark.parametrize("everywhere", [False, True])
def test_where_replicas_cannot_be_read_it_does_not_say_that_nothing_stands_there(
    shell: Any, admin: MemoryAdmin, everywhere: bool
) -> None:
    admin.offline = {1, 2, 3} if everywhere else {1}
    admin.leaders = {T0: -1, OTHER: -1}
    ran = shell("verify-replicas", "--once", "-b", "there:1")
    assert ran.code == 1
    assert "nothing was compared" in ran.out.splitlines() and "no record stands there" not in ran.out


def test_it_goes_on_with_what_has_come_and_tells_what_is_new_until_ctrl_c(
    shell: Any, admin: MemoryAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write() -> None:
        lagging(admin)
        damage(admin, 2)

    fail = [NoBrokerReachable("nobody answers")]

    def describe() -> Any:
        if fail:
            raise fail.pop()
        return MemoryAdmin.describe_topics(admin)

    def lose() -> None:
        monkeypatch.setattr(admin, "describe_topics", describe, raising=False)

    at_each_pause(shell, monkeypatch, write, lose, lambda: None)
    ran = shell("verify-replicas", "--topics", "t", "--report-interval", "5", "--time", "latest", "-b", "there:1")
    assert ran.code == 130
    caught_up = f"{NOW}max lag is 0 for partition t-0 at offset {END} among 1 partition"
    assert ran.out.splitlines() == [caught_up] * 3
    assert "warning: this round could not be made: nobody answers" in ran.err


def test_programs_are_told_of_each_round_in_a_line(
    shell: Any, admin: MemoryAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(admin, 2)
    at_each_pause(shell, monkeypatch, lambda: None)
    ran = shell("verify-replicas", "--report-interval", "5", "--output", "json", "-b", "there:1")
    first, second, last = map(json.loads, ran.out.splitlines())
    assert [len(each["partitions"]) for each in (first, second)] == [1, 0]
    assert first["partitions"][0]["topic"] == "t" and not first["is_well"] and first["max_lag"]["lag"] == 0
    assert (ran.code, last["error"]["name"]) == (130, "Interrupted")


@pytest.mark.parametrize(
    ("begin", "is_well"), [("earliest", False), ("-2", False), (str(BEGAN_AT_MS + 10**12), True), ("-1", True)]
)
def test_it_begins_where_it_is_told(shell: Any, admin: MemoryAdmin, begin: str, is_well: bool) -> None:
    damage(admin, 2)
    ran = shell("verify-replicas", "--once", "--time", begin, "-b", "there:1")
    assert (ran.code == 0) == is_well
    assert ("nothing was compared: no record stands there, or none since --time" in ran.out.splitlines()) == is_well


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--once", "--topics", "nothing.*"), "No topic's name matches 'nothing.*'"),
        (("--topics", "("), "is no regular expression"),
        (("t", "--topics", "t"), "not both"),
        (("--page", "page.html"), "--page is of one round: say --once, too"),
        (("--time", "soon"), "time 'soon' is not understood"),
        (("--once", "--time", "2099-01-01"), "--time: 2099-01-01 is still to come"),
        (("--report-interval", "0"), "0.1<=x"),
        (("--max-bytes", "0"), "1<=x"),
    ],
)
def test_what_is_asked_for_wrongly_is_one_line(
    shell: Any, admin: MemoryAdmin, args: tuple[str, ...], told: str
) -> None:
    ran = shell("verify-replicas", "-b", "there:1", *args)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1) and told in ran.err


def test_a_topic_that_is_named_and_not_there_is_a_failure(shell: Any, admin: MemoryAdmin) -> None:
    ran = shell("verify-replicas", "gone", "-b", "there:1")
    assert (ran.code, ran.err.count("\n")) == (1, 1) and "Topic 'gone' does not exist" in ran.err


def test_the_page_has_a_row_per_partition_and_a_column_per_broker(
    shell: Any, admin: MemoryAdmin, tmp_path: Any
) -> None:
    damage(admin, 2)
    page = tmp_path / "replicas.html"
    assert shell("verify-replicas", "--once", "--page", str(page), "-b", "there:1").code == 1
    assert "<th>t-0</th>" in page.read_text() and "<th>broker 3</th>" in page.read_text()


def test_a_cluster_that_never_answered_ends_it(shell: Any, admin: MemoryAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    def describe() -> Any:
        raise ClientError("nobody answers")

    monkeypatch.setattr(admin, "describe_topics", describe)
    ran = shell("verify-replicas", "-b", "there:1")
    assert (ran.code, ran.err) == (1, "strandline: nobody answers\n")
