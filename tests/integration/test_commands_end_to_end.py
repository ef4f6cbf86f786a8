"""The `strandline` command as people and scripts use it: real processes, a real cluster, pipes and signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.process import ProcessId, identify

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("commands"), 3) as cluster:
        yield cluster


class Shell:
    """Runs `strandline …` against the cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "STRANDLINE_BOOTSTRAP": bootstrap}

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "strandline.cli", *args]

    def __call__(self, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command(*args), input=stdin, capture_output=True, timeout=TIMEOUT_S, env=self.environment
        )

    def start(self, *args: str, **pipes: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command(*args), env=self.environment, **pipes)


@pytest.fixture
def shell(served: EmbeddedCluster) -> Shell:
    return Shell(served.bootstrap_servers)


def created(shell: Shell, topic: str, *, partitions: int = 1, lines: bytes = b"") -> str:
    ran = shell("topics", "--create", "--topic", topic, "--partitions", str(partitions), "--replication-factor", "3")
    assert (ran.returncode, ran.stdout) == (0, f"Created topic {topic}.\n".encode()), ran.stderr
    if lines:
        ran = shell("produce", "-t", topic, stdin=lines)
        assert ran.returncode == 0, ran.stderr
    return topic


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"


def one_line(ran: subprocess.CompletedProcess[bytes]) -> str:
    """The only line on stderr."""
    text = ran.stderr.decode()
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text


def test_lines_come_back_byte_by_byte(shell: Shell) -> None:
    lines = b"one\r\n\n\xff\xfe\nlast\n"
    topic = created(shell, "bytes", lines=lines)
    ran = shell("consume", "-t", topic, "--from-beginning", "-e")
    assert (ran.returncode, ran.stdout) == (0, lines)
    assert ran.stderr == b"Processed a total of 4 messages\n"


def test_keys_headers_and_compression_survive_and_json_shows_them(shell: Shell) -> None:
    topic = created(shell, "keyed", partitions=3)
    ran = shell("produce", "-t", topic, "-K", ":", "-H", "h=1", "-z", "zstd", "-v", stdin=b"a:1\nb:2\na:3\n")
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 3
    ran = shell("consume", "-t", topic, "-o", ":end", "-J")
    records = [json.loads(line) for line in ran.stdout.splitlines()]
    assert sorted((each["key"], each["payload"]) for each in records) == [("a", "1"), ("a", "3"), ("b", "2")]
    assert all(each["headers"] == [{"key": "h", "value": "1"}] for each in records)
    assert len({each["partition"] for each in records if each["key"] == "a"}) == 1


def test_ranges_are_half_open(shell: Shell) -> None:
    topic = created(shell, "ranges", lines=b"".join(b"%d\n" % number for number in range(10)))
    assert shell("consume", "-t", topic, "-o", "3:6").stdout == b"3\n4\n5\n"
    assert shell("consume", "-t", topic, "-o", "-2:end").stdout == b"8\n9\n"
    assert shell("consume", "-t", topic, "-o", "@-1h", "-e", "-n", "1").stdout == b"0\n"


def test_a_group_goes_on_behind_what_it_has_printed(shell: Shell) -> None:
    topic = created(shell, "grouped", lines=b"".join(b"%d\n" % number for number in range(10)))
    args = ("consume", "-t", topic, "--group", "readers", "--from-beginning")
    assert shell(*args, "-n", "4").stdout == b"0\n1\n2\n3\n"
    reader = shell.start(*args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None
    assert [reader.stdout.readline() for _ in range(6)] == [b"%d\n" % number for number in range(4, 10)]
    reader.send_signal(signal.SIGINT)
    _, said = reader.communicate(timeout=TIMEOUT_S)
    assert (reader.returncode, said) == (130, b"Processed a total of 6 messages\n")
    # The last line may come again: nobody knows of a line that comes out while the command is interrupted.
    assert shell(*args, "--timeout-ms", "5000").stdout in (b"", b"9\n")
    assert shell(*args, "-e").returncode == 2


def test_a_group_is_told_what_was_deleted_while_it_was_away(shell: Shell) -> None:
    topic = created(shell, "aged", lines=b"".join(b"%d\n" % number for number in range(10)))
    args = ("consume", "-t", topic, "--group", "away", "-q", "-v", "-X", "auto.offset.reset=earliest")
    ran = shell(*args, "-n", "2")
    begins = f"the group has committed nothing of {topic}-0: auto.offset.reset says where it begins"
    assert (ran.stdout, one_line(ran)) == (b"0\n1\n", f"strandline: {begins}\n")
    assert shell("delete-records", topic, "--before", "5", "-y").returncode == 0
    ran = shell(*args, "-n", "5")
    assert (ran.returncode, ran.stdout) == (0, b"5\n6\n7\n8\n9\n")
    assert ran.stderr.decode().splitlines() == [
        f"strandline: {topic}-0 is read from offset 2 on",
        f"strandline: offsets 2 to 4 of {topic}-0 are gone from the log, unread",
    ]


def test_topics_are_listed_described_and_deleted(shell: Shell) -> None:
    topic = created(shell, "described", partitions=2)
    assert topic.encode() in shell("topics", "--list").stdout.splitlines()
    lines = shell("topics", "--describe", "--topic", topic).stdout.decode().splitlines()
    assert lines[0].startswith(f"Topic: {topic}\tTopicId: ")
    assert "\tPartitionCount: 2\tReplicationFactor: 3" in lines[0]
    assert [line.split("\t")[2] for line in lines[1:]] == ["Partition: 0", "Partition: 1"]
    # A follower that was too slow on a busy machine comes back.
    until(lambda: shell("topics", "--describe", "--under-replicated-partitions").stdout == b"")
    assert shell("topics", "--create", "--topic", topic).returncode == 1
    assert shell("topics", "--delete", "--topic", topic).returncode == 2
    assert shell("topics", "--delete", "--topic", topic, "--yes").returncode == 0
    assert topic.encode() not in shell("topics", "--list").stdout.splitlines()


def test_offsets_and_configs_of_a_topic_are_told_and_changed(shell: Shell) -> None:
    topic = created(shell, "measured", lines=b"a\nb\nc\n")

    def told(*args: str) -> dict[str, Any]:
        ran = shell(*args, "--output", "json")
        assert ran.returncode == 0, ran.stderr
        return dict(json.loads(ran.stdout))

    assert shell("delete-records", f"{topic}:0", "--before", "1", "--yes").returncode == 0
    [row] = told("offsets", f"{topic}:0", "--at", "@-1h")["partitions"]
    assert (row["earliest"], row["latest"], row["from"], row["to"], row["records"]) == (1, 3, 1, 3, 2)
    assert row["size_bytes"] > 0
    [later] = told("offsets", topic, "--at", "@2099-01-01")["partitions"]
    assert (later["from"], later["records"]) == (3, 0)
    assert shell("configs", "alter", "-t", topic, "--add", "retention.ms=86400000").returncode == 0
    [described] = told("topics", "describe", topic, "--offsets")["topics"]
    assert described["configs"]["retention.ms"] == "86400000"
    assert [(each["earliest"], each["latest"]) for each in described["partitions"]] == [(1, 3)]
    [retention] = told("configs", "describe", "-t", topic, "retention.ms")["configs"]
    assert (retention["set_in"], retention["unit"], retention["read_only"]) == ("topic", "ms", False)
    assert retention["documentation"]
    assert shell("configs", "alter", "-t", topic, "--delete", "retention.ms").returncode == 0
    [retention] = told("configs", "describe", "-t", topic, "retention.ms")["configs"]
    assert retention["set_in"] == "default"


def test_a_topic_that_does_not_exist_is_named_with_the_remedy(shell: Shell) -> None:
    for args in (("consume", "-t", "nowhere"), ("topics", "--describe", "--topic", "nowhere")):
        ran = shell(*args)
        assert ran.returncode == 1
        assert "nowhere" in one_line(ran)


def test_an_address_where_nobody_listens_is_named_with_the_remedy(shell: Shell) -> None:
    for command in (
        ("topics", "--list", "-X", "default.api.timeout.ms=1000"),
        ("produce", "-t", "t", "-X", "max.block.ms=1000"),
        ("consume", "-t", "t", "--from-beginning"),
    ):
        ran = shell(*command, "-b", "127.0.0.1:1", stdin=b"line\n")
        assert ran.returncode == 1
        assert "127.0.0.1:1" in one_line(ran)


def test_ctrl_c_ends_an_endless_read_with_its_count(shell: Shell) -> None:
    topic = created(shell, "endless", lines=b"a\n")
    process = shell.start("consume", "-t", topic, "--from-beginning", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"a\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, err) == (130, b"", b"Processed a total of 1 messages\n")


def test_consume_says_what_a_partition_waits_for_and_that_it_goes_on(served: EmbeddedCluster, shell: Shell) -> None:
    shell("topics", "--create", "--topic", "lonely", "--partitions", "1", "--replication-factor", "1")
    shell("produce", "-t", "lonely", stdin=b"a\n")
    [described] = json.loads(shell("topics", "describe", "lonely", "--output", "json").stdout)["topics"]
    leader = described["partitions"][0]["leader"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with shell.start("consume", "-t", "lonely", "--from-beginning", **pipes) as reader:
        assert reader.stdout is not None and reader.stderr is not None
        assert reader.stdout.readline() == b"a\n"
        served.kill_broker(leader)
        expected = (
            f"strandline: lonely-0 waits: partition lonely-0 has no leader (of its replicas {leader} gone: {leader})"
        )
        assert reader.stderr.readline().decode().startswith(expected)
        served.start_broker(leader)
        assert reader.stderr.readline() == b"strandline: lonely-0 goes on\n"
        assert shell("produce", "-t", "lonely", stdin=b"b\n").returncode == 0
        assert reader.stdout.readline() == b"b\n"
        reader.send_signal(signal.SIGINT)
        assert reader.wait(TIMEOUT_S) == 130
    served.wait_ready()


def test_ctrl_c_on_produce_says_all_that_was_acknowledged_while_the_pipe_stayed_open(shell: Shell) -> None:
    topic = created(shell, "interrupted")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with shell.start("produce", "-t", topic, "-v", **pipes) as writer:
        assert writer.stdin is not None and writer.stdout is not None and writer.stderr is not None
        writer.stdin.write(b"".join(b"%d\n" % number for number in range(3000)))
        writer.stdin.flush()
        shown = [writer.stdout.readline() for _ in range(3000)]
        writer.send_signal(signal.SIGINT)
        assert writer.wait(TIMEOUT_S) == 130
        assert writer.stdout.read() == b""
        assert writer.stderr.read().startswith(b"3000 records produced to interrupted in 1 partition (")
    assert len(set(shown)) == 3000


@pytest.mark.parametrize("attempt", range(4))
def test_ctrl_c_in_the_middle_of_sending_ends_produce(shell: Shell, attempt: int) -> None:
    topic = created(shell, f"endless-{attempt}")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with shell.start("produce", "-t", topic, "-v", **pipes) as writer:
        assert writer.stdin is not None and writer.stdout is not None and writer.stderr is not None
        feeding = threading.Thread(target=feed, args=(writer.stdin,))
        feeding.start()
        for _ in range(1 + 500 * attempt):
            assert writer.stdout.readline()
        reading = threading.Thread(target=writer.stdout.read)
        reading.start()
        writer.send_signal(signal.SIGINT)
        assert writer.wait(TIMEOUT_S) == 130
        feeding.join(TIMEOUT_S)
        reading.join(TIMEOUT_S)
        assert b"records produced to" in writer.stderr.read()


def feed(pipe: IO[bytes]) -> None:
    """Lines until nobody reads any more."""
    with contextlib.suppress(OSError, ValueError), pipe:
        while True:
            pipe.write(b"line\n" * 1000)


def test_ctrl_c_on_produce_counts_lines_that_went_out_together(shell: Shell) -> None:
    topic = created(shell, "together")
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with shell.start("produce", "-t", topic, **pipes) as writer:
        assert writer.stdin is not None and writer.stderr is not None
        writer.stdin.write(b"line\n" * 3000)
        writer.stdin.flush()
        until(lambda: shell("consume", "-t", topic, "-o", ":end").stdout.count(b"\n") == 3000)
        writer.send_signal(signal.SIGINT)
        assert writer.wait(TIMEOUT_S) == 130
        assert writer.stderr.read() == b"3000 records produced to together in 1 partition (12000 bytes)\n"


def test_a_pipe_from_consume_to_produce_keeps_every_record(shell: Shell) -> None:
    fields = ("%T", "%K %k", "%V %v", "%H %h{%K %k%V %v}", r"\n")
    template = " ".join(fields)
    topic = created(shell, "origin", partitions=2)
    assert (
        shell("produce", "-t", topic, "-K", ":", "-Z", "-H", "h=\u00e9", stdin=b"k:v\nk:\n:\xff\xfe\n").returncode == 0
    )
    assert (
        shell(
            "produce", "-t", topic, "-J", stdin=b'{"value":"old","ts":1600000000000,"headers":{"a":null}}\n'
        ).returncode
        == 0
    )
    shown = shell("consume", "-t", topic, "-o", ":end", "-J").stdout
    assert shown.count(b"\n") == 4
    for name, args in (("by-format", ("-F", template)), ("by-json", ("-J",))):
        created(shell, name)
        out = shell("consume", "-t", topic, "-o", ":end", *args).stdout
        assert shell("produce", "-t", name, *args, stdin=out).returncode == 0
        copied = shell("consume", "-t", name, "-o", ":end", "-J").stdout
        assert sorted(map(what_is_kept, copied.splitlines())) == sorted(map(what_is_kept, shown.splitlines()))


def what_is_kept(line: bytes) -> str:
    return json.dumps({name: value for name, value in json.loads(line).items() if name not in WHERE}, sort_keys=True)


WHERE = ("topic", "partition", "offset")


def test_topics_that_match_are_read_and_those_that_come_later_too(shell: Shell) -> None:
    created(shell, "match-a", lines=b"a\n")
    process = shell.start(
        "consume", "-r", "match-.*", "--from-beginning", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"a\n"
    created(shell, "match-b", partitions=2, lines=b"b\n")
    assert process.stdout.readline() == b"b\n"
    assert shell("topics", "--alter", "--topic", "match-a", "--partitions", "2").returncode == 0
    assert shell("produce", "-t", "match-a", "-p", "1", stdin=b"c\n").returncode == 0
    assert process.stdout.readline() == b"c\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=TIMEOUT_S)[1] == b"Processed a total of 3 messages\n"


def test_a_deleted_topic_is_told_and_left_and_the_last_one_ends_the_command(shell: Shell) -> None:
    for topic in ("gone-1", "gone-2"):
        created(shell, topic)
    with shell.start(
        "consume", "-t", "gone-1,gone-2", "--from-beginning", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert shell("produce", "-t", "gone-1", stdin=b"first\n").returncode == 0
        assert process.stdout.readline() == b"first\n"
        assert shell("topics", "delete", "gone-1", "--yes").returncode == 0
        assert process.stderr.readline() == b"strandline: topic gone-1 has gone, and is read no more\n"
        assert shell("produce", "-t", "gone-2", stdin=b"second\n").returncode == 0
        assert process.stdout.readline() == b"second\n"
        assert shell("topics", "delete", "gone-2", "--yes").returncode == 0
        assert process.wait(TIMEOUT_S) == 1
        assert process.stderr.read().splitlines() == [
            b"Processed a total of 2 messages",
            b"strandline: nothing is left to read: gone-2 has gone",
        ]


def test_a_topic_that_produce_creates_is_told_and_no_create_refuses(shell: Shell) -> None:
    created(shell, "meant")
    ran = shell("produce", "-t", "maent", "--no-create", stdin=b"a\n")
    assert (ran.returncode, "(did you mean meant?)" in one_line(ran)) == (1, True)
    assert b"maent" not in shell("topics", "--list").stdout.splitlines()
    ran = shell("produce", "-t", "maent", stdin=b"a\n")
    told = "strandline: created topic maent with 1 partition of 3 replicas (did you mean meant?)"
    assert (ran.returncode, ran.stderr.decode().splitlines()[0]) == (0, told)


def test_a_reader_that_leaves_ends_the_command_quietly(shell: Shell) -> None:
    topic = created(shell, "piped", lines=b"line\n" * 50_000)
    process = shell.start("consume", "-t", topic, "--from-beginning", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(TIMEOUT_S) == 1
    assert err.startswith(b"Processed a total of ")
    assert err.count(b"\n") == 1


def test_benchmarks_measure_a_real_cluster_and_leave_nothing_behind(shell: Shell, tmp_path: Path) -> None:
    before = shell("topics", "--list").stdout
    page = tmp_path / "bench.html"
    ran = shell("bench", "produce", "--records", "20000", "--partitions", "2", "--processes", "2", "--page", str(page))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith(b"20000 records sent, ") and b"<svg" in page.read_bytes()
    ran = shell("bench", "consume", "--records", "5000", "--output", "json", "-X", "fetch.max.bytes=100000")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["records"] >= 5_000
    ran = shell("bench", "e2e", "--rate", "100", "--records", "50", "--output", "json", "-X", "linger.ms=1")
    told = json.loads(ran.stdout)
    assert (ran.returncode, told["records"], told["failed"]) == (0, 50, 0), ran.stderr
    assert told["latency_ms"]["p50"] > 0
    assert shell("topics", "--list").stdout == before


def test_producers_of_a_benchmark_end_with_the_process_that_was_killed(shell: Shell) -> None:
    topic = created(shell, "bench-killed")
    command = ("bench", "produce", "-t", topic, "--processes", "2", "--seconds", "600", "--rate", "50")
    with shell.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        producers: list[ProcessId] = []

        def are_started() -> bool:
            producers[:] = [found for pid in children.read_text().split() if (found := identify(int(pid)))]
            return len(producers) == 2

        until(are_started)
        assert shell("consume", "-t", topic, "--from-beginning", "-n", "1").returncode == 0
        parent.kill()
        parent.wait(TIMEOUT_S)
    gone = [each.wait_gone(TIMEOUT_S) for each in producers]
    for each in producers:
        each.send(signal.SIGKILL)
    assert all(gone)
