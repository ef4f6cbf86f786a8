"""`strandline produce` over a fake cluster: what is sent, shown and counted, and how it ends."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click
import pytest

from strandline.cli import main as cli_main
from strandline.cli import sending
from strandline.cli.options import TEXTS
from strandline.cli.produce import paced
from strandline.cli.progress import ProgressLine
from strandline.cli.record_input import Records
from strandline.cli.waits import Waits
from strandline.client.errors import DeliveryFailed, UnknownTopic
from strandline.client.metadata import PartitionView
from strandline.client.settings import ConsumerSettings, ProducerSettings
from strandline.protocol.errors import ErrorCode
from unit.cli.conftest import FakeCluster, FakeProducer
from unit.cli.test_consume import GOES_ON, TOLD, WAITED


@pytest.fixture(autouse=True)
def the_topic_is_there(cluster: Any) -> None:
    cluster.add_topic("t", {0: PartitionView(1, 0, (1,), (1,))})


def write_lines(path: Path, text: bytes) -> str:
    path.write_bytes(text)
    return str(path)


def test_each_line_becomes_a_record_and_only_the_line_feed_is_taken_away(shell: Any, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", b"one\r\n\n\xff\nlast")
    ran = shell("produce", "-t", "t", "-l", source)
    assert ran.code == 0
    assert [value for _, _, value, _, _ in shell.cluster.produced] == [b"one\r", b"", b"\xff", b"last"]
    assert "4 records produced to t" in ran.err
    assert ran.out == ""


def test_key_separator_partition_and_headers_reach_the_producer(shell: Any, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", b"k:v:w\n")
    ran = shell(
        "produce", "-t", "t", "-l", source, "-K", ":", "-p", "2", "-H", "h=1", "--acks", "1", "-X", "linger.ms=7"
    )
    assert ran.code == 0
    assert shell.cluster.produced == [("t", b"k", b"v:w", 2, (("h", b"1"),))]
    given = {"acks": "1", "compression_type": "none", "max_block_ms": 10_000, "linger.ms": 7, "closed_within_s": None}
    assert given.items() <= shell.cluster.settings.items()


def test_a_partition_that_the_topic_lacks_is_refused_before_anything_is_read(shell: Any, tmp_path: Path) -> None:
    ran = shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"a\n"), "-p", "99")
    assert (ran.code, shell.cluster.produced) == (2, [])
    assert "topic 't' has no partition 99; it has 0 to 2" in ran.err
    assert ran.err.count("\n") == 1


def test_a_header_is_sent_as_the_bytes_that_were_typed(shell: Any, tmp_path: Path) -> None:
    shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"a\n"), "-H", "h=\udcff")
    assert shell.cluster.produced[0][4] == (("h", b"\xff"),)


def test_verbose_prints_partition_and_offset_and_json_one_object_each(shell: Any, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", b"a\nb\n")
    assert shell("produce", "-t", "t", "-l", source, "-v").out == "0@0\n0@1\n"
    lines = shell("produce", "-t", "t", "-l", source, "--output", "json").out.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [2, 3]


def test_an_empty_line_is_a_tombstone_when_asked(shell: Any, tmp_path: Path) -> None:
    shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"k:\n"), "-K", ":", "-Z")
    assert shell.cluster.produced[0][1:3] == (b"k", None)


def test_a_record_that_fails_ends_the_command_and_the_acknowledged_ones_are_counted(shell: Any, tmp_path: Path) -> None:
    shell.cluster.fail_after = 2
    ran = shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"a\nb\nc\nd\n"))
    assert ran.code == 1
    assert "2 records produced" in ran.err
    assert shell.cluster.settings["closed_within_s"] < 1
    assert "Traceback" not in ran.err


def test_what_keeps_records_back_is_told_once_and_they_are_waited_for(shell: Any, tmp_path: Path) -> None:
    shell.cluster.waiting = list(WAITED)
    ran = shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"a\n"))
    assert (ran.code, ran.err) == (0, f"{TOLD}1 record produced to t in 1 partition (1 byte)\n")


def test_what_keeps_records_back_is_told_while_no_input_comes(shell: Any) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\n")
    shell.cluster.waiting = list(WAITED)
    shell.session.step_s = 1
    # The input ends when the partition went on; whoever does not ask waits for ever.
    shell.cluster.when_all_waited = lambda: os.close(writing)
    ran = shell("produce", "-t", "t", "-l", f"/dev/fd/{reading}")
    os.close(reading)
    assert (ran.code, ran.err.startswith(TOLD + GOES_ON)) == (0, True)


def test_too_many_records_that_are_kept_back_are_a_wait_that_is_told(
    shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.cli.sending.MAX_PENDING", 0)
    shell.cluster.waiting = list(WAITED)
    shell.cluster.late = True
    ran = shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"a\nb\n"))
    assert (ran.code, ran.err.startswith(TOLD)) == (0, True)


@pytest.mark.parametrize("key", ["linger.ms", "linger-ms", "linger_ms"])
def test_a_wrong_setting_is_named_as_it_was_typed(key: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli_main.run(["produce", "-t", "t", "-b", "127.0.0.1:1", "-X", f"{key}=abc"]) == 2
    assert capfd.readouterr().err.startswith(f"strandline: {key}='abc' is not a number; give at least 0 ms (")


def test_texts_of_settings_may_be_numbers(shell: Any) -> None:
    given = ("-X", "client.id=42", "-X", "client-rack=true", "-X", "linger.ms=5")
    assert shell("produce", "-t", "t", "-l", "/dev/null", *given).code == 0
    assert {"client.id": "42", "client-rack": "true", "linger.ms": 5}.items() <= shell.cluster.settings.items()
    for kind in (ProducerSettings, ConsumerSettings):
        texts = {
            each.name for each in dataclasses.fields(kind) if each.type == "str" and not each.metadata.get("choices")
        }
        assert texts <= {*TEXTS, "bootstrap_servers"}


def test_what_was_settled_shortly_after_ctrl_c_is_shown_and_counted(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chunks(*_: object) -> Iterator[bytes]:
        yield b"one\nthree\nlost\n"
        raise KeyboardInterrupt

    monkeypatch.setattr("strandline.cli.produce.input_chunks", chunks)
    shell.cluster.late = True
    ran = shell("produce", "-t", "t", "-v")
    assert (ran.code, ran.out) == (130, "0@0\n0@1\n")
    assert ran.err == "2 records produced to t in 1 partition (8 bytes); 1 more not acknowledged\n"
    assert shell.cluster.settings["closed_within_s"] < 1


@pytest.mark.parametrize(
    ("last", "message"), [(b"", "interrupted"), (b"lost\n", "interrupted: 1 record not acknowledged")]
)
def test_after_ctrl_c_the_last_line_of_json_says_so(
    shell: Any, monkeypatch: pytest.MonkeyPatch, last: bytes, message: str
) -> None:
    def chunks(*_: object) -> Iterator[bytes]:
        yield b"one\nthree\n" + last
        raise KeyboardInterrupt

    monkeypatch.setattr("strandline.cli.produce.input_chunks", chunks)
    shell.cluster.late = True
    ran = shell("produce", "-t", "t", "--output", "json")
    *records, told = [json.loads(line) for line in ran.out.splitlines()]
    assert (ran.code, [each["offset"] for each in records]) == (130, [0, 1])
    assert told["_command"] == "produce"
    assert told["error"] == {"name": "Interrupted", "message": message, "exit_code": 130}


def test_after_ctrl_c_the_count_comes_also_where_nothing_was_acknowledged(
    shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def accepted_and_interrupted(*args: Any, **given: Any) -> None:
        send_many(*args, **given)
        raise KeyboardInterrupt

    kind = type(shell.session.producer(""))
    send_many = kind.send_many
    monkeypatch.setattr(kind, "send_many", accepted_and_interrupted)
    ran = shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"a\nb\n"))
    assert (ran.code, len(shell.cluster.produced)) == (130, 2)
    assert ran.err == "0 records produced to t (0 bytes); 2 more not acknowledged\n"


@pytest.mark.parametrize("verbose", [False, True])
def test_whenever_ctrl_c_comes_each_record_that_was_sent_counts_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verbose: bool
) -> None:
    def at_step(number: int) -> Callable[..., Any]:
        """Raises it before that instruction of the code that sends and counts."""
        steps = iter(range(1, number + 1))

        def trace(frame: FrameType, event: str, _: object) -> Any:
            if frame.f_code.co_filename != sending.__file__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and next(steps, number) == number:
                raise KeyboardInterrupt
            return trace

        return trace

    monkeypatch.setattr(sending, "MAX_PENDING", 2)
    for number in range(1, 10_000):
        cluster = FakeCluster()
        producer: Any = FakeProducer(cluster)
        tally = sending.Tally(producer, "t", Waits(producer, lambda: 0.0), verbose=verbose, as_json=False)
        is_over = False
        sys.settrace(at_step(number))
        try:
            for first in (1, 3):
                tally.send(Records(range(first, first + 2), [(None, b"a"), (None, b"b")], 2), None, [])
                tally.reap()
            tally.reap_all()
            is_over = True
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        tally.reap_rest()
        counted = tally.acked + tally.lost
        assert counted - len(cluster.produced) in (0, 1 if verbose else 2), number
        assert tally.acked == len(cluster.produced) or tally.lost, number
        if is_over:
            break
    assert is_over and tally.acked == 4 and number > 100
    capsys.readouterr()


def test_a_second_ctrl_c_while_the_command_ends_loses_neither_close_nor_count(
    shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "stop", interrupted)
    ran = shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"a\n"))
    assert (ran.code, "closed_within_s" in shell.cluster.settings) == (130, True)
    assert ran.err.splitlines()[0] == "1 record produced to t in 1 partition (1 byte)"


def test_outcomes_are_shown_while_no_input_comes(shell: Any) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\n")
    shell.cluster.late = True
    # The input ends when the outcome was asked for; whoever does not ask waits for ever.
    shell.cluster.when_settled = lambda: os.close(writing)
    ran = shell("produce", "-t", "t", "-v", "-l", f"/dev/fd/{reading}")
    os.close(reading)
    assert (ran.code, ran.out) == (0, "0@0\n")


def test_a_record_that_fails_ends_the_command_while_no_input_comes(shell: Any) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"lost\n")
    shell.cluster.late = True
    ran = shell("produce", "-t", "t", "-l", f"/dev/fd/{reading}")
    os.close(reading)
    os.close(writing)
    assert (ran.code, ran.err) == (1, "strandline: closed\n")


def test_what_was_acknowledged_is_counted_where_nobody_reads_what_is_shown(
    shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = click.echo

    def closed_pipe(message: str, nl: bool = True, err: bool = False) -> None:
        if not err:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        shown(message, nl=nl, err=err)

    monkeypatch.setattr("strandline.cli.sending.click.echo", closed_pipe)
    monkeypatch.setattr("strandline.cli.main.discard_output", lambda: None)
    shell.cluster.late = True
    ran = shell("produce", "-t", "t", "-v", "-l", write_lines(tmp_path / "in", b"one\ntwo\nthree\n"))
    assert (ran.code, ran.err) == (1, "3 records produced to t in 1 partition (11 bytes)\n")


def test_an_empty_input_asks_for_nothing(shell: Any) -> None:
    ran = shell("produce", "-t", "missing", "--no-create", "-l", "/dev/null")
    assert (ran.code, ran.err) == (0, "0 records produced to missing (0 bytes)\n")


def test_a_line_without_separator_is_named_with_the_remedy_after_those_before_it(shell: Any, tmp_path: Path) -> None:
    line = b"novalue " * 1_000
    ran = shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"a:1\nb:2\n" + line + b"\nc:3\n"), "-K", ":")
    assert (ran.code, [record[1:3] for record in shell.cluster.produced]) == (1, [(b"a", b"1"), (b"b", b"2")])
    counted, told = ran.err.splitlines()
    assert counted == "2 records produced to t in 1 partition (6 bytes)"
    assert told.startswith("strandline: line 3: no separator b':'; change --key-separator or leave it out: 'novalue ")
    assert told.endswith("…") and len(told) < 160


def test_lines_go_out_together_and_count_one_by_one(shell: Any, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", b"k:a\n" * 5_000)
    ran = shell("produce", "-t", "t", "-l", source, "-K", ":", "-H", "h=1")
    assert (ran.code, ran.err) == (0, "5000 records produced to t in 1 partition (15000 bytes)\n")
    assert (shell.cluster.sent_at_once, set(shell.cluster.produced)) == (
        [5_000],
        {("t", b"k", b"a", None, (("h", b"1"),))},
    )
    assert shell("produce", "-t", "t", "-l", source, "-v").out.count("\n") == 5_000
    assert shell.cluster.sent_at_once == [5_000]


def test_the_first_line_that_cannot_be_sent_is_named_among_many(shell: Any, tmp_path: Path) -> None:
    lines = [b"small"] * 9
    lines[6] = b"x" * 200
    for args in ((), ("-v",)):
        ran = shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"\n".join([*lines, b""])), *args)
        assert ran.code == 1
        assert ran.err.splitlines()[-1] == f"strandline: line 7: too large: '{'x' * 40}'…"
        assert "8 records produced to t in 1 partition (" in ran.err
        assert ("about" in ran.err) is not bool(args)


def test_of_many_that_were_refused_together_the_lines_are_told_and_the_others_count(shell: Any, tmp_path: Path) -> None:
    shell.cluster.fail_after, shell.cluster.failure = 2, DeliveryFailed("no replica takes it", outcome_unknown=False)
    source = write_lines(tmp_path / "in", b"line\n" * 5)
    ran = shell("produce", "-t", "t", "-l", source)
    counted, told = ran.err.splitlines()
    assert counted == "2 records produced to t in 1 partition (about 8 bytes); 3 more not acknowledged"
    assert told == "strandline: one of lines 1 to 5: no replica takes it"
    shell.cluster.fail_after += 2
    ran = shell("produce", "-t", "t", "-l", source, "-v")
    assert ran.err.splitlines()[-1] == "strandline: line 3: no replica takes it: 'line'"


def test_so_many_lines_and_no_more(shell: Any, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", b"a\nb\nc\n")
    for count, sent in ((2, [b"a", b"b"]), (3, [b"a", b"b", b"c"]), (9, [b"a", b"b", b"c"])):
        shell.cluster.produced.clear()
        assert shell("produce", "-t", "t", "-l", source, "-c", str(count)).code == 0
        assert [record[2] for record in shell.cluster.produced] == sent


@pytest.mark.parametrize(("args", "line"), [(("-J",), b'{"value":"a"}'), (("-K", ":"), b"k:a")])
def test_what_stands_behind_the_last_wanted_line_need_not_be_readable(
    shell: Any, tmp_path: Path, args: tuple[str, ...], line: bytes
) -> None:
    source = write_lines(tmp_path / "in", line + b"\nnothing\n")
    ran = shell("produce", "-t", "t", "-l", source, "-c", "1", *args)
    assert (ran.code, ran.err) == (0, f"1 record produced to t in 1 partition ({len(line)} bytes)\n")
    ran = shell("produce", "-t", "t", "-l", source, "-c", "2", *args)
    assert (ran.code, "strandline: line 2: " in ran.err) == (1, True)


@pytest.mark.parametrize("args", [(), ("-v",)])
def test_a_line_that_the_producer_refuses_is_named_after_those_before_it(
    shell: Any, tmp_path: Path, args: tuple[str, ...]
) -> None:
    shell.cluster.refused_value = b"bad"
    ran = shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"a\nb\nbad\nc\n"), *args)
    assert (ran.code, [record[2] for record in shell.cluster.produced]) == (1, [b"a", b"b"])
    counted, told = ran.err.splitlines()
    assert counted == "2 records produced to t in 1 partition (2 bytes)"
    assert told == "strandline: line 3: it is no record: 'bad'"
    assert shell.cluster.settings["closed_within_s"] is None, "those before it have all the time"


@pytest.mark.parametrize("args", [(), ("-v",)])
def test_headers_of_the_command_line_count_where_a_record_is_too_large(
    shell: Any, tmp_path: Path, args: tuple[str, ...]
) -> None:
    source = write_lines(tmp_path / "in", b"\n\n0123456789\n\n")
    ran = shell("produce", "-t", "t", "-l", source, "-H", "h=" + "x" * 25, *args)
    assert ran.err.splitlines()[-1] == "strandline: line 3: too large: '0123456789'"


@pytest.mark.parametrize("args", [(), ("-v",)])
def test_a_partition_of_the_input_that_the_topic_lacks_is_told_with_its_line(
    shell: Any, tmp_path: Path, args: tuple[str, ...]
) -> None:
    what = "topic 't' has no partition 9, only 3 of them"
    shell.cluster.fail_after, shell.cluster.failure = 2, UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
    source = write_lines(tmp_path / "in", b"0 a\n0 b\n9 c\n9 d\n")
    ran = shell("produce", "-t", "t", "-l", source, "-F", r"%p %v\n", *args)
    assert ran.err.splitlines()[-1] == f"strandline: line 3: {what}: 'c'"
    shell.cluster.fail_after = 0
    ran = shell("produce", "-t", "t", "-l", source, *args)
    assert ran.err.splitlines()[-1] == f"strandline: {what}", "which is not about the line"


def test_no_more_is_under_way_than_the_producer_has_room_for(
    shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(shell.session.producer(""))
    monkeypatch.setattr(kind, "settings", dataclasses.replace(kind.settings, buffer_memory=8_000))
    shell.cluster.late = True
    for args in ((), ("-H", "name=" + "x" * 300)):
        shell.cluster.sent_at_once.clear()
        ran = shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", (b"x" * 19 + b"\n") * 1_000), *args)
        assert (ran.code, sum(shell.cluster.sent_at_once)) in ((0, 1_000), (0, 999)), "the last one may go alone"
        assert max(shell.cluster.sent_at_once) <= 4_000 // (19 + 304 * bool(args))


def test_quiet_leaves_the_count_out(shell: Any, tmp_path: Path) -> None:
    assert shell("produce", "-t", "t", "-q", "-l", write_lines(tmp_path / "in", b"a\n")).err == ""


def test_a_topic_that_is_created_is_told_with_what_was_meant_perhaps(shell: Any, tmp_path: Path) -> None:
    for name in ("clicks", "orders"):
        shell.cluster.add_topic(name, {0: PartitionView(1, 0, (1,), (1,))})
    source = write_lines(tmp_path / "in", b"a\nb\n")
    ran = shell("produce", "-t", "clikcs", "-l", source)
    told, counted = ran.err.splitlines()
    assert (ran.code, counted) == (0, "2 records produced to clikcs in 1 partition (2 bytes)")
    assert told == "strandline: created topic clikcs with 3 partitions of 2 replicas (did you mean clicks?)"
    assert shell("produce", "-t", "clikcs", "-l", source).err == counted + "\n"
    ran = shell("produce", "-t", "Orders", "-l", source, "-p", "9")
    assert ran.err.splitlines()[0].endswith("(did you mean orders?)")


NO_CREATE = ("--no-create",), ("-X", "allow.auto.create.topics=false"), ("-X", "allow_auto_create_topics=false")


@pytest.mark.parametrize("option", NO_CREATE)
def test_a_topic_that_is_not_there_is_not_created_where_that_is_forbidden(
    shell: Any, tmp_path: Path, option: tuple[str, ...]
) -> None:
    source = write_lines(tmp_path / "in", b"a\n")
    for args in ((), ("-p", "0")):
        ran = shell("produce", "-t", "tt", *option, "-l", source, *args)
        assert (ran.code, shell.cluster.produced, "tt" in shell.cluster.topics) == (1, [], False)
        assert ran.err.startswith(
            "strandline: topic 'tt' does not exist (did you mean t?); without --no-create (or -X "
        )
        assert ran.err.count("\n") == 1
    assert shell("produce", "-t", "t", *option, "-l", source).code == 0
    ran = shell("produce", "-t", "t", "--no-create", "-X", "allow.auto.create.topics=true", "-l", source)
    assert (ran.code, "exclude each other" in ran.err) == (2, True)


def test_no_create_holds_for_as_long_as_it_sends(shell: Any, tmp_path: Path) -> None:
    """A topic that is deleted meanwhile is not to come back."""
    source = write_lines(tmp_path / "in", b"a\n")
    assert shell("produce", "-t", "t", "-l", source).code == 0
    assert "allow_auto_create_topics" not in shell.cluster.settings
    assert shell("produce", "-t", "t", "--no-create", "-l", source).code == 0
    assert shell.cluster.settings["allow_auto_create_topics"] is False


def test_brokers_that_create_no_topics_are_said_to_do_so(shell: Any, tmp_path: Path) -> None:
    shell.cluster.creates_topics = False
    ran = shell("produce", "-t", "other", "-l", write_lines(tmp_path / "in", b"a\n"))
    assert (ran.code, ran.err.count("\n"), "auto.create.topics.enable" in ran.err) == (1, 1, True)


@pytest.mark.parametrize(
    ("line", "args", "sent"),
    [
        (b"k\tv", ("-K", r"\t"), (b"k", b"v", ())),
        (b"k\x01v", ("-K", r"\x01"), (b"k", b"v", ())),
        (b"k\\v", ("-K", "\\\\"), (b"k", b"v", ())),
        (b"k\tv", ("--property", "parse.key=true"), (b"k", b"v", ())),
        (b"k:v", ("--property", "parse.key=true", "--property", "key.separator=:"), (b"k", b"v", ())),
        (b"k=v", ("--property", "parse.key=false"), (None, b"k=v", ())),
        (b"h:1,g:NIL\tk\tNIL", ("--property", "parse.headers=true", "--property", "parse.key=true", "--null", "NIL"),
         (b"k", None, (("h", b"1"), ("g", None)))),
        (b"h=1;g=2|v", ("--property", "parse.headers=true", "--property", "headers.delimiter=|", "--property",
         "headers.separator=;", "--property", "headers.key.separator=="), (None, b"v", (("h", b"1"), ("g", b"2")))),
        (b"-", ("--property", "null.marker=-", "-H", "h=1"), (None, None, (("h", b"1"),))),
        (b"v k", ("-F", r"%v %k\n"), (b"k", b"v", ())),
        (b'{"key":"k","value":"v","headers":{"h":"1"}}', ("-J",), (b"k", b"v", (("h", b"1"),))),
    ],
)  # fmt: skip
def test_a_line_is_read_as_the_options_say(
    shell: Any, tmp_path: Path, line: bytes, args: tuple[str, ...], sent: tuple[Any, ...]
) -> None:
    ran = shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", line + b"\n"), *args)
    assert (ran.code, [(*record[1:3], record[4]) for record in shell.cluster.produced]) == (0, [sent])


def test_records_may_end_otherwise_than_with_the_line(shell: Any, tmp_path: Path) -> None:
    shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"a\n\0b\0\0c"), "-D", r"\0")
    assert [record[2] for record in shell.cluster.produced] == [b"a\n", b"b", b"", b"c"]


def test_what_the_input_says_of_time_and_partition_counts(shell: Any, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in", b"1 5 a\n1 6 b\n0 7 c\n")
    assert shell("produce", "-t", "t", "-l", source, "-F", r"%p %T %v\n").code == 0
    assert [record[2:4] for record in shell.cluster.produced] == [(b"a", 1), (b"b", 1), (b"c", 0)]
    assert shell.cluster.stamps == [5, 6, 7]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--property", "parse.keys=true"), "did you mean parse.key?"),
        (("--property", "key.separator=:"), "parse.key=true"),
        (("--property", "parse.key=yes"), "neither true nor false"),
        (("--property", "parse.key=true", "-K", ":"), "twice"),
        (("-K", r"\q"), "no escape \\q"),
        (("-F", "file.txt"), "-l"),
        (("-F", "%k%v\\n"), "where %k ends"),
        (("-F", "%v"), "where %v ends"),
        (("-p", "0", "-F", "%p %v\\n"), "both say where"),
        (("-J", "-K", ":"), "--json-input"),
        (("-Z", "--null", "N"), "--null"),
        (("-D", ""), "empty"),
    ],
)
def test_options_that_contradict_each_other_are_refused(shell: Any, args: tuple[str, ...], told: str) -> None:
    ran = shell("produce", "-t", "t", "-l", "/dev/null", *args)
    assert (ran.code, ran.err.count("\n"), told in ran.err) == (2, 1, True), ran.err


def test_rate_spreads_the_records_over_time(shell: Any, tmp_path: Path) -> None:
    shell("produce", "-t", "t", "-l", write_lines(tmp_path / "in", b"a\n" * 11), "--rate", "2")
    assert 5.0 <= shell.session.clock < 6.0
    assert shell.session.admins == 1, "whether the topic is there is asked before the first record alone"


def let_through_s(session: Any, batches: Iterator[Records]) -> list[float]:
    """When each record is, at a hundred a second."""
    session.step_s = 0
    return [session.clock for _ in paced(batches, 100, session, lambda: None)]


def test_rate_makes_nothing_up_for_a_pause_of_the_input(shell: Any) -> None:
    def batches() -> Iterator[Records]:
        for pause_s in (60, 60):
            shell.session.clock += pause_s
            yield Records(range(5), [(None, b"v")] * 5, 5)

    expected = [60, 60.01, 60.02, 60.03, 60.04, 120.04, 120.04, 120.04, 120.05, 120.06]
    assert let_through_s(shell.session, batches()) == pytest.approx(expected)


def test_rate_holds_where_each_sleep_takes_too_long(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = shell.session.sleep
    monkeypatch.setattr(shell.session, "sleep", lambda seconds: sleep(seconds + 0.005))
    found = let_through_s(shell.session, iter([Records(range(5), [(None, b"v")] * 5, 5)]))
    assert found == pytest.approx([0, 0.015, 0.025, 0.035, 0.045])
