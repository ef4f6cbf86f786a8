"""What a node is given from outside: randomness, disk, network, blocking work, wall clock. Never global.

`broker/server.py` builds the production environment, the test kit the simulated one. Monotonic time is
`trio.current_time()` everywhere (virtual in tests); the wall clock stamps records and drives retention only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from strandline.runtime.disk import Disk
from strandline.runtime.network import Network

T = TypeVar("T")


class Blocking(Protocol):
    """Runs what waits for the disk (fsync, deletion, cold reads) off the event loop: a thread in production, inline
    with virtual delay in tests. Not for computing: a computing thread takes the event loop from 37 K to 0.7 K round
    trips a second (performance.md)."""

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Call `function(*args)` elsewhere and return its result or raise its exception."""


class WallClock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The seams of one node, but for coordination, which is connected later (`Coordination`)."""

    disk: Disk
    network: Network
    blocking: Blocking
    wall_clock: WallClock
    random: Callable[[str], random.Random]
    """purpose → an independent stream, so that a new draw in one place does not shift the others."""
