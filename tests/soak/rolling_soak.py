"""`make soak-rolling`: three brokers are restarted one after the other under load, until a million records.

    python tests/soak/rolling_soak.py [--records 1000000] [--seed 1] [--keep DIR] [--output json]

Topic `rolled` (6 partitions, three replicas, min.insync.replicas=2) is written with acks=all at a bounded rate, every
outcome is known, and a reader follows. Round by round each broker is stopped (SIGTERM), started, and waited for until
all replicas are in sync, as README's "Operating it" says; the seed draws the order. After the last one of a round the
preferred leaders are elected, so that each broker leads something when it is stopped.

Promises (a broken one makes the exit code 1 and is named):
* clients see no error: no record is given up, and the reader reads on
* brokers end with exit code 0, come back when they are started, and none fails by itself
* nothing acknowledged is lost, doubled or out of order; a reader is never sent back, and nothing is passed over
* replicas are equal byte for byte in the end, and a start has nothing to repair

Told and not judged: the longest time without an acknowledgement of any partition, by what happened meanwhile, and the
longest without a record for the reader. On a machine that is busy with other things that is mostly what those leave.
"""

from __future__ import annotations

import os
import random
import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import trio
from rich.console import Console

from soak import soak_promises as promises
from soak.soak_promises import Verdict, judge
from soak.soak_run import PATIENCE_S, command_line, off_loop, show_verdicts, soak_it, stopped
from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin
from strandline.protocol.messages import MetadataPartition
from strandline.testkit.verification import PromiseBroken
from support.followed_load import FollowedLoad
from support.lasting import same_bytes

BROKERS, PARTITIONS = 3, 6
TOPIC = "rolled"
PAUSE_S = 0.001
"""Between two records of a partition: some thousands per second in all, so that a million takes some minutes."""
SETTINGS = {"linger_ms": 5, "delivery_timeout_ms": 120_000, "enable_idempotence": True}
LOOK_INTERVAL_S = 0.1
STAGES = ("stop", "start", "election")


@dataclass(frozen=True, slots=True)
class Step:
    """Something that was done, until acknowledgements flowed from all partitions. `took_s`: until it was done; of a
    start, until all replicas were in sync."""

    round_number: int
    stage: str
    broker_id: int | None
    took_s: float
    longest_gap_s: float
    gap_partition: int
    longest_read_gap_s: float
    """Of the reader, as far as it had ended by then."""


@dataclass(slots=True)
class Rolling:
    """One run. Everything that happened is in the public members."""

    cluster: EmbeddedCluster
    records: int
    random: random.Random
    steps: list[Step] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    acknowledged: int = 0
    rounds: int = 0

    async def run(self) -> None:
        """Load and restarts; then the proofs."""
        servers = self.cluster.bootstrap_servers
        async with TrioAdmin(servers) as admin:
            await admin.create_topic(
                TOPIC, num_partitions=PARTITIONS, replication_factor=BROKERS, configs={"min.insync.replicas": "2"}
            )
            load = FollowedLoad(servers, TOPIC, PARTITIONS, pause_s=PAUSE_S, **SETTINGS)
            promise = "clients see no error, brokers end in order and come back"
            await judge(self.verdicts, promise, partial(self._live, admin, load))
        self.acknowledged = load.writer.acked
        await self._prove(load)

    async def _live(self, admin: TrioAdmin, load: FollowedLoad) -> str:
        async with load.running():
            await load.until_acks_flow()
            while load.writer.acked < self.records:
                await self._restart_all(admin, load)
        if errors := load.writer.errors:
            raise PromiseBroken(f"{len(errors)} records were given up, first: {errors[0]}")
        return f"{self.rounds} rounds of {BROKERS} restarts"

    # --- restarts -----------------------------------------------------------------------------------------------

    async def _restart_all(self, admin: TrioAdmin, load: FollowedLoad) -> None:
        """One round."""
        self.rounds += 1
        for broker_id in self.random.sample(self.cluster.broker_ids, BROKERS):
            await self._step(load, "stop", broker_id, partial(self._stop, broker_id))
            await self._step(load, "start", broker_id, partial(self._start, broker_id))
        await self._step(load, "election", None, partial(self._elect, admin))

    async def _step(self, load: FollowedLoad, stage: str, broker_id: int | None, do: Any) -> None:
        load.acks.begin()
        load.reads.begin()
        began = trio.current_time()
        await do()
        took_s = trio.current_time() - began
        with trio.fail_after(PATIENCE_S):
            await load.until_acks_flow()
        gap, read_gap = load.acks.longest(), load.reads.longest()
        self.steps.append(
            Step(
                self.rounds,
                stage,
                broker_id,
                round(took_s, 2),
                round(gap.seconds, 3),
                gap.partition,
                round(read_gap.seconds, 3),
            )
        )

    async def _stop(self, broker_id: int) -> None:
        if code := await off_loop(self.cluster.stop_broker, broker_id):
            raise PromiseBroken(f"broker {broker_id} ended with exit code {code} after SIGTERM")

    async def _start(self, broker_id: int) -> None:
        await off_loop(partial(self.cluster.start_broker, broker_id, timeout_s=PATIENCE_S))
        await self._until_all(lambda state: len(state.isr_nodes) == BROKERS)

    async def _elect(self, admin: TrioAdmin) -> None:
        await admin.elect_leaders()
        await self._until_all(lambda state: state.leader_id == state.replica_nodes[0])

    async def _until_all(self, condition: Any) -> None:
        """Until it holds for the state of each partition, as a broker tells it."""
        with trio.fail_after(PATIENCE_S):
            while True:
                found = await off_loop(self.cluster.metadata, [TOPIC])
                states: list[MetadataPartition] = list(found.topics[0].partitions) if found and found.topics else []
                if len(states) == PARTITIONS and all(map(condition, states)):
                    return
                await trio.sleep(LOOK_INTERVAL_S)

    # --- proofs -------------------------------------------------------------------------------------------------

    async def _prove(self, load: FollowedLoad) -> None:
        cluster = self.cluster

        async def kept() -> str:
            await load.check_kept()
            repeated = sum(len(outcomes.retried) for outcomes in load.writer.outcomes.values())
            return f"{load.writer.acked:,} records, {repeated:,} of them sent again"

        def replicas() -> str:
            shared_bytes = 0
            for number in range(PARTITIONS):
                name = f"{TOPIC}-{number}"
                _, shared = same_bytes(
                    name, {each: promises.log_of(cluster, each, name) for each in cluster.broker_ids}
                )
                shared_bytes += shared
            return f"{shared_bytes / 1e6:.1f} MB on each of {BROKERS}"

        await judge(self.verdicts, "nothing acknowledged is lost, doubled or out of order", kept)
        await judge(self.verdicts, "no broker fails by itself", partial(stopped, cluster))
        await judge(self.verdicts, "replicas are identical", partial(off_loop, replicas))
        folders = [cluster.log_dir(each) for each in cluster.broker_ids]
        sound = partial(promises.folders_are_sound, folders)
        await judge(self.verdicts, "a start has nothing to repair", partial(off_loop, sound))

    # --- what it came to ----------------------------------------------------------------------------------------

    def holds(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts)

    def longest_gap_s(self, *stages: str) -> float:
        """Of all steps of these stages."""
        return max((step.longest_gap_s for step in self.steps if step.stage in stages), default=0.0)

    def longest_read_gap_s(self) -> float:
        return max((step.longest_read_gap_s for step in self.steps), default=0.0)

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.acknowledged,
            "longest_gap_s": self.longest_gap_s(*STAGES),
            "longest_read_gap_s": self.longest_read_gap_s(),
            "load_average": [round(each, 1) for each in os.getloadavg()],
            "steps": [asdict(step) for step in self.steps],
            "promises": [verdict.as_json() for verdict in self.verdicts],
        }

    def show(self, console: Console) -> None:
        for number in range(1, self.rounds + 1):
            steps = [step for step in self.steps if step.round_number == number]
            longest = max(steps, key=lambda step: step.longest_gap_s, default=None)
            if longest is not None:
                whom = "" if longest.broker_id is None else f" of broker {longest.broker_id}"
                console.print(
                    f"round {number}: {sum(step.took_s for step in steps):.1f} s; longest gap "
                    f"{longest.longest_gap_s:.3f} s ({longest.stage}{whom}, partition {longest.gap_partition})"
                )
        gaps = ", ".join(f"{stage} {self.longest_gap_s(stage):.3f} s" for stage in STAGES)
        console.print(
            f"{self.acknowledged:,} records acknowledged; longest gap {self.longest_gap_s(*STAGES):.3f} s ({gaps}; "
            f"the reader's {self.longest_read_gap_s():.3f} s); load average {os.getloadavg()[0]:.1f} on "
            f"{os.cpu_count()} cores"
        )
        show_verdicts(console, self.verdicts)


def main() -> int:
    parser = command_line(__doc__)
    parser.add_argument("--records", type=int, default=10**6)
    arguments = parser.parse_args()

    def prepare(folder: Path) -> Rolling:
        cluster = EmbeddedCluster(folder, brokers=BROKERS, base_port=None)
        return Rolling(cluster, arguments.records, random.Random(arguments.seed))

    return soak_it(arguments, "rolling", prepare)


if __name__ == "__main__":
    sys.exit(main())
