"""The demo's fourth step: kill a broker under load, measure, start it again, see it come back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import trio

from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.cluster_probe import ask_from_loop
from strandline.cli.demo_check import DemoFailed
from strandline.protocol.messages import MetadataResponse

_POLL_S = 0.1
_ELECTION_LIMIT_S = 60.0
_CATCH_UP_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class NewLeader:
    """`without_leader_s`: from the kill until a living broker named another leader."""

    partition: int
    before: int
    after: int
    without_leader_s: float


@dataclass(slots=True)
class Failover:
    """What was seen. `back_in_isr_s`: from the start of the broker until it was in every ISR again."""

    victim: int
    was_controller: bool
    new_controller: int = -1
    leaders: list[NewLeader] = field(default_factory=list)
    back_in_isr_s: float = 0.0

    @property
    def longest_s(self) -> float:
        return max((leader.without_leader_s for leader in self.leaders), default=0.0)


def leaders_of(answer: MetadataResponse, topic: str) -> dict[int, int]:
    """partition → leader (−1: none)."""
    return {
        partition.partition_index: partition.leader_id
        for known in answer.topics
        if known.name == topic
        for partition in known.partitions
    }


def whole_isr(answer: MetadataResponse, topic: str) -> bool:
    """Has every partition all its replicas in sync, and are there any?"""
    partitions = [partition for known in answer.topics if known.name == topic for partition in known.partitions]
    return bool(partitions) and all(
        set(partition.isr_nodes) == set(partition.replica_nodes) for partition in partitions
    )


def choose_victim(controller_id: int, leaders: Mapping[int, int]) -> int:
    """The controller if it leads something (so that both roles move), else whoever leads the most partitions."""
    led = list(leaders.values())
    if controller_id in led:
        return controller_id
    return max(sorted(set(led) - {-1}), key=led.count, default=controller_id)


async def fail_over(cluster: EmbeddedCluster, topic: str, say: Callable[[str], None]) -> Failover:
    """Kill, watch, start again, watch. `say` gets each line that a spectator should see. DemoFailed when new leaders
    or the ISR do not come in time."""
    before = await _ask(cluster, topic, set())
    leaders = leaders_of(before, topic)
    victim = choose_victim(before.controller_id, leaders)
    outcome = Failover(victim, was_controller=victim == before.controller_id)
    led = sorted(partition for partition, leader in leaders.items() if leader == victim)
    role = "the controller, and it leads" if outcome.was_controller else "it leads"
    say(f"killing broker {victim} with SIGKILL: {role} partitions {led}")

    killed_at = trio.current_time()
    cluster.kill_broker(victim)
    waiting = dict.fromkeys(led)
    while waiting:
        if trio.current_time() - killed_at > _ELECTION_LIMIT_S:
            raise DemoFailed(f"partitions {sorted(waiting)} have no leader {_ELECTION_LIMIT_S:.0f} s after the kill")
        await trio.sleep(_POLL_S)
        answer = await _ask(cluster, topic, {victim})
        outcome.new_controller = answer.controller_id
        for partition, leader in leaders_of(answer, topic).items():
            if partition in waiting and leader not in (victim, -1):
                del waiting[partition]
                passed = trio.current_time() - killed_at
                outcome.leaders.append(NewLeader(partition, victim, leader, passed))
                say(f"partition {partition}: broker {leader} leads after {passed:.1f} s without a leader")
    say(f"starting broker {victim} again; the controller is broker {outcome.new_controller}")

    started_at = trio.current_time()
    cluster.start_broker(victim, wait=False)
    while True:
        await trio.sleep(_POLL_S)
        cluster.brokers[victim].require_alive()
        answer = await _ask(cluster, topic, {victim})
        outcome.back_in_isr_s = trio.current_time() - started_at
        if whole_isr(answer, topic):
            say(f"broker {victim} is in every ISR again, {outcome.back_in_isr_s:.1f} s after its start")
            return outcome
        if outcome.back_in_isr_s > _CATCH_UP_LIMIT_S:
            raise DemoFailed(f"broker {victim} is not in every ISR {_CATCH_UP_LIMIT_S:.0f} s after its start")


async def _ask(cluster: EmbeddedCluster, topic: str, without: set[int]) -> MetadataResponse:
    """What one of the living brokers says; the first answer of the lowest id."""
    asked = {broker_id: cluster.address(broker_id) for broker_id in cluster.broker_ids if broker_id not in without}
    for _ in range(50):
        answers = await ask_from_loop(asked, [topic])
        if answers:
            return answers[min(answers)]
        await trio.sleep(_POLL_S)
    raise DemoFailed("no broker answers")
