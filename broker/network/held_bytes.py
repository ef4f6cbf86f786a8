"""What connections that a gate holds have received and not handled: it stays in memory until their turn.

It is counted for all of them together. While that is more than `most_bytes`, no client's connection is read in pieces
larger than `HELD_READ_BYTES`, and a longer frame is not received before the gate lets it in: what else its peers have
sent waits in the sockets. Nobody is refused or ended for what others send, and while few are held everybody is read as
fast as ever.

Nobody waits for memory that is held: a large frame leaves the budget that it was received by when the gate holds it,
and one of a client that owes already (`Debt`) is counted here before it is received (`reserve`). So the bound is
`most_bytes`, one large frame, one receive buffer, a piece for each connection, and as much as the budget has, which may
be on its way when its clients begin to owe. What many clients bring at once beyond that stays in the budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from strandline.broker.network.connection import Connection, Debt
from strandline.broker.network.limits import ByteBudget

MAX_HELD_BYTES = 64 * 1024 * 1024
"""Of all connections of a broker."""

HELD_READ_BYTES = 64 * 1024
"""As much as is awaited of a frame that asks for an API which is not spoken (`request_reader`)."""


class HeldBytes:
    """See the module."""

    def __init__(self, most_bytes: int = MAX_HELD_BYTES) -> None:
        self.most_bytes = most_bytes
        self.used_bytes = 0
        self._line: dict[Connection, None] = {}
        """Who waits for room, in the order in which they came."""
        self._kept_in_line_bytes = 0
        """What these have begun to receive: if they waited for that, too, they would wait for each other."""

    @property
    def are_too_many(self) -> bool:
        return self.used_bytes > self.most_bytes

    @contextmanager
    def keeping(self, size_bytes: int) -> Iterator[None]:
        """A connection that has received so much is held for as long as the block runs."""
        self.take(size_bytes)
        try:
            yield
        finally:
            self.release(size_bytes)

    def take(self, size_bytes: int) -> None:
        """Count what is in memory already."""
        self.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0
        self._wake_first()

    async def reserve(self, connection: Connection, size_bytes: int, debt: Debt) -> bool:
        """Wait, first come, first served, until there is room for a large frame, and take that. False: none was taken,
        for the debt is settled, or the connection closed."""
        kept_bytes = len(connection.kept)
        self._line[connection] = None
        self._kept_in_line_bytes += kept_bytes
        self.take(kept_bytes)
        try:
            await debt.wait(connection, lambda: self._may_pass(connection))
            if connection.closed or not self._may_pass(connection):
                return False
            self.take(size_bytes)
            return True
        finally:
            self._kept_in_line_bytes -= kept_bytes
            del self._line[connection]
            self.release(kept_bytes)  # and the next one looks

    def _may_pass(self, connection: Connection) -> bool:
        has_room = self.used_bytes - self._kept_in_line_bytes <= self.most_bytes
        return has_room and next(iter(self._line)) is connection

    def _wake_first(self) -> None:
        for first in self._line:
            first.wake()
            break


class Counted(Protocol):
    """Where bytes are counted that a connection has in memory."""

    def release(self, size_bytes: int, /) -> None: ...


class Charge:
    """The bytes of one connection's requests, which are counted in one place at a time, and released once."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._where: Counted | None = None

    def put(self, where: Counted, size_bytes: int) -> None:
        """They have been taken there, and are counted nowhere else from now on."""
        self.release()
        self._where, self.size_bytes = where, size_bytes

    def is_in(self, where: Counted) -> bool:
        return self.size_bytes > 0 and self._where is where

    async def reserve(self, budget: ByteBudget, size_bytes: int) -> None:
        """Move to this budget as soon as it has room; until then they stay where they are."""
        await budget.reserve(size_bytes)
        self.put(budget, size_bytes)

    def give_away(self) -> Charge:
        """Somebody else releases them from now on, by the charge that is returned."""
        given = Charge()
        given._where, given.size_bytes = self._where, self.size_bytes
        self.size_bytes = 0
        return given

    def release(self) -> None:
        size_bytes, self.size_bytes = self.size_bytes, 0
        if self._where is not None and size_bytes:
            self._where.release(size_bytes)
