"""What a reassignment may do next, decided from the context alone. RAR are the brokers of the target, OAR the original
ones (`PartitionReplicas`); the numbers are those of the reference text (000, "Partition Reassignment").

     1  topic znode: AR := RAR ++ OAR, with who is added and who has to go       `ReassignmentStore.write`
     2  leader epoch raised, LeaderAndIsr to all of AR                           `plan_new_epochs`
     3  RAR − OAR are new replicas: they make their logs and fetch               by LeaderAndIsr
     4  wait until RAR ⊆ ISR, which the leaders write                            `may_go`
     5  they are online: who is in sync is                                       by `may_go`
     7  leader not in RAR: one of RAR in the ISR that answers leads              `plan_target_leaders`
     8  OAR − RAR leave ISR and eligible replicas, where the leader answers      `plan_departures`
    10  topic znode: AR := RAR, and nobody is added or has to go                 `ReassignmentStore.write`
     6  the context has that, too
     8  LeaderAndIsr to those who stay, StopReplica to those who go, 9 with deletion; 11 metadata to all; and out of
        /admin/reassign_partitions

Step 6 comes once ZooKeeper has step 10, as everything here; and brokers hear of 7 to 11 when that stands. Until then
the old leader goes on with its whole ISR, and the next controller finds in ZooKeeper how far this one came: every step
may be repeated. What those who go were not told any more they find out from the metadata
(`broker/upkeep/departed_replicas`). What was cancelled and changed nothing needs 10 only, where nobody leads
(`is_over_without_leader`); whoever was added for it keeps its log until there is a leader that has all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from strandline.controller.controller_context import ControllerContext, LeaderAndIsr, PartitionChange
from strandline.controller.partition_replicas import PartitionReplicas
from strandline.controller.planning.leader_elections import offline_election
from strandline.controller.planning.planner import change_state
from strandline.protocol.types import TopicPartition


def may_go(replicas: PartitionReplicas, state: LeaderAndIsr, min_insync_replicas: int | None = None) -> bool:
    """Whether all that have to go may do so (invariant 35). Somebody of the target has everything, and either

    * the whole target is in sync; or
    * nobody new is to come, and those who go count for nothing: none is in sync or eligible; or
    * nobody new is to come, those who go were none of the original replicas (it was cancelled), and without them as
      many are in sync as a commit needs. Else it could not be undone while a replica is away that was so before.

    Who may have lost data is not in sync. min_insync_replicas: of the topic; None: not known, so the last never holds.
    """
    target = replicas.target
    in_sync = [member for member in state.isr if member not in state.lossy]
    staying = [member for member in in_sync if member in target]
    if not staying:
        return False
    if len(staying) == len(target):
        return True
    if not replicas.is_cancelled:
        return False
    credited = [member for member in (*state.isr, *state.elr) if member in replicas.removing]
    if any(member not in replicas.adding for member in credited):
        return False
    return not credited or (min_insync_replicas is not None and len(staying) >= min(min_insync_replicas, len(target)))


def is_over_without_leader(replicas: PartitionReplicas, state: LeaderAndIsr) -> bool:
    """Whether a cancelled reassignment may end while nobody leads the partition. All original replicas stay; whom it
    had added counts for nothing, and cannot meanwhile: only a leader takes anybody into the ISR. And somebody is known
    to have everything: else the longest log of all replicas is to lead, and one that was added may have that."""
    counting = (*state.isr, *state.elr, state.last_known_leader)
    return (
        not state.has_leader
        and bool(state.whole)
        and set(replicas.adding) == set(replicas.removing)
        and not any(member in replicas.adding for member in counting)
    )


def needs_minimum(replicas: PartitionReplicas, state: LeaderAndIsr) -> bool:
    """Whether `may_go` depends on the minimum in sync."""
    return not may_go(replicas, state) and may_go(replicas, state, 1)


def plan_new_epochs(context: ControllerContext, partitions: Sequence[TopicPartition]) -> list[PartitionChange]:
    """Step 2: the leader stays, and hears of all of AR by a new epoch. A partition that nobody leads gets one with its
    next leader."""
    changes = []
    for tp in partitions:
        state = context.states.get(tp)
        if state is not None and context.has_live_leader(tp):
            changes.append(change_state(context, tp, state, state.leader, state.isr, "reassignment step 2"))
    return changes


def would_lead(context: ControllerContext, partitions: Iterable[TopicPartition]) -> set[int]:
    """The live brokers of the targets that may lead these partitions in step 8; whether they answer is to be asked."""
    brokers: set[int] = set()
    for tp in partitions:
        state, replicas = context.states.get(tp), context.replicas_of(tp)
        if state is not None and replicas is not None:
            brokers.update([state.leader] if state.leader in replicas.target else set(replicas.target) & {*state.isr})
    return brokers & context.brokers.keys()


def plan_target_leaders(
    context: ControllerContext, answering: Collection[int], partitions: Sequence[TopicPartition]
) -> list[PartitionChange]:
    """Step 7: where the leader has to go, one of the target that is in sync takes over. The ISR stays.

    answering: brokers that answer now. One that has just died is registered until its session ends: a leadership that
    is well where it is does not go there."""
    changes = []
    for tp in partitions:
        state, replicas = context.states.get(tp), context.replicas_of(tp)
        if state is None or replicas is None or state.leader not in replicas.removing:
            continue
        able = [each for each in context.able_replicas(tp) if each in replicas.target and each in answering]
        leader = offline_election(able, [member for member in state.isr if member not in state.lossy], ())
        if leader is not None:
            changes.append(change_state(context, tp, state, leader, state.isr, "reassignment step 7"))
    return changes


def plan_departures(
    context: ControllerContext, answering: Collection[int], partitions: Sequence[TopicPartition]
) -> list[PartitionChange]:
    """Step 8: who has to go leaves the ISR and is not eligible any more. The epoch is raised in any case: the leader
    has to hear who its replicas are. Only where one of the target leads, and answers: else one of those who go may
    have to take over yet."""
    changes = []
    for tp in partitions:
        state, replicas = context.states.get(tp), context.replicas_of(tp)
        if state is None or replicas is None or not context.has_live_leader(tp):
            continue
        target = replicas.target
        if state.leader not in target or state.leader not in answering:
            continue
        isr = tuple(member for member in state.isr if member in target)
        change = change_state(context, tp, state, state.leader, isr, "reassignment step 8")
        eligible = tuple(member for member in change.after.elr if member in target)
        changes.append(replace(change, after=replace(change.after, elr=eligible)))
    return changes


def has_left(replicas: PartitionReplicas, state: LeaderAndIsr) -> bool:
    """Whether nobody that has to go is credited with anything."""
    return not any(member in replicas.removing for member in (*state.isr, *state.elr))
