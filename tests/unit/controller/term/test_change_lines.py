"""What a controller writes into its logs, as a reader of them finds it."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from strandline.protocol import znodes
from strandline.protocol.history.lines import Event, Kind
from support.change_lines import read_entries


def told_by(log: Any, kind: Kind) -> list[Event]:
    return [event for line in read_entries(log.entries) for event in line.events if event.kind is kind]


@pytest.mark.parametrize("detailed_changes", [1000, 1])
async def test_the_logs_have_every_state_that_a_controller_wrote_be_it_one_or_thousands(
    detailed_changes: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, cluster: Any
) -> None:
    monkeypatch.setattr("strandline.controller.partitions.state_lines.DETAILED_CHANGES", detailed_changes)
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3], [2, 3]])
    cluster.kill(2)
    await cluster.come_to_rest()
    told = told_by(cluster.state_changes, Kind.WRITTEN)
    topic_id = znodes.encode_uuid(controller.term.context.topics["t"].topic_id)
    assert {(event.topic, event.topic_id, event.replicas, event.controller_epoch) for event in told} == {
        ("t", topic_id, (2, 3), 1)
    }
    assert [(event.partition, event.leader, event.leader_epoch, event.zk_version, event.isr) for event in told] == [
        (0, 2, 0, 0, (2, 3)),
        (1, 2, 0, 0, (2, 3)),
        (0, 3, 1, 1, (3,)),
        (1, 3, 1, 1, (3,)),
    ]
    assert all(event.why for event in told)


async def test_the_logs_have_terms_brokers_and_topics_that_come_and_go(autojump_clock: MockClock, cluster: Any) -> None:
    await cluster.start(1, 2)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[1]])
    topic_id = znodes.encode_uuid(controller.term.context.topics["t"].topic_id)
    cluster.kill(2)
    await cluster.come_to_rest()
    await cluster.admin.create("/admin/delete_topics/t")
    await cluster.come_to_rest()
    controller.term.resign("enough")
    assert [event.controller_epoch for event in told_by(cluster.logs, Kind.ELECTED)] == [1]
    assert [event.controller_epoch for event in told_by(cluster.logs, Kind.ACTING)] == [1]
    assert [(event.controller_epoch, event.why) for event in told_by(cluster.logs, Kind.RESIGNED)] == [(1, "enough")]
    (gone,) = told_by(cluster.logs, Kind.GONE)
    assert (gone.peer, gone.session_timeout_ms) == (2, 6000) and gone.broker_epoch > 0
    assert {(event.topic, event.topic_id) for event in told_by(cluster.logs, Kind.DELETED)} == {("t", topic_id)}
