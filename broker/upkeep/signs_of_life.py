"""Once a minute a line in the state-change log: this broker is alive."""

from __future__ import annotations

from strandline.broker.replication.replicas import Replicas
from strandline.runtime.beats import next_beat

INTERVAL_S = 60.0
"""So exactly is the end of a broker known that died together with all the others."""


async def run_signs_of_life(replicas: Replicas) -> None:
    while True:
        await next_beat(INTERVAL_S)
        replicas.show_life()
