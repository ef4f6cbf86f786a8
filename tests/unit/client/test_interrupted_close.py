"""Ctrl-C while a client is made or closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest
import trio

from strandline import Admin, Consumer, Producer
from strandline.client.errors import SendsFailed
from strandline.client.sync_client import SyncClient
from unit.client.fake_broker import FakeCluster, Fault
from unit.client.test_sync import cluster

__all__ = ["cluster"]


def interrupted(*_: Any, **__: Any) -> NoReturn:
    raise KeyboardInterrupt


def test_what_an_interrupted_close_left_fails_and_the_next_one_tells(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_topic("t")
    cluster.brokers[0].faults[0].append(Fault(hang=True))

    with Admin("127.0.0.1:1"):  # the loop goes on for it
        producer = Producer(cluster.bootstrap)
        future = producer.send("t", b"x")
        monkeypatch.setattr(producer, "_call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.close()
        with pytest.raises(SendsFailed, match="1 record was not delivered"):
            producer.close()
        producer.close()
        assert future.done()


@pytest.mark.parametrize("make", [Producer, Consumer, Admin])
def test_a_client_whose_making_was_interrupted_does_not_go_on_in_the_loop(
    make: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[object] = []
    serve, call = SyncClient._serve, SyncClient._call

    async def served(client: SyncClient, run: Any) -> None:
        running.append(client)
        try:
            await serve(client, run)
        finally:
            running.remove(client)

    def interrupted_behind(client: SyncClient, *args: Any, **options: Any) -> NoReturn:
        call(client, *args, **options)
        raise KeyboardInterrupt

    async def until_none_runs() -> None:
        while running:
            await trio.sleep(0.01)

    with Admin("127.0.0.1:1") as other:  # the loop goes on for it
        monkeypatch.setattr(SyncClient, "_serve", served)
        monkeypatch.setattr(SyncClient, "_call", interrupted_behind)
        with pytest.raises(KeyboardInterrupt):
            make("127.0.0.1:1")
        other._portal.call(until_none_runs, timeout_s=10)


def test_the_end_of_the_program_says_that_a_close_was_interrupted(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_topic("t")
    cluster.brokers[0].faults[0].append(Fault(hang=True))

    with Admin("127.0.0.1:1"):
        producer = Producer(cluster.bootstrap)
        producer.send("t", b"x")
        with monkeypatch.context() as patched:
            patched.setattr(producer, "_call", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.close()
        with pytest.warns(RuntimeWarning, match="the close of a Producer was interrupted: 1 record was not delivered"):
            producer._close_at_exit()
