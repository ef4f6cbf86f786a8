"""`strandline bench`: what a cluster does on this network and these disks, in the lines of Kafka's own tools.

    strandline bench produce --rate 5000 --seconds 30      latency at a load that is kept up
    strandline bench produce --records 1000000             as fast as may be
    strandline bench consume --records 1000000             how fast it is read
    strandline bench e2e                                   from sending to reading, one record at a time
    strandline bench scenarios --embedded                  six scenarios that were published of Kafka, beside ours

Each makes a topic of its own unless it is given one. What is counted is in `bench_measure` and `runtime/histogram`,
what is sent and when in `bench_load`, all without effects; the commands have a file each.
"""

from __future__ import annotations

import click

from strandline.cli.bench_consume import consume
from strandline.cli.bench_produce import produce
from strandline.cli.bench_round_trips import round_trips
from strandline.cli.bench_scenarios import scenarios


@click.group(
    no_args_is_help=False,
    epilog="Examples: strandline bench produce --rate 5000 --seconds 30; strandline bench consume --records 1000000; "
    "strandline bench e2e --page e2e.html",
)
def bench() -> None:
    """Measure throughput and latency of a cluster."""


bench.add_command(produce, "produce")
bench.add_command(consume, "consume")
bench.add_command(round_trips, "e2e")
bench.add_command(scenarios, "scenarios")
