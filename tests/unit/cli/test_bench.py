"""`strandline bench` against the fake cluster: what is sent and read, what is said, and the topic of its own."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.bench_consume import QUIET_S
from strandline.cli.bench_measure import Measurement, result_fields
from strandline.cli.bench_processes import arguments
from strandline.cli.bench_run import RunOptions
from strandline.cli.session import EXIT_INTERRUPTED
from strandline.protocol.types import TopicPartition
from strandline.runtime.processes.interrupts import end_as_interrupted
from unit.cli.conftest import FakeCluster, FakeConsumer, Shell

OWN = "bench-1700000060000"
FINAL = re.compile(
    r"(\d+) records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency, "
    r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th\.\n"
)


@pytest.fixture(autouse=True)
def roomy(cluster: FakeCluster) -> None:
    cluster.max_record_bytes = 1_000_000
    cluster.is_readable = True


def test_as_many_records_as_asked_for_are_sent_to_a_topic_of_its_own(shell: Shell, cluster: FakeCluster) -> None:
    cluster.moves.racks = {1: None, 2: None}
    ran = shell("bench", "produce", "--records", "1234", "--size", "50", "--keys", "3", "--partitions", "4")
    assert ran.code == 0, ran.err
    assert FINAL.fullmatch(ran.out.splitlines(keepends=True)[-1])[1] == "1234"
    assert cluster.settings["created"] == (OWN, 4, 2, {}), "as many replicas as there are brokers"
    assert cluster.topics == {}, "it is deleted"
    assert len(cluster.produced) == 1234
    assert {len(value) for _, _, value, _, _ in cluster.produced} == {50}
    assert {key for _, key, _, _, _ in cluster.produced} == {b"key-0", b"key-1", b"key-2"}
    assert (cluster.settings["acks"], cluster.settings["compression_type"]) == ("all", "none")


def test_a_topic_that_was_named_stays_and_one_that_is_not_there_is_an_error(shell: Shell, cluster: FakeCluster) -> None:
    ran = shell("bench", "produce", "-t", "clicks", "--records", "10")
    assert (ran.code, cluster.produced) == (1, [])
    assert ran.err == "strandline: topic 'clicks' does not exist; without --topic one is made for the benchmark\n"
    cluster.add_topic("clicks", {})
    assert shell("bench", "produce", "-t", "clicks", "--records", "10").code == 0
    assert "clicks" in cluster.topics and len(cluster.produced) == 10
    ran = shell("bench", "produce", "-t", "clicks", "--partitions", "3")
    assert ran.code == 2 and "--partitions is for a topic of its own" in ran.err


def test_failures_are_counted_and_named_and_the_topic_is_deleted_all_the_same(
    shell: Shell, cluster: FakeCluster
) -> None:
    cluster.fail_after = 900
    ran = shell("bench", "produce", "--records", "1000", "--per-call", "300", "--output", "json")
    assert ran.code == 1
    told = json.loads(ran.out)
    assert (told["_command"], told["records"], told["failed"]) == ("bench.produce", 900, 100)
    assert told["errors"]["BrokerError"]["records"] == 100
    assert ran.err.startswith("strandline: 100 records failed: 100 x BrokerError, first: ")
    assert cluster.topics == {}


def test_who_falls_behind_a_rate_has_the_wait_in_the_latencies(shell: Shell, cluster: FakeCluster) -> None:
    ran = shell("bench", "produce", "--rate", "20", "--seconds", "5", "--per-call", "1", "--output", "json")
    told = json.loads(ran.out)
    assert ran.code == 0 and told["records"] == len(cluster.produced)
    assert sum(told["histogram"]["buckets"][1::2]) == told["records"]
    assert told["settings"]["rate"] == "20.0"
    assert told["latency_ms"]["max"] > 2_000, (
        "sent at once, but seconds after it was due: each look at the clock takes 0.1 s"
    )
    assert 4 <= len(told["intervals"]) <= 6


def test_it_reads_what_it_wrote_and_all_ways_of_decoding_count_alike(shell: Shell, cluster: FakeCluster) -> None:
    cluster.is_readable = True
    for decode in ("columns", "records", "none"):
        cluster.records.clear()
        ran = shell("bench", "consume", "--records", "700", "--size", "30", "--decode", decode)
        assert ran.code == 0, ran.err
        header, line = ran.out.splitlines()
        assert header.startswith("start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg")
        assert line.split(", ")[4] == "700"
        if decode != "none":
            assert line.split(", ")[2] == f"{700 * 30 / 2**20:.4f}"


@pytest.mark.parametrize(("decode", "read"), [("records", 7), ("columns", 11), ("none", 11)])
def test_exactly_as_many_records_as_asked_for_are_read_where_the_last_poll_can_be_cut(
    shell: Shell, cluster: FakeCluster, decode: str, read: int
) -> None:
    cluster.add_topic("clicks", {})
    cluster.fill("clicks", 0, [b"a"] * 5)
    cluster.fill("clicks", 1, [b"b"] * 6)
    asked = ("bench", "consume", "-t", "clicks", "--decode", decode, "--output", "json")
    assert json.loads(shell(*asked, "--messages", "7").out)["records"] == read
    few = shell(*asked, "--messages", "7", "-X", "max.poll.records=2")
    assert (few.code, json.loads(few.out)["records"]) == (0, read)


@pytest.mark.parametrize("decode", ["columns", "records", "none"])
def test_a_gap_at_the_end_of_a_topic_is_not_waited_for(shell: Shell, cluster: FakeCluster, decode: str) -> None:
    cluster.add_topic("clicks", {})
    cluster.fill("clicks", 0, [b"a"] * 5)
    cluster.ends[TopicPartition("clicks", 0)] = 9
    ran = shell("bench", "consume", "-t", "clicks", "--decode", decode, "--output", "json")
    assert json.loads(ran.out)["records"] == 5
    assert shell.session.clock < QUIET_S


def test_a_topic_of_which_nothing_comes_any_more_is_a_failure(shell: Shell, cluster: FakeCluster) -> None:
    """As where a partition has no leader: fewer records in the same time would pass for a slow cluster."""

    class StandsStill(FakeConsumer):
        def _taken(self) -> Any:
            taken = super()._taken()
            self.positions[TopicPartition("clicks", 0)] = 0
            return {partition: found for partition, found in taken.items() if partition.partition}

    shell.session.consumer = lambda servers, **settings: shell.session._made(StandsStill, servers, settings)
    cluster.add_topic("clicks", {})
    cluster.fill("clicks", 0, [b"a"] * 5)
    cluster.fill("clicks", 1, [b"b"] * 6)
    ran = shell("bench", "consume", "-t", "clicks", "--output", "json")
    told = json.loads(ran.out)
    assert (ran.code, told["records"], told["interrupted"]) == (1, 6, False)
    assert told["unread"] == [{"topic": "clicks", "partition": 0, "position": 0, "end": 5}]
    assert ran.err.startswith("strandline: nothing came for 10 s, so not all is read: clicks-0 at 0 of 5; ")


def test_a_topic_is_read_to_its_end_or_as_far_as_asked_for(shell: Shell, cluster: FakeCluster) -> None:
    cluster.add_topic("clicks", {})
    cluster.fill("clicks", 0, [b"a"] * 5)
    cluster.fill("clicks", 1, [b"b"] * 6)
    cluster.fill("clicks", 2, [])
    ran = shell("bench", "consume", "-t", "clicks", "--output", "json")
    told = json.loads(ran.out)
    assert told["records"] == 11
    assert "value" not in told["settings"], "how large they are nobody has looked at"
    told = json.loads(shell("bench", "consume", "--records", "5", "--size", "30", "--output", "json").out)
    assert told["settings"]["value"] == "30 B"
    ran = shell("bench", "consume", "-t", "clicks", "--show-detailed-stats", "--hide-header")
    assert [line.split(", ")[1] for line in ran.out.splitlines()] == ["0"] and ran.code == 0


def test_round_trips_are_counted_one_at_a_time_and_at_a_rate(shell: Shell, cluster: FakeCluster) -> None:
    cluster.is_readable = True
    cluster.records[TopicPartition(OWN, 0)] = []
    ran = shell("bench", "e2e", "--records", "25", "-X", "fetch.min.bytes=1", "-X", "batch.size=1")
    assert ran.code == 0, ran.err
    assert re.search(
        r"^Avg latency: [\d.]+ ms\nPercentiles: 50th = [\d.]+, 99th = .*, 99.9th = [\d.]+\n$", ran.out, re.M
    )
    assert len(cluster.produced) == 25
    assert cluster.settings["linger_ms"] == 0
    ran = shell("bench", "e2e", "--rate", "30", "--seconds", "3", "--output", "json")
    told = json.loads(ran.out)
    assert (ran.code, told["failed"], told["records"]) == (0, 0, len(cluster.produced) - 25)
    assert sum(told["histogram"]["buckets"][1::2]) == told["records"] and told["latency_ms"]["p50"] > 0


def test_a_record_that_nobody_reads_is_a_failure(shell: Shell, cluster: FakeCluster) -> None:
    cluster.is_readable = False
    cluster.records[TopicPartition(OWN, 0)] = []
    ran = shell("bench", "e2e", "--records", "2")
    assert ran.code == 1
    assert "strandline: 2 records failed: 2 x NotRead, first: a record was not read within 10 s" in ran.err
    assert shell("bench", "e2e", "--size", "15").code == 2


def test_records_of_another_run_in_the_same_topic_are_not_counted(shell: Shell, cluster: FakeCluster) -> None:
    cluster.add_topic("clicks", {})
    log = cluster.records.setdefault(TopicPartition("clicks", 0), [])
    assert shell("bench", "e2e", "-t", "clicks", "--records", "3").code == 0
    others = [record.value for record in log]
    log.clear()
    cluster.is_readable = False
    cluster.before_poll = lambda: None if log else cluster.fill("clicks", 0, others)
    told = json.loads(shell("bench", "e2e", "-t", "clicks", "--records", "3", "--output", "json").out)
    assert (told["records"], told["failed"], len(log)) == (0, 3, 3)


def test_ctrl_c_tells_what_there_is_and_deletes_the_topic(shell: Shell, cluster: FakeCluster) -> None:
    cluster.is_readable = True
    cluster.records[TopicPartition(OWN, 0)] = []
    cluster.interrupt_at_poll = 8
    ran = shell("bench", "e2e", "--output", "json")
    assert ran.code == 130
    told = json.loads(ran.out)
    assert told["interrupted"] and told["records"] == 7
    assert cluster.topics == {}


def test_the_page_is_written_and_named_on_stderr(shell: Shell, cluster: FakeCluster, tmp_path: Path) -> None:
    page = tmp_path / "bench.html"
    ran = shell("bench", "produce", "--records", "100", "--page", str(page), "-X", "linger.ms=7")
    assert ran.code == 0 and ran.err == f"page: {page}\n"
    assert "linger.ms</td><td>7" in page.read_text()
    assert shell("bench", "produce", "--page", str(tmp_path / "no" / "x.html")).code == 2


@pytest.mark.parametrize("count", [2, 3])
def test_processes_share_records_and_rate(count: int) -> None:
    options = RunOptions(None, None, None, None, False, 100, 5.0, 10, 1.0, None, "text", ("linger.ms=1",))
    given = {"processes": count, "acks": "1", "compression": "lz4", "keys": 2, "per_call": 9, "rate": 60.0}
    lines = [arguments(options, "t", "localhost:1", given, place) for place in range(count)]
    assert {line.pop() for line in lines} == {"--ends-with-stdin"}
    asked = [dict(zip(line[2::2], line[3::2], strict=True)) for line in lines]
    assert sum(int(each["--records"]) for each in asked) == 100
    assert sum(float(each["--rate"]) for each in asked) == 60
    assert {each["--output"] for each in asked} == {"json"} and {each["-X"] for each in asked} == {"linger.ms=1"}


class Started:
    """A process that has a result once it is interrupted, or, of a kind, none."""

    ended_by = signal.SIGINT
    """What this process, which waits for the others, is sent."""

    def __init__(self, command: list[str], **given: Any) -> None:
        self.signals: list[int] = []
        self.ended = False
        self.returncode = EXIT_INTERRUPTED
        self.has_result = True
        assert given["process_group"] == 0, "or a terminal interrupts it, too, and what it does then twice"

    def communicate(self) -> tuple[bytes, bytes]:
        if not self.signals:
            signal.raise_signal(self.ended_by)
        self.ended = True
        measurement = Measurement(1.0)
        measurement.note(10, 1_000)
        fields = result_fields(measurement.end(2.0))
        return (json.dumps(fields).encode() if self.has_result else b""), b"strandline: interrupted"

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        if not self.ended:
            self.signals.append(signal.SIGKILL)

    def wait(self) -> None:
        self.ended = True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    """The processes, in the order in which they were started."""
    found: list[Started] = []

    def start(command: list[str], **given: Any) -> Started:
        found.append(Started(command, **given))
        return found[-1]

    monkeypatch.setattr("strandline.cli.bench_processes.subprocess.Popen", start)
    return found


@pytest.fixture
def _ended_as_commands_are() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    end_as_interrupted()
    yield
    for number, answer in before.items():
        signal.signal(number, answer)


@pytest.mark.parametrize("kind", ["consume", "e2e"])
def test_a_benchmark_joins_no_group(shell: Shell, cluster: FakeCluster, kind: str) -> None:
    ran = shell("bench", kind, "-t", "t", "-X", "group.id=readers")
    assert (ran.code, ran.out, "moves no group's offsets" in ran.err) == (2, "", True), ran.err
    assert cluster.produced == []


@pytest.mark.usefixtures("_ended_as_commands_are")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_reaches_each_process_once_and_each_tells_what_it_has(
    shell: Shell, cluster: FakeCluster, started: list[Started], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(Started, "ended_by", number)
    ran = shell("bench", "produce", "--processes", "3", "--output", "json")
    told = json.loads(ran.out)
    assert (ran.code, told["records"], told["interrupted"]) == (130, 30, True)
    assert [each.signals for each in started] == [[signal.SIGINT]] * 3
    assert cluster.topics == {}


def test_an_interrupt_while_processes_start_leaves_none_behind(
    shell: Shell, started: list[Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptsAtOnce(Started):
        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__(*args, **given)
            self.has_result = False
            started.append(self)
            signal.raise_signal(self.ended_by)

    monkeypatch.setattr("strandline.cli.bench_processes.subprocess.Popen", InterruptsAtOnce)
    assert shell("bench", "produce", "--processes", "2").code == 130
    assert [(each.signals, each.ended) for each in started] == [([signal.SIGINT], True)] * 2


def test_there_are_no_more_processes_than_records(shell: Shell, started: list[Started]) -> None:
    shell("bench", "produce", "--processes", "5", "--records", "3")
    assert len(started) == 3
    started.clear()
    assert shell("bench", "produce", "--processes", "5", "--records", "1").code == 0
    assert started == []
