"""ZooKeeper paused, and killed, below real brokers: `status -b`, `doctor --cluster` and `load` say so."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from integration.test_embedded_cluster import TOPIC, Command, strandline

__all__ = ["strandline"]


def checks(command: Command, *where: str) -> dict[str, dict[str, Any]]:
    return {each["check"]: each for each in json.loads(command("doctor", "--cluster", *where).stdout)["checks"]}


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL], ids=["paused", "killed"])
def test_commands_name_zookeeper_that_is_paused_or_killed(strandline: Command, blow: signal.Signals) -> None:
    assert strandline("up", "--brokers", "2").returncode == 0
    where = ("-b", strandline.report()["bootstrap_servers"])
    assert strandline("topics", "create", TOPIC, *where, "--partitions", "2").returncode == 0
    where = (*where, "--output", "json")
    assert strandline("status", *where).returncode == 0
    assert strandline.members()["zookeeper"].process.send(blow)
    try:
        # The brokers notice once it was silent for longer than they bear; a command takes seconds then.
        looks = (json.loads(strandline("status", *where).stdout) for _ in range(60))
        assert any(report["controller_id"] == -1 and not report["healthy"] for report in looks)
        found = checks(strandline, *where)
        assert found["ZooKeeper"]["level"] == "FAIL" and found["ZooKeeper"]["text"].startswith("brokers 1, 2: ")
        assert found["controller"]["text"] == "see ZooKeeper" and found["told by brokers"]["ok"]
        ran = strandline("load", "--interval", "100ms", *where)
        assert json.loads(ran.stdout)["untold"] == [] and len(json.loads(ran.stdout)["brokers"]) == 2
        assert "is ZooKeeper reachable for the brokers?" in ran.stderr
        told = json.loads(strandline("status", *where).stdout)
        assert sorted(each["broker"] for each in told["problems"] if each["kind"] == "zookeeper") == [1, 2]
        assert (told["healthy"], told["problems_untold"]) == (False, [])
    finally:
        strandline.members()["zookeeper"].process.send(signal.SIGCONT)
