"""`strandline consume --group` commits what came out, nothing else, and forgets no commit that failed."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from strandline.cli.consume_loop import ConsumeLoop
from strandline.cli.group_commits import EVERY_S, GroupCommits
from strandline.cli.group_starts import GroupStarts
from strandline.cli.lost_offsets import LostOffsets
from strandline.cli.record_format import compile_format
from strandline.client.errors import RequestTimedOut
from strandline.client.groups.administration import GroupOffset
from strandline.protocol.types import TopicPartition
from unit.cli.conftest import TOPIC_ID, FakeRecord

T0, T1 = (TopicPartition("t", number) for number in range(2))
LATE = RequestTimedOut("no coordinator")


class Output(io.BytesIO):
    """Takes all, and fails when it is told to write it out, once it is full."""

    full = False

    def flush(self) -> None:
        if self.full:
            raise OSError(28, "No space left on device")


class Member:
    """A consumer in a group: its commits in order; those without waiting are settled by `settle`."""

    def __init__(self) -> None:
        self.commits: list[dict[TopicPartition, int]] = []
        self.open: list[Callable[[Exception | None], None]] = []
        self.refuses: Exception | None = None
        self.stored: dict[TopicPartition, int] = {}
        self.on_revoked: Callable[[list[TopicPartition]], None]
        self.on_lost: Callable[[list[TopicPartition]], None]

    def subscribe(self, topics: list[str], on_assigned: Any, on_revoked: Any, on_lost: Any) -> None:
        self.on_assigned, self.on_revoked, self.on_lost = on_assigned, on_revoked, on_lost

    def committed(self, partitions: list[TopicPartition], timeout_ms: float) -> dict[TopicPartition, GroupOffset]:
        return {each: GroupOffset(self.stored[each]) for each in partitions}

    def topic_id(self, topic: str, timeout_ms: float) -> bytes:
        return TOPIC_ID

    def commit(self, offsets: dict[TopicPartition, int], timeout_ms: float) -> None:
        self.commits.append(dict(offsets))
        if self.refuses is not None:
            raise self.refuses

    def commit_nowait(self, offsets: dict[TopicPartition, int], on_done: Any) -> None:
        self.commits.append(dict(offsets))
        self.open.append(lambda error: on_done(offsets, error))

    def settle(self, error: Exception | None = None) -> None:
        self.open.pop(0)(error)


class Site:
    def __init__(self) -> None:
        self.member = Member()
        self.now = 0.0
        self.printed: dict[TopicPartition, int] = {}
        self.commits = GroupCommits(self.member, self.printed, lambda: self.now)
        self.lost = LostOffsets(self.member, {}, "latest", lambda: self.now)
        self.commits.subscribe(GroupStarts(self.member, self.lost, is_told=False), topics=["t"])

    def prints(self, offsets: dict[TopicPartition, int]) -> None:
        """… and enough time goes by for the next commit."""
        self.printed.update(offsets)
        self.now += EVERY_S
        self.commits.commit_now_and_then()


@pytest.fixture
def site() -> Site:
    return Site()


def test_lines_that_never_came_out_are_not_committed(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.cluster.fill("t", 0, [b"v"] * 3)
    output = Output()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(output))
    output.full = True
    shell("consume", "-t", "t", "--group", "g")
    output.full = False
    assert shell.cluster.settings["subscribed"] == ["t"] and shell.cluster.committed == {}
    shell("consume", "-t", "t", "--group", "g", "--timeout-ms", "1000")
    assert shell.cluster.committed == {"g": {T0: GroupOffset(3)}}


def test_lines_that_are_out_are_printed_though_an_interrupt_follows_at_once(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"v"] * 3)
    interrupts = [KeyboardInterrupt()]

    class ReadAtOnce(io.BytesIO):
        def flush(self) -> None:
            if interrupts:
                raise interrupts.pop()

    loop = ConsumeLoop(compile_format("line"), out := ReadAtOnce(), max_messages=9, timeout_ms=1, session=shell.session)
    with pytest.raises(KeyboardInterrupt), shell.session.consumer("") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        loop.run(consumer, None)
    assert (loop.printed, out.getvalue()) == ({T0: 3}, b"line" * 3)


def test_an_interrupt_between_two_pieces_leaves_the_first_one_printed(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.cli.fetched_rows.PIECE_RECORDS", 1)
    shell.cluster.fill("t", 0, [b"v"] * 3)
    written: list[bytes] = []

    class Interrupted(io.BytesIO):
        def write(self, line: Any) -> int:
            if written:
                raise KeyboardInterrupt
            written.append(line)
            return len(line)

    loop = ConsumeLoop(compile_format("line"), Interrupted(), max_messages=9, timeout_ms=1, session=shell.session)
    with pytest.raises(KeyboardInterrupt), shell.session.consumer("") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        loop.run(consumer, None)
    assert loop.printed == {T0: 1}


def test_a_commit_that_failed_is_told_and_made_again(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.prints({T0: 5, T1: 7})
    site.member.settle(LATE)
    assert capsys.readouterr().err == "not committed yet: t-0 before 5, t-1 before 7 (no coordinator)\n"
    site.prints({T0: 6})
    site.member.settle()
    assert site.member.commits[1:] == [{T0: 6, T1: 7}]
    site.commits.commit()
    assert len(site.member.commits) == 2


def test_what_is_not_known_to_be_committed_is_committed_at_the_end(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.prints({T0: 5})
    site.prints({T0: 6, T1: 1})  # waits: the commit before it is under way
    assert site.member.commits == [{T0: 5}]
    site.member.refuses = LATE
    site.commits.commit()
    assert site.member.commits == [{T0: 5}, {T0: 6, T1: 1}]
    told = "not committed, so these records come again: t-0 before 6, t-1 before 1 (no coordinator)\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("how", ["on_revoked", "on_lost"])
def test_a_commit_that_failed_is_not_made_again_after_the_partition_went(site: Site, how: str) -> None:
    site.prints({T0: 5})
    getattr(site.member, how)([T0])
    site.member.settle(LATE)
    before = list(site.member.commits)
    site.commits.commit()
    assert site.member.commits == before


@pytest.mark.parametrize("group", [(), ("--group", "g")])
@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("group.id=other", "--group NAME"),
        ("group_id=other", "--group NAME"),
        ("group.instance.id=one", "--group-instance-id ID"),
        ("enable.auto.commit=true", "what was printed is committed"),
        ("enable.auto.commit=false", "what was printed is committed"),
        ("consumer.timeout.ms=1000", "--timeout-ms"),
    ],
)
def test_settings_that_would_move_a_group_or_mislead_are_refused(
    shell: Any, group: tuple[str, ...], setting: str, told: str
) -> None:
    shell.cluster.fill("t", 0, [b"v"] * 3)
    ran = shell("consume", "-t", "t", *group, "--timeout-ms", "1000", "-X", setting)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert f"-X {setting.partition('=')[0]} " in ran.err and told in ran.err
    assert shell.cluster.polls == 0


@pytest.mark.parametrize(
    ("args", "out", "told"),
    [
        ((), "", "offsets 0 to 109 of t-0 are skipped: the log lost its place, and auto.offset.reset is latest"),
        (("--from-beginning",), "v" * 10, "offsets 0 to 99 of t-0 are gone from the log, unread"),
    ],
)
def test_a_group_is_told_what_has_gone_from_the_log_while_it_was_away(
    shell: Any, args: tuple[str, ...], out: str, told: str
) -> None:
    shell.cluster.records[T0] = [FakeRecord("t", 0, offset, value=b"v") for offset in range(100, 110)]
    shell.cluster.committed["g"] = {T0: GroupOffset(0)}
    ran = shell("consume", "-t", "t", "--group", "g", "--timeout-ms", "1000", "-q", "-f", "%v", *args)
    assert (ran.code, ran.out, ran.err) == (0, out, f"strandline: {told}\n")


def test_a_group_that_goes_on_where_it_stood_is_told_nothing(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a", b"b", b"c"])
    shell.cluster.committed["g"] = {T0: GroupOffset(2)}
    ran = shell("consume", "-t", "t", "--group", "g", "--timeout-ms", "1000", "-q")
    assert (ran.code, ran.out, ran.err) == (0, "c\n", "")


@pytest.mark.parametrize("how", ["on_revoked", "on_lost"])
def test_what_others_read_meanwhile_is_not_lost(site: Site, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    site.member.stored = {T0: 5}
    site.member.on_assigned([T0])
    getattr(site.member, how)([T0])
    site.member.stored = {T0: 50}
    site.member.on_assigned([T0])
    site.lost.note(T0, 50, 51)
    site.lost.tell()
    assert capsys.readouterr().err == ""
    site.lost.note(T0, 60, 61)
    site.lost.tell()
    assert "offsets 51 to 59 of t-0 are skipped" in capsys.readouterr().err


def test_verbose_says_where_a_group_begins(shell: Any) -> None:
    shell.cluster.fill("t", 0, [b"a", b"b"])
    shell.cluster.fill("t", 1, [b"c"])
    shell.cluster.committed["g"] = {T0: GroupOffset(1)}
    ran = shell("consume", "-t", "t", "--group", "g", "--timeout-ms", "1000", "-q", "-v")
    assert ran.err.splitlines() == [
        "strandline: t-0 is read from offset 1 on",
        "strandline: the group has committed nothing of t-1: auto.offset.reset says where it begins",
    ]
