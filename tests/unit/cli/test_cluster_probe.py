"""How long `up` waits for brokers: not for ever, but as long as they get on with loading their logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from strandline.cli import cluster_probe
from strandline.cli.process import Daemon, ProcessFailed
from strandline.runtime.network import Address

TIMEOUT_S = 60


class Clock:
    """Of `time`: moves when somebody sleeps."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class SlowBroker:
    """A daemon that says at any time what it does."""

    log_path = Path("broker.log")

    def __init__(self, clock: Clock, says: str, *, until_s: float) -> None:
        self.clock = clock
        self.says = says
        self.until_s = until_s

    def require_alive(self) -> None:
        """It lives."""

    def last_log_line(self) -> str:
        return self.says.format(done=min(self.clock.now_s, self.until_s))


LOADS = "[info] still loading logs checked_bytes={done}"


def wait(monkeypatch: pytest.MonkeyPatch, says: str, *, until_s: float, ready_s: float) -> float:
    clock = Clock()
    broker = SlowBroker(clock, says, until_s=until_s)
    monkeypatch.setattr(cluster_probe, "time", clock)
    monkeypatch.setattr(cluster_probe, "ask_brokers", lambda _: {})
    monkeypatch.setattr(cluster_probe, "all_ready", lambda *_: clock.now_s >= ready_s)
    cluster_probe.wait_ready({1: (cast(Daemon, cast(Any, broker)), Address("127.0.0.1", 1))}, TIMEOUT_S)
    return clock.now_s


def test_a_broker_that_gets_on_with_loading_its_logs_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wait(monkeypatch, LOADS, until_s=1000, ready_s=1000) >= 1000


@pytest.mark.parametrize(
    ("says", "until_s"),
    [(LOADS, 0), (LOADS, 500), ("[warning] registration delayed {done}", 1000)],
    ids=["loading stands still", "loading came to a stand", "something else"],
)
def test_a_broker_that_does_not_is_not(monkeypatch: pytest.MonkeyPatch, says: str, until_s: float) -> None:
    with pytest.raises(ProcessFailed, match=r"broker 1 is not ready after 60 s: .*\(log: broker.log\)"):
        wait(monkeypatch, says, until_s=until_s, ready_s=2000)
