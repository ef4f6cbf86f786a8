"""All kinds of faults, by name."""

from __future__ import annotations

from strandline.testkit.simulation.faults import of_brokers, of_disks, of_networks, of_zookeeper
from strandline.testkit.simulation.faults.striking import FaultKind

KINDS: dict[str, FaultKind] = {**of_brokers.KINDS, **of_networks.KINDS, **of_disks.KINDS, **of_zookeeper.KINDS}
