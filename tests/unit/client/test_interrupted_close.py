"""Ctrl-C while a producer is closed."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from strandline import Admin, Producer
from strandline.client.errors import SendsFailed
from unit.client.fake_broker import FakeCluster, Fault
from unit.client.test_sync import cluster

__all__ = ["cluster"]


def test_what_an_interrupted_close_left_fails_and_the_next_one_tells(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_topic("t")
    cluster.brokers[0].faults[0].append(Fault(hang=True))

    def interrupted(*_: Any, **__: Any) -> NoReturn:
        raise KeyboardInterrupt

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
