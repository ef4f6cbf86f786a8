"""What a client is given from outside: network, wall clock, randomness. The production one is made here."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from strandline.runtime.environment import WallClock
from strandline.runtime.network import Network


class SystemWallClock:
    """The machine's clock: `WallClock` in production."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """The seams of one client. `random` orders bootstrap servers, jitters back-off and picks sticky partitions."""

    network: Network
    wall_clock: WallClock = field(default_factory=SystemWallClock)
    random: random.Random = field(default_factory=random.Random)


def production_client_environment() -> ClientEnvironment:
    """Sockets, the machine's clock, a randomly seeded generator."""
    from strandline.runtime.network_socket import SocketNetwork

    return ClientEnvironment(SocketNetwork())
