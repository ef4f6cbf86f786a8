"""`make soak-cluster MINUTES=10`: three brokers under load, one of them killed every 30 s, and what is left in the end.

    python tests/soak/cluster_soak.py [--minutes 10] [--kill-every 30] [--seed 1] [--lenient] [--keep DIR]

Topic `numbers` (3 partitions) is kept by size: segment.bytes 1 MB, retention.bytes 10 MB; topic `latest` (2 partitions)
is compacted. Both are written at a bounded rate; every outcome is known, and a reader follows. A victim is killed
(SIGKILL, each fourth time SIGTERM), stays away for 1 to 25 s, and is started again; each broker in turn, in an order
that the seed tells. Meanwhile descriptors, memory, bytes and files of each broker are sampled.

Promises (a broken one makes the exit code 1 and is named):
* nothing acknowledged is lost: it stands, or it expired (below the log start), or a newer record of its key does
* a reader is never sent back, and nothing is passed over silently
* the ISR is whole in the end, and the replicas are equal: byte for byte, or value for value where they are compacted
* brokers come back when they are started, none ends or fails by itself, and a start has nothing to repair
* disk use stays within stated bounds; descriptors and memory are flat (`--lenient`: told, not judged: for short runs)
"""

from __future__ import annotations

import random
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import trio
from rich.console import Console

from soak import soak_promises as promises
from soak.soak_load import BUFFER_BYTES, LATEST, NUMBERS, PARTITIONS, Load, Rates, read_all
from soak.soak_promises import Verdict, judge
from soak.soak_report import document, show
from soak.soak_run import PATIENCE_S, command_line, off_loop, soak_it, stopped
from soak.soak_samples import Bound, Sample, flatness, peak, take, typical
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.process import ProcessId
from strandline.client import TrioAdmin
from strandline.testkit.verification import PromiseBroken

BROKERS = 3
SEGMENT_BYTES, RETENTION_BYTES = 10**6, 10 * 10**6
LATEST_SEGMENT_BYTES = 256 * 1024
CHECK_INTERVAL_S, DELETE_DELAY_S = 1, 5
AWAY_S = (1.0, 4.0, 12.0, 25.0)
"""How long a victim stays away; the longest is longer than what retention keeps."""
SLACK_S = 10
"""What background work may be late by on a busy machine, in bounds."""
SAMPLE_EVERY_S = 3.0
TERMINATED_EVERY = 4
BROKER_PROPERTIES = {
    "log.retention.check.interval.ms": str(CHECK_INTERVAL_S * 1000),
    "log.segment.delete.delay.ms": str(DELETE_DELAY_S * 1000),
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.flush.start.offset.checkpoint.interval.ms": "5000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(8 * 2**20),
}
TOPICS = {
    NUMBERS: {"segment.bytes": str(SEGMENT_BYTES), "retention.bytes": str(RETENTION_BYTES)},
    LATEST: {
        "cleanup.policy": "compact",
        "segment.bytes": str(LATEST_SEGMENT_BYTES),
        "segment.ms": "5000",
        "min.cleanable.dirty.ratio": "0.1",
        # Longer than any follower is away: a tombstone that is gone before a replica saw it is never seen there.
        "delete.retention.ms": "60000",
    },
}


class Soak:
    """One run. Everything that happened is in the public members."""

    def __init__(
        self, cluster: EmbeddedCluster, seconds: float, kill_every_s: float, seed: int, *, is_lenient: bool
    ) -> None:
        self.cluster = cluster
        self.seconds = seconds
        self.is_lenient = is_lenient
        self.rates = Rates()
        self.samples: list[Sample] = []
        self.faults: list[dict[str, Any]] = []
        self.verdicts: list[Verdict] = []
        self.unexpected: list[str] = []
        self.worker_ids: set[ProcessId] = set()
        """Every worker process that was seen."""
        self._kill_every_s = kill_every_s
        self._random = random.Random(seed)
        self._seed = seed
        self._started_at = dict.fromkeys(cluster.broker_ids, 0.0)
        self._away: set[int] = set()
        self._began = 0.0

    async def run(self) -> None:
        """Load, faults and samples; then the proofs."""
        self._began = trio.current_time()
        self._started_at = dict.fromkeys(self.cluster.broker_ids, self._began)
        async with TrioAdmin(self.cluster.bootstrap_servers) as admin:
            for topic, configs in TOPICS.items():
                await admin.create_topic(
                    topic,
                    num_partitions=PARTITIONS[topic],
                    replication_factor=BROKERS,
                    configs={"min.insync.replicas": "2", **configs},
                )
        self.load = Load(self.cluster.bootstrap_servers, self.rates, self._seed)
        await judge(self.verdicts, "brokers come back; readers are led on", self._live)
        await self._prove()

    async def _live(self) -> str:
        with trio.fail_after(self.seconds + PATIENCE_S * 3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_sampling)
                async with trio.open_nursery() as working:
                    working.start_soon(self.load.run)
                    await self._make_faults()
                    self.load.stop()
                nursery.cancel_scope.cancel()
        if self.unexpected:
            raise PromiseBroken("; ".join(self.unexpected[:3]))
        return (
            f"{len(self.faults)} faults; the reader had {sum(r.next_offset for r in self.load.readings.values()):,} + "
            f"{self.load.read_of_latest:,} records, retention overtook it by {self.load.expired_under_reader:,}"
        )

    # --- faults -------------------------------------------------------------------------------------------------

    async def _make_faults(self) -> None:
        turns: list[int] = []
        number = 0
        while self._now() + self._kill_every_s < self.seconds:
            number += 1
            await trio.sleep_until(self._began + number * self._kill_every_s)
            turns = turns or self._random.sample(self.cluster.broker_ids, BROKERS)
            await self._fault(turns.pop(), is_orderly=number % TERMINATED_EVERY == 0)
        await trio.sleep_until(self._began + self.seconds)

    async def _fault(self, broker_id: int, *, is_orderly: bool) -> None:
        away_s = min(self._random.choice(AWAY_S), self._kill_every_s * 0.8)
        at_s = self._now()
        self._away.add(broker_id)
        if is_orderly:
            code = await off_loop(self.cluster.stop_broker, broker_id)
            if code:
                self.unexpected.append(f"broker {broker_id} ended with exit code {code} after SIGTERM")
        else:
            await off_loop(self.cluster.kill_broker, broker_id, signal.SIGKILL)
        gone_s = self._now()
        await trio.sleep(away_s)
        await off_loop(partial(self.cluster.start_broker, broker_id, timeout_s=PATIENCE_S))
        self._started_at[broker_id] = trio.current_time()
        self._away.discard(broker_id)
        self.faults.append(
            {
                "at_s": round(at_s, 1),
                "broker_id": broker_id,
                "how": "SIGTERM" if is_orderly else "SIGKILL",
                "away_s": round(self._now() - gone_s, 1),
            }
        )

    def _now(self) -> float:
        return trio.current_time() - self._began

    # --- samples ------------------------------------------------------------------------------------------------

    async def _keep_sampling(self) -> None:
        while True:
            for broker_id in self.cluster.broker_ids:
                self.samples.append(await self._sample(broker_id))
            await trio.sleep(SAMPLE_EVERY_S)

    async def _sample(self, broker_id: int) -> Sample:
        daemon, pid, age_s = self.cluster.brokers[broker_id], None, 0.0
        if broker_id not in self._away:
            if daemon.is_alive and daemon.id is not None:
                pid, age_s = daemon.id.pid, trio.current_time() - self._started_at[broker_id]
            elif len(self.unexpected) < 10:
                self.unexpected.append(f"broker {broker_id} ended by itself: {daemon.last_log_line()}")
        sample, workers = await off_loop(take, self._now(), broker_id, pid, age_s, self.cluster.log_dir(broker_id))
        self.worker_ids.update(workers)
        return sample

    # --- proofs -------------------------------------------------------------------------------------------------

    async def _prove(self) -> None:
        cluster, load, verdicts = self.cluster, self.load, self.verdicts
        found: dict[str, promises.Records] = {}

        async def isr_whole() -> str:
            since = trio.current_time()
            with trio.fail_after(PATIENCE_S):
                while not await off_loop(is_whole, cluster):
                    await trio.sleep(0.2)
            return f"{sum(PARTITIONS.values())} partitions, {trio.current_time() - since:.1f} s after the load"

        async def read(topic: str) -> str:
            with trio.fail_after(PATIENCE_S):
                found[topic] = await read_all(cluster.bootstrap_servers, topic)
            kept = promises.numbers_kept if topic == NUMBERS else promises.latest_kept
            return await off_loop(kept, load, found[topic])

        await judge(verdicts, "the ISR is whole", isr_whole)
        for topic in (NUMBERS, LATEST):
            await judge(verdicts, f"nothing acknowledged is lost: {topic}", partial(read, topic))
        await judge(verdicts, "no broker fails by itself", partial(stopped, cluster))
        for promise, proof in (
            (
                f"replicas are identical: {NUMBERS}",
                partial(promises.replicas_of_numbers, cluster, RETENTION_BYTES),
            ),
            (
                f"replicas are identical: {LATEST}",
                partial(promises.replicas_of_latest, cluster, found.get(LATEST, {})),
            ),
            (
                "a start has nothing to repair",
                partial(promises.folders_are_sound, [cluster.log_dir(each) for each in cluster.broker_ids]),
            ),
            (
                "no worker outlives its broker",
                partial(promises.no_orphans, self.worker_ids),
            ),
        ):
            await judge(verdicts, promise, partial(off_loop, proof))

    # --- what it came to ----------------------------------------------------------------------------------------

    def holds(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts) and (
            self.is_lenient or all(bound.holds for bound in self.bounds())
        )

    def as_json(self) -> dict[str, Any]:
        return document(self, self.bounds(), judged=not self.is_lenient)

    def show(self, console: Console) -> None:
        show(console, self, self.bounds(), judged=not self.is_lenient)

    # --- bounds -------------------------------------------------------------------------------------------------

    def bounds(self) -> list[Bound]:
        """Of figures; see `--lenient`."""
        rates, samples = self.rates, self.samples
        longest_s = max([fault["away_s"] for fault in self.faults], default=0.0) + CHECK_INTERVAL_S + SLACK_S
        # At once after a stall or at a catching-up follower: all that was sent meanwhile, before retention looks.
        burst = rates.numbers_bytes_per_s * longest_s + BUFFER_BYTES
        steady = rates.numbers_bytes_per_s * (CHECK_INTERVAL_S + SLACK_S)
        kept = RETENTION_BYTES + 2 * SEGMENT_BYTES
        latest = rates.keys * (rates.latest_record_bytes + 100) * 1.25 + 4 * LATEST_SEGMENT_BYTES
        latest_burst = rates.latest_bytes_per_s * longest_s + BUFFER_BYTES / PARTITIONS[LATEST]
        aged = [sample for sample in samples if sample.age_s >= DELETE_DELAY_S + SLACK_S]
        oldest_s = max((sample.oldest_put_aside_s for sample in aged), default=0.0)
        return [
            Bound(
                f"{NUMBERS}: median bytes of a replica",
                typical(samples, NUMBERS, self.seconds),
                kept + steady,
                "bytes",
                f"retention.bytes + 2 segments + what comes in {CHECK_INTERVAL_S + SLACK_S} s",
            ),
            Bound(
                f"{NUMBERS}: most bytes of a replica",
                peak(samples, NUMBERS),
                kept + burst,
                "bytes",
                f"retention.bytes + 2 segments + what comes in {longest_s:.0f} s (the longest absence) + a full buffer",
            ),
            Bound(
                f"{LATEST}: median bytes of a replica",
                typical(samples, LATEST, self.seconds),
                latest + rates.latest_bytes_per_s * 2 * SLACK_S,
                "bytes",
                f"all keys x 1.25 + 4 segments + what comes in {2 * SLACK_S} s",
            ),
            Bound(
                f"{LATEST}: most bytes of a replica",
                peak(samples, LATEST),
                latest + latest_burst + rates.latest_bytes_per_s * 2 * SLACK_S,
                "bytes",
                f"the same + what comes in {longest_s:.0f} s + half a buffer",
            ),
            Bound(
                "age of what was put aside",
                oldest_s,
                DELETE_DELAY_S + SLACK_S,
                "s",
                f"file.delete.delay.ms + {SLACK_S} s, with brokers that are up",
            ),
            *flatness(samples, self.seconds),
        ]


def is_whole(cluster: EmbeddedCluster) -> bool:
    """Every partition has a leader and all of its replicas in sync."""
    found = cluster.metadata(list(PARTITIONS))
    if found is None or len(found.topics) < len(PARTITIONS):
        return False
    return all(
        len(topic.partitions) == PARTITIONS[topic.name]
        and all(p.leader_id >= 0 and len(p.isr_nodes) == BROKERS for p in topic.partitions)
        for topic in found.topics
    )


def main() -> int:
    parser = command_line(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kill-every", type=float, default=30.0, help="seconds")
    parser.add_argument("--lenient", action="store_true", help="tell figures, judge promises only")
    arguments = parser.parse_args()

    def prepare(folder: Path) -> Soak:
        cluster = EmbeddedCluster(folder, brokers=BROKERS, base_port=None, properties=BROKER_PROPERTIES)
        return Soak(cluster, arguments.minutes * 60, arguments.kill_every, arguments.seed, is_lenient=arguments.lenient)

    return soak_it(arguments, "soak", prepare)


if __name__ == "__main__":
    sys.exit(main())
