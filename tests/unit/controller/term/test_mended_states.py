"""States that could not be read and can be again: their leaders hear of a new epoch, whatever comes in between."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol import znodes
from strandline.protocol.types import TopicPartition
from strandline.runtime.coordination import ConnectionLost

T, U = TopicPartition("t", 0), TopicPartition("u", 0)


async def broken(cluster: Any) -> tuple[Any, dict[TopicPartition, bytes]]:
    """Nobody understands the states of two partitions that broker 2 leads; broker 3 starts with a loss then."""
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    sound = {}
    for tp, replicas in ((T, [2, 3]), (U, [2])):
        await cluster.create(controller, tp.topic, [replicas])
        path = znodes.PartitionStateZnode.path(*tp)
        sound[tp] = (await cluster.admin.get(path)).data
        await cluster.admin.set(path, b"nonsense", 0)
    cluster.kill(1)
    controller = await cluster.controller_on(2)
    await cluster.come_to_rest()
    assert len(controller.term.store.unreadable_states) == 2
    return controller, sound


async def mend(cluster: Any, sound: dict[TopicPartition, bytes]) -> None:
    for tp, data in sound.items():
        await cluster.admin.set(znodes.PartitionStateZnode.path(*tp), data, 1)


async def test_a_state_that_goes_while_it_is_mended_keeps_no_other_leader_frozen(
    autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, sound = await broken(cluster)
    cluster.kill(3)
    await cluster.brokers[3].start(lossy=True)
    await cluster.come_to_rest()
    original = controller.term.store.write_states
    first = iter([True])

    async def write_states(changes: Any) -> Any:
        if next(first, False):  # the operator thinks better of it
            await cluster.admin.delete(znodes.PartitionStateZnode.path(*T))
        return await original(changes)

    monkeypatch.setattr(controller.term.store, "write_states", write_states)
    await mend(cluster, sound)
    await trio.sleep(100)
    assert (await cluster.state("u")).leader_epoch == 1, "its leader proposes nothing before it hears of another epoch"
    assert controller.term.failed_events == 0


async def test_an_answer_that_is_lost_while_states_are_mended_keeps_no_leader_frozen(
    autojump_clock: MockClock, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, sound = await broken(cluster)
    original = controller.term.store.write_states
    first = iter([True])

    async def write_states(changes: Any) -> Any:
        if next(first, False):
            raise ConnectionLost("lost")
        return await original(changes)

    monkeypatch.setattr(controller.term.store, "write_states", write_states)
    await mend(cluster, sound)
    await trio.sleep(100)
    assert [(await cluster.state(tp.topic)).leader_epoch for tp in (T, U)] == [1, 1]


async def test_a_mended_state_that_a_notification_had_read_keeps_no_leader_frozen(
    autojump_clock: MockClock, cluster: Any
) -> None:
    await cluster.start(1, 2, 3)
    controller = await cluster.controller_on(1)
    await cluster.create(controller, "t", [[2, 3]])
    path = znodes.PartitionStateZnode.path(*T)
    sound = (await cluster.admin.get(path)).data
    note = znodes.IsrChangeNotificationZnode([T])
    await cluster.admin.set(path, b"nonsense", 0)
    await cluster.admin.create(note.SEQUENCE_PATH, note.encode(), sequence=True)
    await cluster.come_to_rest()
    assert controller.term.store.unreadable_states
    await cluster.admin.set(path, sound, 1)
    await cluster.admin.create(note.SEQUENCE_PATH, note.encode(), sequence=True)
    await trio.sleep(100)
    assert (await cluster.state("t")).leader_epoch == 1
