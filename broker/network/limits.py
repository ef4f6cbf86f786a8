"""What the network side of a broker may take from its peers: connections, bytes, time.

Every limit has a default that a laptop can afford. A limit is checked before the memory is taken, and given back on
every way a connection can end (a leak here locks everybody out, KAFKA-2614).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import trio

from strandline.protocol.native.frame import MAX_FRAME_BYTES


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection; bytes, counts, milliseconds."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    """`socket.request.max.bytes`: longer frames close the connection at their length prefix."""
    receive_buffer_bytes: int = 1024 * 1024
    """One per processor; the bytes of one burst."""
    large_frame_bytes: int = 512 * 1024
    """An unfinished frame longer than this gets its own allocation, charged to the queued bytes: putting it aside and
    back for every packet would cost more than the packet."""
    burst_max_requests: int = 512
    max_in_flight: int = 1024
    """Requests of one connection without a response; at this many, reading stops and TCP pushes back."""
    max_pending_bytes: int = 16 * 1024 * 1024
    """Bytes of responses that wait for the peer to read (file regions included): at so many, reading stops."""
    max_idle_ms: int = 600_000
    """`connections.max.idle.ms`."""
    frame_deadline_ms: int = 30_000
    """A begun frame must be complete by then, plus one second per `MIN_FRAME_RATE_BYTES`."""
    send_timeout_ms: int = 30_000
    """A peer that takes nothing for so long is closed."""


MIN_FRAME_RATE_BYTES = 1024 * 1024
"""Bytes per second that a large frame must keep up."""


NOBODY: Mapping[str, int] = MappingProxyType({})


class ConnectionQuota:
    """How many connections there are, in all and per peer host, an address in its one spelling (`plain_address`).
    Client listeners leave `reserved` slots to the inter-broker listener, so that clients that exhaust theirs never cut
    the cluster apart (KAFKA-7730)."""

    def __init__(
        self,
        max_connections: int,
        max_connections_per_ip: int,
        reserved: int = 0,
        overrides: Mapping[str, int] = NOBODY,
    ) -> None:
        self.set_limits(max_connections, max_connections_per_ip, reserved, overrides)
        self.total = 0
        self._per_host: dict[str, int] = {}

    def set_limits(
        self, max_connections: int, max_connections_per_ip: int, reserved: int, overrides: Mapping[str, int] = NOBODY
    ) -> None:
        """Connections that are open stay, be they more than that. overrides: address → what counts
        for it instead of `max_connections_per_ip`."""
        self.max_connections = max_connections
        self.max_connections_per_ip = max_connections_per_ip
        self.overrides = overrides
        self.reserved = min(reserved, max_connections)

    def take(self, host: str, is_inter_broker: bool) -> str | None:
        """Count one connection. None: taken, `give_back` it; otherwise the reason of the refusal, in one line."""
        limit = self.max_connections if is_inter_broker else self.max_connections - self.reserved
        if self.total >= limit:
            return f"{limit} connections are open; raise max.connections or close some"
        most, key = self.max_connections_per_ip, "max.connections.per.ip"
        if self.overrides and (own := self.overrides.get(host)) is not None:
            most, key = own, "max.connections.per.ip.overrides"
        if self._per_host.get(host, 0) >= most and not is_inter_broker:
            return f"{most} connections from {host}; raise {key} or close some"
        self.total += 1
        self._per_host[host] = self._per_host.get(host, 0) + 1
        return None

    def give_back(self, host: str) -> None:
        self.total -= 1
        left = self._per_host[host] - 1
        if left:
            self._per_host[host] = left
        else:
            del self._per_host[host]


class ListenerQuota:
    """One listener's part of it, which may have a bound of its own, looked up each time."""

    def __init__(self, quota: ConnectionQuota, key: str, most: Callable[[], int | None]) -> None:
        """key: of the bound, to be named in a refusal."""
        self._quota = quota
        self._key = key
        self._most = most
        self._open = 0

    def take(self, host: str, is_inter_broker: bool) -> str | None:
        """As `ConnectionQuota.take`."""
        most = self._most()
        if most is not None and self._open >= most:
            return f"{most} connections of this listener are open; raise {self._key} or close some"
        refusal = self._quota.take(host, is_inter_broker)
        self._open += refusal is None
        return refusal

    def give_back(self, host: str) -> None:
        self._open -= 1
        self._quota.give_back(host)


class ByteBudget:
    """A number of bytes that waiters share in the order in which they came. A request larger than the whole budget is
    let in alone, so that no legal frame waits for ever."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._queue: deque[object] = deque()
        self._changed = trio.lowlevel.ParkingLot()

    async def reserve(self, amount: int) -> None:
        """Wait until `amount` bytes are free, then take them."""
        ticket = object()
        self._queue.append(ticket)
        try:
            while self._queue[0] is not ticket or not self._fits(amount):
                await self._changed.park()
            self.used_bytes += amount
        finally:
            self._queue.remove(ticket)
            self._changed.unpark_all()

    def release(self, amount: int) -> None:
        self.used_bytes -= amount
        assert self.used_bytes >= 0
        self._changed.unpark_all()

    def _fits(self, amount: int) -> bool:
        return self.used_bytes == 0 or self.used_bytes + amount <= self.max_bytes
