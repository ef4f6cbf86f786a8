"""Whether a broker whose disk failed leads anything is what those say who answer; nothing said is not nothing led."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from soak import history_disks
from soak.history_disks import FailingDisk


def answer(leader: int) -> SimpleNamespace:
    partition = SimpleNamespace(partition_index=0, leader_id=leader)
    return SimpleNamespace(topics=[SimpleNamespace(name="all", partitions=[partition])])


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({1: answer(2), 2: answer(2)}, ""),
        ({2: answer(2)}, ""),
        ({1: answer(2), 2: answer(1)}, "broker 1 still leads what lies on a disk that failed: ['all-0']"),
        ({1: answer(1), 2: answer(2)}, "broker 1 still leads what lies on a disk that failed: ['all-0']"),
        ({1: answer(2)}, "no broker but 1, whose disk failed, answers"),
        ({}, "no broker but 1, whose disk failed, answers"),
    ],
)
async def test_it_leads_nothing_once_all_say_so_who_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[int, SimpleNamespace], found: str
) -> None:
    monkeypatch.setattr(history_disks, "LED_ELSEWHERE_WITHIN_S", 0.3)
    monkeypatch.setattr(history_disks, "ask_brokers", lambda addresses, topics: answers)
    (tmp_path / "all-0").mkdir()
    log = tmp_path / "broker.log"
    log.touch()
    daemon = SimpleNamespace(log_path=log, is_alive=True)
    cluster = SimpleNamespace(brokers={1: daemon, 2: daemon}, address=str, seen=Path)
    findings: list[str] = []
    disk = FailingDisk(cluster, 1, lambda: True, findings.append)
    await disk._leads_nothing([str(tmp_path)])
    assert len(findings) == bool(found)
    assert found in "".join(findings)
