"""`make soak-moves`: partitions are moved under load while brokers and controllers are killed, until a million records.

    python tests/soak/moves_soak.py [--records 1000000] [--seed 1] [--keep DIR] [--output json]

Five brokers; topic `moved` (6 partitions, three replicas, min.insync.replicas=2) is written with acks=all at a bounded
rate, every outcome is known, and a reader follows. Round by round every partition gets other brokers (two to four of
them, drawn by the seed). In two rounds of three somebody is killed meanwhile (SIGKILL; each second time the controller)
and comes back while the move is under way or after it; now and then a move is cancelled, replaced by another one, or
the preferred leaders are elected in the middle of it. A round ends when nothing is being moved any more.

Promises (a broken one makes the exit code 1 and is named):
* nothing acknowledged is lost, doubled or out of order; a reader is never sent back, and nothing is passed over
* each partition ends with the replicas that were asked for last, all in sync, and equal byte for byte
* nothing is left over: no folder on a broker that has no replica, nothing under way, no request in ZooKeeper
* brokers come back when they are started, none fails by itself, and a start has nothing to repair
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import trio
from kazoo.client import KazooClient
from rich.console import Console

from soak import soak_promises as promises
from soak.soak_promises import Verdict, judge
from soak.soak_run import PATIENCE_S, command_line, off_loop, show_verdicts, soak_it, stopped
from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from strandline.testkit.verification import PromiseBroken
from support.followed_load import FollowedLoad
from support.lasting import same_bytes

BROKERS, PARTITIONS = 5, 6
TOPIC = "moved"
PARTITIONS_OF_TOPIC = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
FACTORS = (2, 3, 3, 4)
PAUSE_S = 0.001
"""Between two records of a partition: some thousands per second in all, so that a million takes some minutes."""
SETTINGS = {"linger_ms": 5, "delivery_timeout_ms": 240_000, "enable_idempotence": True}
MOVED_WITHIN_S = 120
AWAY_S = (0.0, 1.0, 4.0, 9.0)
"""How long who was killed stays away: from a restart within its session to well beyond it."""

REQUESTS = ("/admin/reassign_partitions", "/admin/preferred_replica_election")

Target = dict[TopicPartition, list[int]]


@dataclass(slots=True)
class Round:
    """What was done to one move."""

    number: int
    target: Target
    killed: int | None = None
    was_controller: bool = False
    then: str = "let go on"
    took_s: float = 0.0

    def as_json(self) -> dict[str, object]:
        fields = asdict(self)
        fields["target"] = {str(tp): brokers for tp, brokers in self.target.items()}
        return fields


@dataclass(slots=True)
class Moves:
    """One run. Everything that happened is in the public members."""

    cluster: EmbeddedCluster
    records: int
    random: random.Random
    rounds: list[Round] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    target: Target = field(default_factory=dict)
    """What each partition is to have in the end."""
    acknowledged: int = 0

    async def run(self) -> None:
        """Load, moves and faults; then the proofs."""
        servers = self.cluster.bootstrap_servers
        load = FollowedLoad(servers, TOPIC, PARTITIONS, pause_s=PAUSE_S, **SETTINGS)
        async with TrioAdmin(servers) as admin:
            await admin.create_topic(
                TOPIC, num_partitions=PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"}
            )
            promise = "moves end, brokers come back, readers are led on"
            await judge(self.verdicts, promise, partial(self._live, admin, load))
            self.acknowledged = load.writer.acked
            await self._prove(admin, load)

    async def _live(self, admin: TrioAdmin, load: FollowedLoad) -> str:
        async with load.running():
            while load.writer.acked < self.records:
                await self._move_all(admin)
        if errors := load.writer.errors:
            raise PromiseBroken(f"{len(errors)} records were given up, first: {errors[0]}")
        kills = sum(each.killed is not None for each in self.rounds)
        controllers = sum(each.was_controller for each in self.rounds)
        return f"{len(self.rounds)} rounds, {kills} kills, {controllers} of them of controllers"

    # --- what it came to ----------------------------------------------------------------------------------------

    def holds(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts)

    def as_json(self) -> dict[str, Any]:
        rounds = [each.as_json() for each in self.rounds]
        return {"records": self.acknowledged, "rounds": rounds, "promises": [v.as_json() for v in self.verdicts]}

    def show(self, console: Console) -> None:
        for each in self.rounds:
            role = "controller" if each.was_controller else "broker"
            killed = "" if each.killed is None else f", killed {role} {each.killed}"
            console.print(f"round {each.number}: {each.then}{killed}, {each.took_s} s")
        console.print(f"{self.acknowledged:,} records acknowledged; load average {os.getloadavg()[0]:.1f}")
        show_verdicts(console, self.verdicts)

    # --- moves --------------------------------------------------------------------------------------------------

    async def _move_all(self, admin: TrioAdmin) -> None:
        """One round."""
        began = trio.current_time()
        this = Round(len(self.rounds) + 1, self._draw())
        self.rounds.append(this)
        await self._ask(admin, this.target)
        async with trio.open_nursery() as nursery:
            if this.number % 3:
                nursery.start_soon(self._kill, this)
            await self._disturb(admin, this)
        with trio.fail_after(MOVED_WITHIN_S):
            while await admin.list_partition_reassignments():
                await trio.sleep(0.2)
        this.took_s = round(trio.current_time() - began, 1)

    async def _ask(self, admin: TrioAdmin, target: Target) -> None:
        """Who was killed a moment ago cannot become a replica: what names it is refused, and asked for again."""
        left = dict(target)
        with trio.fail_after(MOVED_WITHIN_S):
            while left:
                for tp, error in (await admin.alter_partition_reassignments(left)).items():
                    if error is None:
                        self.target[tp] = left.pop(tp)
                    elif getattr(error, "code", None) != ErrorCode.INVALID_REPLICA_ASSIGNMENT:
                        raise error
                if left:
                    await trio.sleep(0.2)

    def _draw(self) -> Target:
        brokers = self.cluster.broker_ids
        return {tp: self.random.sample(brokers, self.random.choice(FACTORS)) for tp in PARTITIONS_OF_TOPIC}

    async def _disturb(self, admin: TrioAdmin, this: Round) -> None:
        await trio.sleep(self.random.random())
        this.then = self.random.choice(("let go on", "cancelled", "replaced", "preferred leaders"))
        if this.then == "replaced":
            await self._ask(admin, self._draw())
        elif this.then == "preferred leaders":
            await admin.elect_leaders()
        elif this.then == "cancelled":
            for tp, ongoing in (await admin.list_partition_reassignments()).items():
                [error] = (await admin.alter_partition_reassignments({tp: None})).values()
                if error is None:
                    self.target[tp] = list(ongoing.original)
                elif getattr(error, "code", None) != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:  # it came to its end
                    raise error

    async def _kill(self, this: Round) -> None:
        cluster = self.cluster
        victim = self.random.choice(cluster.broker_ids)
        found = await off_loop(cluster.metadata, [])
        this.was_controller = this.number % 2 == 0 and found is not None and found.controller_id in cluster.broker_ids
        if this.was_controller:
            victim = found.controller_id
        this.killed = victim
        await trio.sleep(self.random.random())
        await off_loop(cluster.kill_broker, victim, signal.SIGKILL)
        await trio.sleep(self.random.choice(AWAY_S))
        await off_loop(partial(cluster.start_broker, victim, timeout_s=PATIENCE_S))

    # --- proofs -------------------------------------------------------------------------------------------------

    async def _prove(self, admin: TrioAdmin, load: FollowedLoad) -> None:
        cluster = self.cluster

        async def as_asked() -> str:
            with trio.fail_after(PATIENCE_S):
                while await self._not_as_asked(admin):
                    await trio.sleep(0.2)
            return f"{PARTITIONS} partitions"

        async def kept() -> str:
            await load.check_kept()
            repeated = sum(len(outcomes.retried) for outcomes in load.writer.outcomes.values())
            return f"{load.writer.acked:,} records, {repeated:,} of them sent again"

        await judge(self.verdicts, "replicas are those that were asked for, all in sync", as_asked)
        await judge(self.verdicts, "nothing acknowledged is lost, doubled or out of order", kept)
        await judge(self.verdicts, "nothing is left in ZooKeeper", self._nothing_in_zookeeper)
        await judge(self.verdicts, "no broker fails by itself", partial(stopped, cluster))
        await judge(self.verdicts, "replicas are identical, and there is no other", partial(off_loop, self._replicas))
        folders = [cluster.log_dir(each) for each in cluster.broker_ids]
        sound = partial(promises.folders_are_sound, folders)
        await judge(self.verdicts, "a start has nothing to repair", partial(off_loop, sound))

    async def _not_as_asked(self, admin: TrioAdmin) -> list[str]:
        topic = (await admin.describe_topics([TOPIC]))[TOPIC]
        return [
            f"{TOPIC}:{number}"
            for number, view in topic.partitions.items()
            if list(view.replicas) != self.target[TopicPartition(TOPIC, number)]
            or set(view.in_sync_replicas) != set(view.replicas)
            or view.leader < 0
        ]

    async def _nothing_in_zookeeper(self) -> str:
        left = await off_loop(requests_left, self.cluster)
        if left:
            raise PromiseBroken(f"left in ZooKeeper: {left}")
        return "no request, no replica that is added or removed"

    def _replicas(self) -> str:
        cluster, shared_bytes = self.cluster, 0
        for broker_id in cluster.broker_ids:
            mine = {str(tp).replace(":", "-") for tp, brokers in self.target.items() if broker_id in brokers}
            held = {path.name for path in cluster.log_dir(broker_id).glob(f"{TOPIC}-*") if path.name.count("-") == 1}
            if held != mine:
                raise PromiseBroken(f"broker {broker_id} holds {sorted(held)}, it should hold {sorted(mine)}")
        for tp, brokers in self.target.items():
            name = f"{TOPIC}-{tp.partition}"
            _, shared = same_bytes(name, {each: promises.log_of(cluster, each, name) for each in brokers})
            shared_bytes += shared
        return f"{shared_bytes / 1e6:.1f} MB"


def requests_left(cluster: EmbeddedCluster) -> list[str]:
    """What ZooKeeper still holds of moves."""
    client = KazooClient(hosts=cluster.zookeeper.address)
    client.start(timeout=PATIENCE_S)
    try:
        left = [path for path in REQUESTS if client.exists(path)]
        topic = json.loads(client.get(f"/brokers/topics/{TOPIC}")[0])
        for key in ("adding_replicas", "removing_replicas"):
            left += [f"{key}: {topic[key]}"] if any(topic[key].values()) else []
    finally:
        client.stop()
        client.close()
    return left


def main() -> int:
    parser = command_line(__doc__)
    parser.add_argument("--records", type=int, default=10**6)
    arguments = parser.parse_args()

    def prepare(folder: Path) -> Moves:
        cluster = EmbeddedCluster(folder, brokers=BROKERS, base_port=None)
        return Moves(cluster, arguments.records, random.Random(arguments.seed))

    return soak_it(arguments, "moves", prepare)


if __name__ == "__main__":
    sys.exit(main())
