"""What a client is given from outside: network, wall clock, randomness. The production one is made here."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from strandline.runtime.clock import SystemWallClock
from strandline.runtime.environment import WallClock
from strandline.runtime.network import Network
from strandline.runtime.network_socket import SocketNetwork
from strandline.runtime.randomness import system_random


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """The seams of one client. `random` orders bootstrap servers, jitters back-off and picks sticky partitions."""

    network: Network
    wall_clock: WallClock = field(default_factory=SystemWallClock)
    random: random.Random = field(default_factory=lambda: system_random("client"))


def production_client_environment() -> ClientEnvironment:
    """Sockets, the machine's clock, a randomly seeded generator."""
    return ClientEnvironment(SocketNetwork())
