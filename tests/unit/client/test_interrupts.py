"""Ctrl-C at any moment: a producer is usable afterwards, or closed, and nothing hangs.

An interrupt is raised at every instruction of a call in turn, which is more than the interpreter does: it looks for
signals at some of them only. Left out is trio, whose way in is made for signals.
"""

from __future__ import annotations

import dis
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import CodeType, FrameType
from typing import Any

import pytest

from strandline import Admin, Consumer, Producer
from strandline.client.errors import ClientClosed, FlushTimedOut, SendsFailed
from strandline.client.groups.group import DueCall
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import FakeCluster
from unit.client.test_sync import cluster

__all__ = ["cluster"]

PATIENCE_S = 60
SOON_S = 20
"""Well below what a client waits before it says that its loop is stuck."""


class InterruptAt:
    """Raises KeyboardInterrupt at the n-th instruction within the block, in this thread."""

    def __init__(self, position: int) -> None:
        self.left = position
        self.lock_makers: set[str] = set()

    def __enter__(self) -> InterruptAt:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    @property
    def was_raised(self) -> bool:
        return self.left <= 0

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        module = frame.f_globals.get("__name__", "")
        if frame.f_globals is globals() or module.partition(".")[0] in ("trio", "attr") or self.was_raised:
            return None
        if module == "threading":
            self.lock_makers.add(frame.f_code.co_qualname)
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.was_raised:
                raise KeyboardInterrupt
        return self._trace


CALLS: dict[str, Callable[[Producer], object]] = {
    "send": lambda producer: producer.send("t", b"x", key=b"k"),
    "send with headers": lambda producer: producer.send("t", b"x", headers=[("h", b"1")], timestamp_ms=5),
    "send_many": lambda producer: producer.send_many("t", [(b"k", b"x"), (None, b"y")]),
    "flush": lambda producer: producer.flush(SOON_S),
    "partitions_for": lambda producer: producer.partitions_for("t"),
    "result": lambda producer: producer.send("t", b"x").result(SOON_S),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_any_instruction_leaves_the_producer_usable(cluster: FakeCluster, name: str) -> None:
    cluster.add_topic("t")
    call = CALLS[name]
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        producer.send("t", b"first").result(SOON_S)
        position, is_over = 0, False
        while not is_over:
            position += 1
            with InterruptAt(position) as interrupt:
                try:
                    call(producer)
                    is_over = True
                except KeyboardInterrupt:
                    pass
            is_over = is_over and not interrupt.was_raised
            assert not interrupt.lock_makers, "what is made of Python code can be left locked"
            if name != "result":  # it waits as this does
                assert producer.send("t", b"next").result(SOON_S).topic == "t", position
        producer.flush(SOON_S)
        assert position > 50
    found = [record.value for log in cluster.logs.values() for record in log.records()]
    assert found.count(b"next") == (position if name != "result" else 0)


class InterruptOfClose(InterruptAt):
    """Only where the interpreter looks for signals: at the beginning of a function, behind a call, and at the end of a
    loop's turn. Elsewhere there is no way to give back a lock: between taking it and entering its block, say."""

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode" and frame.f_lasti not in _looks_for_signals(frame.f_code):
            return self._trace
        return super()._trace(frame, event, argument)


@cache
def _looks_for_signals(code: CodeType) -> set[int]:
    offsets: set[int] = set()
    before = ""
    for each in dis.get_instructions(code):
        if each.opname in ("RESUME", "JUMP_BACKWARD") or before in ("CALL", "CALL_FUNCTION_EX"):
            offsets.add(each.offset)
        before = each.opname
    return offsets


def test_an_interrupt_of_a_close_wherever_it_may_come_leaves_the_producer_to_be_closed_again(
    cluster: FakeCluster,
) -> None:
    cluster.add_topic("t")
    with Admin(cluster.bootstrap):  # the loop goes on for it
        position, was_raised = 0, True
        while was_raised:
            position += 1
            producer = Producer(cluster.bootstrap)
            with InterruptOfClose(position) as interrupt:
                try:
                    producer.close(SOON_S)
                except KeyboardInterrupt:
                    pass
            was_raised = interrupt.was_raised
            assert not interrupt.lock_makers, "what is made of Python code can be left locked"
            producer.close(SOON_S)
            with pytest.raises(ClientClosed):
                producer.send("t", b"x")
        assert position > 20


@pytest.mark.parametrize("share", range(4))
def test_what_an_interrupted_close_leaves_is_settled_by_the_next_one(cluster: FakeCluster, share: int) -> None:
    cluster.add_topic("t")
    with Admin(cluster.bootstrap):
        position, was_raised, delivered = share, True, 0
        while was_raised:
            position += 4
            producer = Producer(cluster.bootstrap)
            future = producer.send("t", b"x")
            with InterruptOfClose(position) as interrupt:
                try:
                    producer.close(SOON_S)
                except KeyboardInterrupt:
                    pass
            was_raised = interrupt.was_raised
            with suppress(SendsFailed, FlushTimedOut):
                producer.close(SOON_S)
            assert future.done()
            delivered += future.exception() is None
        assert delivered


POLLS: dict[str, Callable[[Consumer], Any]] = {
    "poll": lambda client: client.poll(10_000, max_records=2),
    "poll_columns": lambda client: client.poll_columns(10_000),
    "fetch_batches": lambda client: client.fetch_batches(10_000),
}


NO_SIGNALS_AT = (dis.opmap["RETURN_VALUE"], dis.opmap["NOP"])
"""A function has its result already; the body of a `try` is left, before its `finally` begins."""


class InterruptOfPoll(InterruptAt):
    """Not where the interpreter looks for no signal."""

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode" and frame.f_code.co_code[frame.f_lasti] in NO_SIGNALS_AT:
            return self._trace
        return super()._trace(frame, event, argument)


@pytest.mark.parametrize(("name", "deserializer"), [*((name, None) for name in POLLS), ("poll", int)])
def test_an_interrupt_at_any_instruction_of_a_poll_loses_no_record(
    cluster: FakeCluster, name: str, deserializer: Callable[[bytes], int] | None
) -> None:
    cluster.add_topic("t")
    partition = TopicPartition("t", 0)
    cluster.fill(partition, [b"%d" % offset for offset in range(10)])
    call = POLLS[name]
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest", value_deserializer=deserializer) as client:
        client.assign([partition])
        call(client)
        position, was_raised = 0, True
        while was_raised:
            position += 1
            client.seek(partition, 0)
            given = None
            with InterruptOfPoll(position) as interrupt:
                try:
                    given = call(client)
                except KeyboardInterrupt:
                    pass
            was_raised = interrupt.was_raised
            assert (client.position(partition) > 0) is (given is not None), position
        assert position > 50


def fail() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("callback", [lambda: None, fail])
def test_an_interrupt_at_any_instruction_around_a_callback_leaves_none_that_counts_as_running(
    callback: Callable[[], None],
) -> None:
    with Consumer("127.0.0.1:1", group_id="g", enable_auto_commit=False) as client:
        group = client._client._group
        assert group is not None
        position, was_raised = 0, True
        while was_raised:
            position += 1
            group._told.append(DueCall(group, callback))
            with InterruptOfPoll(position) as interrupt:
                try:
                    client.poll(0)
                except (KeyboardInterrupt, ZeroDivisionError):
                    pass
            was_raised = interrupt.was_raised
            assert client.subscription == [], "the loop has been at everything before"
            group._told.clear()
            assert client.poll(0) == {}, position
        assert position > 100


def test_a_record_whose_announcement_was_interrupted_goes_with_the_next_one(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        producer.send("t", b"first").result(SOON_S)
        post = producer._portal.post

        def interrupted(*_: object) -> None:
            producer._portal.post = post
            raise KeyboardInterrupt

        producer._portal.post = interrupted
        with pytest.raises(KeyboardInterrupt):
            producer.send("t", b"interrupted")
        producer.flush(SOON_S)
    assert [record.value for record in cluster.logs[TopicPartition("t", 0)].records()] == [b"first", b"interrupted"]


def test_a_record_that_relied_on_an_announcement_which_was_interrupted_goes_all_the_same(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap) as producer:
        producer.send("t", b"first").result(SOON_S)
        post, sent = producer._portal.post, []

        def interrupted(*_: Any) -> None:
            producer._portal.post = post
            other = threading.Thread(target=lambda: sent.append(producer.send("t", b"of another thread")))
            other.start()
            other.join()
            raise KeyboardInterrupt

        producer._portal.post = interrupted
        with pytest.raises(KeyboardInterrupt):
            producer.send("t", b"interrupted")
        assert sent[0].result(SOON_S).topic == "t"


def test_a_signal_handler_may_wait_for_what_it_sends_while_a_send_is_about_to_be_announced(
    cluster: FakeCluster,
) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        producer.send("t", b"first").result(SOON_S)
        post = producer._portal.post

        def handled(*arguments: Any) -> None:
            producer._portal.post = post
            producer.send("t", b"of the handler").result(SOON_S)
            post(*arguments)

        producer._portal.post = handled
        assert producer.send("t", b"interrupted").result(SOON_S).topic == "t"
    found = [record.value for record in cluster.logs[TopicPartition("t", 0)].records()]
    assert found == [b"first", b"interrupted", b"of the handler"]


SCRIPT = """
import signal, sys
from strandline import Producer

class Interrupted(Exception):
    pass

def interrupt(*_):
    raise Interrupted

with Producer(sys.argv[1]) as producer:
    producer.send("t", b"first").result()
    if sys.argv[2] == "handler":
        signal.signal(signal.SIGINT, interrupt)
    for _ in range(int(sys.argv[3])):
        try:
            print("ready", flush=True)
            while True:
                for number in range(2_000):
                    future = producer.send("t", b"x")
                future.result(20)
                producer.flush(20)
        except (Interrupted, KeyboardInterrupt):
            print("interrupted", flush=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    producer.send("t", b"last").result(20)
print("closed", flush=True)
"""


@pytest.mark.parametrize("how", ["ctrl-c", "handler"])
def test_a_process_that_is_interrupted_again_and_again_goes_on_sending(cluster: FakeCluster, how: str) -> None:
    cluster.add_topic("t")
    interrupts = 60
    arguments = [sys.executable, "-c", SCRIPT, cluster.bootstrap, how, str(interrupts)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        killer = threading.Timer(PATIENCE_S, process.kill)
        killer.start()
        assert process.stdout is not None and process.stderr is not None
        for number in range(interrupts):
            assert process.stdout.readline() == "ready\n", process.stderr.read()
            time.sleep(0.003 * (number % 5))  # at another moment of the loop each time
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n", process.stderr.read()
        assert process.stdout.read() == "closed\n", process.stderr.read()
        killer.cancel()
    assert process.returncode == 0
    assert cluster.logs[TopicPartition("t", 0)].records()[-1].value == b"last"
