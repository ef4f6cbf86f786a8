"""What a program's callbacks may do in the event loop's thread, which all clients share: send, and not wait."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

import pytest

from strandline import Producer
from strandline.client import sync_producer
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import FakeCluster
from unit.client.test_sync import cluster

__all__ = ["cluster"]

PATIENCE_S = 60


def test_a_callback_sends_without_waiting_for_room(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_producer, "MAILBOX_RECORDS", 2)
    cluster.add_topic("t")
    answers: list[Any] = []
    called = threading.Event()

    def send_more(_: Any) -> None:
        try:
            answers.extend(producer.send("t", b"%d" % number) for number in range(10))
        except Exception as error:
            answers.append(error)
        called.set()

    with Producer(cluster.bootstrap, max_block_ms=200) as producer:
        producer.send("t", b"first").add_done_callback(send_more)
        assert called.wait(PATIENCE_S)
        assert [future.result(PATIENCE_S).offset for future in answers] == [*range(1, 11)]
    values = [record.value for record in cluster.logs[TopicPartition("t", 0)].records()]
    assert values == [b"first", *(b"%d" % number for number in range(10))]


@pytest.mark.parametrize(
    "wait",
    [
        lambda producer: producer.flush(0.5),
        lambda producer: producer.close(0.5),
        lambda producer: producer.partitions_for("t"),
        lambda producer: producer.send("t", b"x").result(0.5),
        lambda producer: producer.send("t", b"x").exception(),
        lambda producer: concurrent.futures.wait([producer.send("t", b"x")], 0.5),
    ],
    ids=["flush", "close", "partitions_for", "result", "exception", "futures_wait"],
)
def test_a_callback_that_waits_is_told_so_at_once(cluster: FakeCluster, wait: Callable[[Producer], object]) -> None:
    cluster.add_topic("t")
    raised: list[BaseException] = []
    called = threading.Event()

    def call_and_wait(_: Any) -> None:
        try:
            wait(producer)
        except BaseException as error:
            raised.append(error)
        called.set()

    with Producer(cluster.bootstrap) as producer:
        producer.send("t", b"x").add_done_callback(call_and_wait)
        assert called.wait(PATIENCE_S)
        assert [type(error).__mro__[1] for error in raised] == [RuntimeError]
        assert "a callback runs in the event loop's thread" in str(raised[0])
        producer.send("t", b"the producer is as it was").result(PATIENCE_S)


def test_a_callback_may_look_whether_another_outcome_is_known(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    raised: list[BaseException] = []
    called = threading.Event()

    def look(_: Any) -> None:
        try:
            producer.send("t", b"x").result(0)
        except BaseException as error:
            raised.append(error)
        called.set()

    with Producer(cluster.bootstrap) as producer:
        producer.send("t", b"x").add_done_callback(look)
        assert called.wait(PATIENCE_S)
    assert [type(error).__name__ for error in raised] == ["NotSettledYet"]
