"""What every write of a partition's state to ZooKeeper has to be (safety.md §1: 10–12, 26, 34).

Told of each transaction once it is applied, and of who sent it; keeps the world's view of all states.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.protocol.znodes import BrokerIncarnationZnode, ControllerEpochZnode, PartitionStateZnode, TopicZnode
from strandline.runtime.coordination import Check, Create, Delete, Operation, SetData
from strandline.testkit.simulation.god_view import GodView
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.world import World

STATE_PATH = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")


class StateRules:
    def __init__(self, world: World, god_view: GodView, losses: Losses) -> None:
        self._world = world
        self._god_view = god_view
        self._losses = losses

    def applied(self, operations: Sequence[Operation], session_id: int) -> None:
        for operation in operations:
            found = STATE_PATH.fullmatch(operation.path)
            if found is None or isinstance(operation, Check):
                continue
            tp = TopicPartition(found[1], int(found[2]))
            before = self._world.states.pop(tp, None)
            is_controllers = _checks(operations, ControllerEpochZnode.PATH)
            if isinstance(operation, Delete) or before is None:
                self._expect(is_controllers, tp, 26, "is made or deleted without a check of the controller's epoch")
            if isinstance(operation, Delete):
                continue
            after = self._world.states[tp] = PartitionStateZnode.decode(operation.path, operation.data or b"")
            self._check_members(tp, after)
            if isinstance(operation, SetData):
                self._expect(operation.version >= 0, tp, 12, f"is written whatever its version is: {after}")
            if before is not None and isinstance(operation, SetData):
                self._check_change(tp, before, after, operations, session_id, is_controllers=is_controllers)

    def _check_members(self, tp: TopicPartition, after: PartitionStateZnode) -> None:
        topic = self._world.cluster.zookeeper.tree.get(TopicZnode.path(tp.topic))
        replicas = TopicZnode.decode(tp.topic, topic.data).partitions.get(tp.partition, [])
        self._expect(bool(after.isr), tp, 11, "has nobody in sync")
        self._expect(set(after.isr) <= set(replicas), tp, 11, f"has {after.isr} in sync, its replicas are {replicas}")
        self._expect(after.leader in (NO_BROKER, *after.isr), tp, 11, f"is led by {after.leader}, out of {after.isr}")

    def _check_change(
        self,
        tp: TopicPartition,
        before: PartitionStateZnode,
        after: PartitionStateZnode,
        operations: Sequence[Operation],
        session_id: int,
        *,
        is_controllers: bool,
    ) -> None:
        change = f"{_short(before)} becomes {_short(after)}"
        self._expect(after.leader_epoch >= before.leader_epoch, tp, 34, f"goes back in its epoch: {change}")
        self._expect(after.controller_epoch >= before.controller_epoch, tp, 26, f"obeys an old controller: {change}")
        if after.leader != before.leader:
            self._expect(after.leader_epoch > before.leader_epoch, tp, 34, f"changes within an epoch: {change}")
        if after.leader not in (NO_BROKER, before.leader, *before.isr, *before.elr):
            self._world.sometimes["unclean elections"] += 1
            is_last_resort = set(before.isr) <= {*before.lossy} and not before.elr
            self._expect(is_last_resort, tp, 34, f"is led by somebody who was neither in sync nor eligible: {change}")
        if after.leader not in (NO_BROKER, *(set(before.isr) - set(before.lossy)), *before.elr):
            self._losses.note_last_resort(tp, after.leader)
        if after.leader in before.elr and after.leader not in before.isr:
            self._world.sometimes["eligible replicas elected"] += 1
        joined = [member for member in after.isr if member not in before.isr]
        if is_controllers:
            self._note_departed(tp, before, after)
            is_election = after.leader_epoch > before.leader_epoch
            self._expect(is_election or not joined, tp, 35, f"is given members by the controller: {change}")
            return
        writer = self._writer(session_id)
        if before.without_claim(writer) == after:
            self._note_departed(tp, before, after)
            self._world.sometimes["who may have lost data gives its claims up"] += 1
            return
        is_leaders = (after.leader, after.leader_epoch, writer) == (before.leader, before.leader_epoch, before.leader)
        self._expect(is_leaders, tp, 26, f"is written by {writer} without a check of the controller's epoch: {change}")
        for member in joined:
            self._check_join(tp, member, after, operations, change)

    def _check_join(
        self, tp: TopicPartition, member: int, after: PartitionStateZnode, operations: Sequence[Operation], change: str
    ) -> None:
        path = BrokerIncarnationZnode.path(member)
        self._expect(_checks(operations, path), tp, 10, f"grows without a check of who joins: {change}")
        lacking = self._god_view.lacks(member, tp)
        self._expect(lacking is None, tp, 10, f"grows by {member}, which lacks {lacking}: {change}")
        cluster = self._world.cluster
        if not cluster.leads(after.leader, tp) or not cluster.hosts(member, tp):
            return
        end_offset, leader = cluster.partition(member, tp).log.log_end_offset, cluster.partition(after.leader, tp)
        begin = leader.leadership.epoch_start_offset if leader.leadership is not None else 0
        if leader.leader_epoch == after.leader_epoch:
            text = f"grows by {member}, which ends at {end_offset}, before the epoch begins at {begin}: {change}"
            self._expect(end_offset >= begin, tp, 10, text)

    def _note_departed(self, tp: TopicPartition, before: PartitionStateZnode, after: PartitionStateZnode) -> None:
        topic = self._world.topic_znode(tp.topic)
        removing = topic.removing_replicas.get(tp.partition, ()) if topic is not None else ()
        left = {*before.isr, *before.elr} - {*after.isr, *after.elr}
        if departed := [broker for broker in removing if broker in left]:
            self._losses.note_departed(tp, departed)

    def _writer(self, session_id: int) -> int:
        nodes = self._world.cluster.nodes.values()
        sessions = {n.coordination.session_id: n.broker_id for n in nodes if n.coordination is not None}
        return sessions.get(session_id, NO_BROKER)

    def _expect(self, holds: bool, tp: TopicPartition, invariant: int, text: str) -> None:
        if not holds:
            self._world.violated(f"invariant {invariant}: {tp}: its state {text}")


def _checks(operations: Sequence[Operation], path: str) -> bool:
    """On condition of a version: by a check, or by the write itself."""
    return any(each.path == path and not isinstance(each, Create) and each.version >= 0 for each in operations)


def _short(state: PartitionStateZnode) -> str:
    beside = "".join(f", {name} {ids}" for name, ids in (("eligible", state.elr), ("lossy", state.lossy)) if ids)
    return f"({state.leader} leads epoch {state.leader_epoch}, in sync {state.isr}{beside})"
