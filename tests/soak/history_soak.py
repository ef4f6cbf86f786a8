"""`make soak-history`: what happens to processes is done to real ones, and what clients were told of a million records
is judged as a history.

    python tests/soak/history_soak.py [--records 1000000] [--seed 1] [--brokers 4] [--script FILE] [--keep DIR]
                                      [--output json]

Real brokers and a real ZooKeeper; proxies between each two of them, and before them, are the network that is cut, one
way or both, and made slow. Faults (`history_script`) follow one another as the seed draws them, several at a time now
and then, and each is printed as a line of a script when it strikes; --script FILE plays such lines in their place.
Topic `all` (acks=all, idempotent) is promised to last; `one` and `none` (acks=1, acks=0) are there to be consistent.

Faults end when so many records of `all` are acknowledged, and a script is over. Then all heals, and what must hold does
(a broken promise makes the exit code 1 and is named):
* records go on to be acknowledged; where they do not for long (`history_progress`) the run ends before its time
* all comes to rest: every partition is led, with all replicas in sync; readers and the group get everything
* nothing acknowledged is lost, and no other anomaly (`testkit/simulation/anomalies.py`) is in the history
* replicas are equal byte for byte; brokers end in order when they are told to, and none fails by itself
* whose disk fails gives it up (`history_disks`)

Told and not judged, by kind of fault: how often it struck, what became of records meanwhile, and the longest time in
which nothing was acknowledged.
"""

from __future__ import annotations

import gc
import os
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import trio
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from soak.history_faults import HistoryFaults, Struck
from soak.history_load import HistoryLoad
from soak.history_progress import Progress
from soak.history_script import KIND_OF, KINDS, draw
from soak.history_site import HistoryCluster
from soak.history_verdict import SHOWN, prove, until_rest
from soak.soak_promises import Verdict, judge
from soak.soak_run import command_line, show_verdicts, soak_it
from strandline.client import TrioAdmin
from strandline.protocol.types import TopicPartition
from strandline.runtime.processes.descriptors import raise_descriptor_limit
from strandline.testkit.simulation.anomalies import Anomaly
from strandline.testkit.simulation.history import Outcome
from strandline.testkit.simulation.script import Fault, read_script
from strandline.testkit.verification import PromiseBroken

TOPICS = {"all": (6, -1), "one": (2, 1), "none": (2, 0)}
"""Partitions and acks."""
REPLICAS = 3
CONFIGS = {"min.insync.replicas": "2", "flush.messages": "1000"}
DISK_BYTES_PER_RECORD, DISK_BYTES = 200, 64 * 2**20
"""Of the small disk: for records, and at least for the rest."""
LOOK_INTERVAL_S, PROGRESS_INTERVAL_S = 1.0, 5.0


@dataclass(slots=True)
class HistorySoak:
    """One run. Everything that happened is in the public members."""

    cluster: HistoryCluster
    records: int
    seed: int
    script: Iterator[Fault]
    is_endless: bool
    load: HistoryLoad = field(init=False)
    faults: HistoryFaults = field(init=False)
    verdicts: list[Verdict] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    seconds: float = 0.0
    stalled: str = ""
    """For how long nothing was acknowledged, where it was too long."""

    async def run(self) -> None:
        """Clients and faults; then the proofs."""
        servers = self.cluster.proxies.bootstrap_servers
        async with TrioAdmin(servers) as admin:
            for name, (partitions, _) in TOPICS.items():
                await admin.create_topic(name, partitions, REPLICAS, CONFIGS)
        self.load = HistoryLoad(servers, TOPICS, self.seed)
        partitions = [TopicPartition("all", number) for number in range(TOPICS["all"][0])]
        self.faults = HistoryFaults(self.cluster, partitions, self.seed, self._tell)
        began_s = trio.current_time()
        async with self.load.running():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._progress, began_s)
                nursery.start_soon(self._watch)
                await self.faults.run(self.script, self._is_over)
                while self.load.acked < self.records and not self.stalled:
                    await trio.sleep(LOOK_INTERVAL_S)
                nursery.cancel_scope.cancel()
            await judge(self.verdicts, "records go on to be acknowledged", self._went_on)
            await judge(self.verdicts, "all comes to rest", partial(until_rest, self.cluster))
        self.seconds = trio.current_time() - began_s
        await judge(self.verdicts, "nobody is told what must not be", self._no_findings)
        counts = {name: partitions for name, (partitions, _) in TOPICS.items()}
        self.anomalies = await prove(self.cluster, self.load, counts, self.verdicts)

    def _is_over(self) -> bool:
        return bool(self.stalled) or (self.is_endless and self.load.acked >= self.records)

    async def _watch(self) -> None:
        """Until nothing was acknowledged for too long; then the run is over."""
        progress = Progress(trio.current_time())
        while not self.stalled:
            await trio.sleep(LOOK_INTERVAL_S)
            self.stalled = progress.note(self.load.acked, self.faults.under_way, trio.current_time())

    async def _went_on(self) -> str:
        if self.stalled:
            raise PromiseBroken(f"{self.stalled}, {self.load.acked:,} of {self.records:,} were before")
        return f"{self.load.acked:,}"

    async def _no_findings(self) -> str:
        if found := [*self.load.findings, *self.faults.findings]:
            raise PromiseBroken(f"{len(found)}: {found[:SHOWN]}")
        return (
            "no reader is sent back; brokers end with exit code 0 after SIGTERM, by themselves only without a disk; "
            "a disk that failed is given up"
        )

    # --- what it came to ----------------------------------------------------------------------------------------

    def _tell(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    async def _progress(self, began_s: float) -> None:
        while True:
            await trio.sleep(PROGRESS_INTERVAL_S)
            counts = self.load.outcomes
            lost = sum(count for (_, outcome), count in counts.items() if outcome is Outcome.FAILED)
            unknown = sum(count for (_, outcome), count in counts.items() if outcome is Outcome.UNKNOWN)
            now = ", ".join(self.faults.under_way) or "nothing"
            self._tell(
                f"# {trio.current_time() - began_s:6.0f} s: {self.load.acked:,} of {self.records:,} acknowledged, "
                f"{lost:,} failed, {unknown:,} unknown; now {now}"
            )

    def holds(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts)

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.load.acked,
            "seconds": round(self.seconds, 1),
            "faults": self._rows(),
            "script": [str(struck.fault) for struck in self.faults.done],
            "anomalies": [str(each) for each in self.anomalies],
            "promises": [verdict.as_json() for verdict in self.verdicts],
        }

    def _rows(self) -> list[dict[str, Any]]:
        """Of each kind that was drawn: what became of records of `all` while it lasted."""
        ended = sorted((each.ended_s, each.outcome.value) for each in self.load.history.writes if each.acks == -1)
        acked_s = [at_s for at_s, outcome in ended if outcome == Outcome.OK.value]
        rows = []
        for kind in KINDS:
            struck = [each for each in self.faults.done if each.fault.kind == kind.name]
            passed_over = self.faults.passed_over[kind.name]
            if struck or passed_over:
                meanwhile = Counter(outcome for each in struck for outcome in _within(ended, each))
                rows.append(
                    {
                        "kind": kind.name,
                        "struck": len(struck),
                        "passed_over": passed_over,
                        **{outcome.value: meanwhile[outcome.value] for outcome in Outcome},
                        "longest_pause_s": round(
                            max((_longest_pause_s(acked_s, each) for each in struck), default=0), 2
                        ),
                    }
                )
        return rows

    def show(self, console: Console) -> None:
        table = Table(title="what became of records with acks=all while a fault lasted")
        for column in ("fault", "", "struck", "passed over", "acknowledged", "failed", "unknown", "longest pause s"):
            table.add_column(column, justify="left" if column in ("fault", "") else "right")
        for row in self._rows():
            figures = [f"{value:,}" for value in list(row.values())[1:]]
            table.add_row(row["kind"], KIND_OF[row["kind"]].number, *figures)
        console.print(table)
        console.print(
            f"seed {self.seed}: {self.load.acked:,} records acknowledged in {self.seconds:.0f} s, "
            f"{len(self.faults.done)} faults; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        )
        for each in self.anomalies[:SHOWN]:
            console.print(escape(str(each)))
        show_verdicts(console, self.verdicts)


def _within(ended: list[tuple[float, str]], struck: Struck) -> list[str]:
    """The outcomes that came while it lasted."""
    first, behind = (bisect_left(ended, (at_s, "")) for at_s in (struck.began_s, struck.ended_s))
    return [outcome for _, outcome in ended[first:behind]]


def _longest_pause_s(acked_s: list[float], struck: Struck) -> float:
    """Without an acknowledgement, as far as it began or ended while the fault lasted."""
    first, behind = (bisect_left(acked_s, at_s) for at_s in (struck.began_s, struck.ended_s))
    moments = acked_s[max(0, first - 1) : behind + 1]
    return max((after - before for before, after in pairwise(moments)), default=0.0)


def main() -> int:
    parser = command_line(__doc__)
    parser.add_argument("--records", type=int, default=10**6)
    parser.add_argument("--brokers", type=int, default=4)
    parser.add_argument("--script", type=Path, metavar="FILE", help="these faults, not those of the seed")
    arguments = parser.parse_args()
    # The history is millions of objects that stay to the end: to look through them for garbage would stop the clients.
    gc.disable()
    raise_descriptor_limit()
    with ExitStack() as site:

        def prepare(folder: Path) -> HistorySoak:
            disk_bytes = DISK_BYTES + DISK_BYTES_PER_RECORD * arguments.records
            cluster = site.enter_context(closing(HistoryCluster(folder, arguments.brokers, disk_bytes)))
            told = arguments.script
            single = {"small disk": cluster.small, "long session": cluster.patient}
            script = read_script(told.read_text()) if told else draw(arguments.seed, cluster.broker_ids, single)
            return HistorySoak(cluster, arguments.records, arguments.seed, iter(script), is_endless=not told)

        return soak_it(arguments, "history", prepare)


if __name__ == "__main__":
    sys.exit(main())
