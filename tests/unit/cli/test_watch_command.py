"""`strandline watch` against the fake cluster and over logs in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.client.errors import NoBrokerReachable, RequestTimedOut
from strandline.client.metadata import PartitionView, TopicView
from strandline.client.replicas.reading import Replica
from strandline.protocol.types import TopicPartition
from strandline.runtime.disk_posix import PosixDisk
from unit.cli.conftest import FakeCluster, Shell

T0 = TopicPartition("clicks", 0)
STAMP = "2023-11-14 22:14:20.000"


@pytest.fixture(autouse=True)
def topic(cluster: FakeCluster) -> None:
    cluster.add_topic("clicks", {0: PartitionView(1, 4, (1, 2, 3), (1, 2, 3)), 1: PartitionView(2, 0, (2, 3), (2, 3))})
    cluster.ends[T0] = 100


def between_looks(shell: Shell, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """Each time that the command waits the next thing happens; then Ctrl-C."""
    left = list(steps)

    def sleep(seconds: float) -> None:
        assert seconds > 0
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr(shell.session, "sleep", sleep)
    monkeypatch.setattr(shell.session, "monotonic", lambda: 0.0)


def test_one_look_tells_every_partition(shell: Shell, cluster: FakeCluster) -> None:
    cluster.replica_ends[Replica(T0, 3)] = 90
    ran = shell("watch", "clicks", "--once")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        f"{STAMP} clicks-0: leader 1, epoch 4, ISR 1,2,3 of 1,2,3, HW 100, LEO 1:100 2:100 3:90",
        f"{STAMP} clicks-1: leader 2, epoch 0, ISR 2,3 of 2,3, HW 0, LEO 2:0 3:0",
    ]
    assert shell("watch", "clicks", "--once", "--partition", "1").out.count("\n") == 1


def test_what_moves_is_a_line_each_until_ctrl_c(
    shell: Shell, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_over() -> None:
        cluster.add_topic("clicks", {0: PartitionView(2, 5, (1, 2, 3), (2, 3), (1,))})
        cluster.ends[T0] = 120

    between_looks(shell, monkeypatch, lambda: None, fail_over)
    ran = shell("watch", "clicks", "--partition", "0")
    assert (ran.code, ran.err.strip()) == (130, "strandline: interrupted")
    assert ran.out.splitlines()[1:] == [
        f"{STAMP} clicks-0: leader 1 -> 2, epoch 4 -> 5, ISR 1,2,3 -> 2,3, HW 120 (+20), "
        "LEO 2:120 (+20) 3:120 (+20), broker 1 is not running"
    ]


def test_a_topic_that_goes_and_comes_and_brokers_that_do_are_told(
    shell: Shell, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(shell.session.admin("a:1"))
    describe, down = kind.describe_topics, [False]

    def describe_topics(self: Any, names: list[str], **rest: Any) -> dict[str, TopicView]:
        if down[-1]:
            raise NoBrokerReachable("nobody answers")
        found: dict[str, TopicView] = describe(self, names, **rest)
        return found

    monkeypatch.setattr(kind, "describe_topics", describe_topics)
    between_looks(
        shell,
        monkeypatch,
        lambda: cluster.topics.clear(),
        lambda: cluster.topics.update(clicks=TopicView("clicks", bytes(15) + b"\x01", {})),
        lambda: down.append(True),
        lambda: down.append(False),
    )
    ran = shell("watch", "clicks", "--output", "json")
    *told, failure = map(json.loads, ran.out.splitlines())
    assert [each["text"] for each in told[2:]] == [
        "was deleted",
        "was created anew: its id is AAAAAAAAAAAAAAAAAAAAAQ, before AAECAwQFBgcICQoLDA0ODw",
        "nobody answers",
        "can be seen again",
    ]
    assert told[0]["log_end_offsets"] == {"1": 100, "2": 100, "3": 100} and told[0]["changed"] == []
    assert (told[2]["partition"], failure["error"]["name"]) == (None, "Interrupted")


def test_a_broker_that_does_not_answer_is_told_and_the_others_are_shown(shell: Shell, cluster: FakeCluster) -> None:
    cluster.replica_ends[Replica(T0, 2)] = RequestTimedOut("silent")
    ran = shell("watch", "clicks", "--once", "--partition", "0")
    assert "LEO 1:100 3:100, broker 2 does not answer (RequestTimedOut)" in ran.out


def test_what_is_not_there_is_told(shell: Shell, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = shell("watch", "gone", "--once")
    assert ran.code == 1 and ran.err == (
        "strandline: topic gone: does not exist ('strandline topics create gone' makes it)\n"
    )
    ran = shell("watch", "clicks", "--once", "--partition", "1,7-8")
    assert ran.code == 1 and "there is no partition 7, 8: clicks has 2 partitions" in ran.err
    assert "clicks-1: leader 2" in ran.out
    between_looks(shell, monkeypatch, lambda: cluster.add_topic("later", {0: PartitionView(1, 0, (1,), (1,))}))
    assert [line.split(": ", 1)[1][:10] for line in shell("watch", "later").out.splitlines()] == [
        "does not e",
        "can be see",
        "leader 1, ",
    ]


def test_a_cluster_that_never_answered_is_an_error(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise NoBrokerReachable("nobody there")

    monkeypatch.setattr(type(shell.session.admin("a:1")), "describe_topics", fail)
    ran = shell("watch", "clicks", "-b", "localhost:1")
    assert (ran.code, ran.out, ran.err) == (1, "", "strandline: nobody there\n")


# --- Replays ---------------------------------------------------------------------------------------------------


def line(second: int, event: str, **fields: Any) -> str:
    stamp = f"2026-11-24T10:00:{second:02d}.000000Z"
    return json.dumps({"broker_id": 1, "event": event, "timestamp": stamp, **fields}) + "\n"


STATE: dict[str, Any] = {"topic": "clicks", "topic_id": "A", "partition": 0, "replicas": [1, 2], "leader": 1}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in ("state-change.log", "controller.log"):
        (tmp_path / name).touch()
    (tmp_path / "state-change.log").write_text(
        line(1, "partition state changed", **STATE, leader_epoch=0, zk_version=0, isr=[1, 2])
        + "garbled\n"
        + line(31, "isr changed", **STATE, leader_epoch=0, zk_version=1, isr=[1], log_end_offset=70, high_watermark=60)
    )
    return tmp_path


def test_logs_are_replayed_at_the_speed_asked_for(shell: Shell, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(shell.session, "sleep", slept.append)
    ran = shell("watch", "clicks", "--logs", str(logs), "--speed", "10")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        "2026-11-24 10:00:01.000 clicks-0: leader 1, epoch 0, ISR 1,2 of 1,2",
        "2026-11-24 10:00:31.000 clicks-0: ISR 1,2 -> 1, HW 60, LEO 1:70",
    ]
    damaged, gap = ran.err.splitlines()
    assert damaged.startswith(f"strandline: warning: {logs / 'state-change.log'}:2: damaged line, passed over: ")
    assert gap.startswith("strandline: warning: gap: no log has a line of broker 2, though others name it")
    assert slept == [3.0]
    shell("watch", "clicks", "--logs", str(logs))
    shell("watch", "clicks", "--logs", str(logs), "--once")
    assert slept == [3.0, 0.5]


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_replayed(
    shell: Shell, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = PosixDisk.open
    (logs / "state-change.log.1").write_text(
        line(0, "partition state changed", **{**STATE, "partition": 1}, leader_epoch=0, zk_version=0, isr=[1, 2])
        + line(0, "partition state changed", **{**STATE, "topic": "clicksXX"}, leader_epoch=0, zk_version=0, isr=[1, 2])
    )

    def open_file(self: PosixDisk, path: str, **how: Any) -> Any:
        if path.endswith("controller.log"):
            raise PermissionError(13, "Permission denied", path)
        return opened(self, path, **how)

    monkeypatch.setattr(PosixDisk, "open", open_file)
    ran = shell("watch", "clicks", "--logs", str(logs), "--once", "--partition", "0")
    assert ran.code == 0 and ran.out.count("\n") == 2 and "clicks-1" not in ran.out
    assert f"{logs / 'controller.log'} could not be read: Permission denied" in ran.err


def test_a_replay_begins_where_it_is_asked_to(shell: Shell, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_DATA", str(logs))
    ran = shell("watch", "clicks", "--since", "2026-11-24T10:00:20Z", "--speed", "0", "--output", "json")
    first, second = map(json.loads, ran.out.splitlines())
    assert (first["time_ms"], second["time_ms"]) == (1_795_514_420_000, 1_795_514_431_000)
    assert (first["isr"], second["isr"], second["changed"][0]) == ([1, 2], [1], "isr")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("orders", "--logs", "."), 1, "the logs say nothing of topic orders in that time"),
        (("clicks", "--logs", ".", "--partition", "9"), 1, "the logs say nothing of partition 9, only of 0"),
        (("clicks", "--logs", ".", "--partition", "0,9", "--once"), 1, "nothing of partition 9, only of 0"),
        (
            ("clicks", "--logs", ".", "--partition", "0", "--until", "2000"),
            1,
            "the logs say nothing of partition 0 of topic clicks in that time",
        ),
        (("clicks", "--logs", "empty"), 1, "there is no change log to read"),
        (("clicks", "--speed", "2"), 2, "--speed is for a replay"),
        (("clicks", "--until", "-1h"), 2, "--until is for a replay"),
        (("clicks", "--logs", ".", "-b", "localhost:9092"), 2, "a replay reads logs"),
        (
            ("clicks", "--logs", ".", "--since", "2000", "--until", "1000"),
            2,
            "ends before it begins; give an earlier --since",
        ),
        (("clicks", "--since", "-1h", "--data", "nowhere"), 2, "there is no cluster in nowhere"),
        (("clicks", "--partition", "x"), 2, "--partition 'x' is not understood"),
        (("clicks", "--partition", "5-3"), 2, "5-3 ends before it begins"),
        (("a b",), 2, "a b"),
    ],
)
def test_what_cannot_be_watched_is_told_in_one_line(
    shell: Shell, logs: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.chdir(logs)
    (logs / "empty").mkdir()
    ran = shell("watch", *arguments)
    *warnings, last = ran.err.splitlines()
    assert ran.code == code and said in last and all("warning" in each for each in warnings)
