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

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import trio
from kazoo.client import KazooClient
from rich.console import Console
from rich.markup import escape

from soak import soak_promises as promises
from soak.cluster_soak import PATIENCE_S, off_loop, running, stop_brokers
from soak.soak_promises import Verdict, judge
from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin, TrioConsumer
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from strandline.testkit.verification import PromiseBroken, VerifyingLoad, check, read_value
from support.lasting import Reading, same_bytes

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
    readings: dict[int, Reading] = field(default_factory=lambda: {number: Reading() for number in range(PARTITIONS)})
    target: Target = field(default_factory=dict)
    """What each partition is to have in the end."""
    acknowledged: int = 0

    async def run(self) -> None:
        """Load, moves and faults; then the proofs."""
        servers = self.cluster.bootstrap_servers
        load = VerifyingLoad(servers, TOPIC, PARTITIONS, pause_s=PAUSE_S, **SETTINGS)
        async with TrioAdmin(servers) as admin:
            await admin.create_topic(
                TOPIC, num_partitions=PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"}
            )
            promise = "moves end, brokers come back, readers are led on"
            await judge(self.verdicts, promise, partial(self._live, admin, load))
            self.acknowledged = load.acked
            await self._prove(admin, load)

    async def _live(self, admin: TrioAdmin, load: VerifyingLoad) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_reading)
            async with trio.open_nursery() as writing:
                await writing.start(load.run)
                while load.acked < self.records:
                    await self._move_all(admin)
                load.stop()
            nursery.cancel_scope.cancel()
        if load.errors:
            raise PromiseBroken(f"{len(load.errors)} records were given up, first: {load.errors[0]}")
        kills = sum(each.killed is not None for each in self.rounds)
        controllers = sum(each.was_controller for each in self.rounds)
        return f"{len(self.rounds)} rounds, {kills} kills, {controllers} of them of controllers"

    async def _keep_reading(self) -> None:
        """PromiseBroken where offsets are passed over or come again."""
        async with TrioConsumer(self.cluster.bootstrap_servers, auto_offset_reset="none") as consumer:
            await consumer.assign(PARTITIONS_OF_TOPIC)
            for tp in PARTITIONS_OF_TOPIC:
                consumer.seek(tp, 0)
            while True:
                for tp, records in (await consumer.poll(timeout_ms=1000)).items():
                    for record in records:
                        self.readings[tp.partition].note(record.offset, read_value(record.value or b"")[1])

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
        for error in (await admin.alter_partition_reassignments(target)).values():
            if error is not None:
                raise error
        self.target.update(target)

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

    async def _prove(self, admin: TrioAdmin, load: VerifyingLoad) -> None:
        cluster = self.cluster

        async def as_asked() -> str:
            with trio.fail_after(PATIENCE_S):
                while await self._not_as_asked(admin):
                    await trio.sleep(0.2)
            return f"{PARTITIONS} partitions"

        async def kept() -> str:
            found = await load.read_everything()
            check(load.outcomes, found)
            for partition, records in found.items():
                if len({value for _, value in records}) < len(records):
                    raise PromiseBroken(f"partition {partition} holds records twice")
            repeated = sum(len(outcomes.retried) for outcomes in load.outcomes.values())
            return f"{load.acked:,} records, {repeated:,} of them sent again"

        async def stopped() -> str:
            await off_loop(stop_brokers, cluster)
            return await off_loop(promises.no_tracebacks, [daemon.log_path for daemon in cluster.brokers.values()])

        await judge(self.verdicts, "replicas are those that were asked for, all in sync", as_asked)
        await judge(self.verdicts, "nothing acknowledged is lost, doubled or out of order", kept)
        await judge(self.verdicts, "nothing is left in ZooKeeper", self._nothing_in_zookeeper)
        await judge(self.verdicts, "no broker fails by itself", stopped)
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


async def soak_it(moves: Moves) -> None:
    async with running(moves.cluster):
        await moves.run()


def show(console: Console, moves: Moves) -> None:
    for each in moves.rounds:
        role = "controller" if each.was_controller else "broker"
        killed = "" if each.killed is None else f", killed {role} {each.killed}"
        console.print(f"round {each.number}: {each.then}{killed}, {each.took_s} s")
    console.print(f"{moves.acknowledged:,} records acknowledged; load average {os.getloadavg()[0]:.1f}")
    for verdict in moves.verdicts:
        word = "[green]holds [/]" if verdict.holds else "[red]BROKEN[/]"
        console.print(f"{word} {verdict.promise}: {escape(verdict.text)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10**6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="DIR", help="put the data there and leave it")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    folder = Path(arguments.keep or tempfile.mkdtemp(prefix="strandline-moves-"))
    cluster = EmbeddedCluster(folder, brokers=BROKERS, base_port=None)
    moves = Moves(cluster, arguments.records, random.Random(arguments.seed))
    failed = True
    try:
        trio.run(soak_it, moves)
        failed = not all(verdict.holds for verdict in moves.verdicts)
        if arguments.output == "json":
            rounds = [each.as_json() for each in moves.rounds]
            told = {"records": moves.acknowledged, "rounds": rounds, "promises": [v.as_json() for v in moves.verdicts]}
            json.dump(told, sys.stdout, indent=1)
            sys.stdout.write("\n")
        else:
            show(Console() if sys.stdout.isatty() else Console(width=160), moves)
        if failed:
            sys.stderr.write(f"a promise is broken; the data and logs stay in {folder}\n")
    finally:
        if not failed and not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
