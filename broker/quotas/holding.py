"""Who exceeded a quota is held: its connection is not read until what it owes is made up for, its next request waits.

Two brakes, one for each way to come too early. `Muted`: a connection whose request exceeded the quota has been answered
with `throttle_time_ms`, and is not read for that time (KIP-219). `InLine`: a request comes by any other connection, or
was sent ahead, while something is owed; it waits in its connection, first come, first served, one at a time. So many
connections that share a quota pass together what one of them would.

A request that queues for its handler (`Passage`) stands in that line before, and what it takes shows at its handler: of
those that share a quota one at a time is on its way there. Or many that came at once would pass before the first of
them is counted. Others do not wait for what is on its way: nothing is owed for that yet.

Where a client has quotas of time and of bytes its request waits for its time first, then in the line of bytes. Others
may have taken time since: at its turn there it keeps its place until nothing is owed of time either, and comes before
all in the line of time, since it has been the first of them (`Sensor.ahead`). Did it not wait, all that have passed the
one line would be handled at a stretch; did it lose its place in the other, some would never be.

Where the quota is altered or removed everybody is let go at once (`let_go`), and what is in line comes to the gate
again, frames that are still to be received, too. Where another one begins to count for some of them, these go, and the
others keep their place (`ask_again`); who is muted is read again, and waits in line for what is still owed. A
connection that closes leaves the line, also where its peer does: that shows within a second or two
(`Connection.is_left`), and its request is neither handled nor charged. Or each client that gives up and comes again
would stand behind its own dead request. What has no answer (acks=0) stays, since nobody asks for it again, but not for
longer than all windows: or clients that send more than their quota allows, and close, would use up the connections of
all others. What would wait longer, as far as the bytes before it tell, or has waited so long, is dropped with its
connection, as acks=0 allows. So is any large frame, of which it is not known before it is received whether it has an
answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from strandline.broker.network.connection import Brake, Connection
from strandline.broker.quotas.sensors import Sensor


class _Waiting:
    """Of who waits for a sensor."""

    def __init__(self, sensor: Sensor) -> None:
        self._sensor = sensor
        self._changes = sensor.changes
        self._version = sensor.table.version
        self._counts_elsewhere = False

    def _is_let_go(self, connection: Connection) -> bool:
        """Another sensor counts for it by now. Looked up once for each table of quotas: what waits in a connection may
        have come under another client id than what came last, and would be let go again and again."""
        table, context = self._sensor.table, connection.context
        if self._version != table.version:
            self._version = table.version
            found = table.of(context.principal, context.client_id, trio.current_time())
            self._counts_elsewhere = found is not self._sensor
        return self._counts_elsewhere


class Muted(_Waiting):
    """See the module."""

    def __init__(self, sensor: Sensor, until: float) -> None:
        """until: on trio's clock."""
        super().__init__(sensor)
        self.until = until

    async def wait(self, connection: Connection) -> None:
        muted = self._sensor.muted
        muted[connection] = None
        try:
            await connection.wait_for_time(lambda: self._muted_until(connection))
        finally:
            del muted[connection]

    def _muted_until(self, connection: Connection) -> float:
        is_over = self._changes != self._sensor.changes or self._is_let_go(connection)
        return 0.0 if is_over else self.until


class InLine(_Waiting):
    """See the module."""

    def __init__(
        self,
        sensor: Sensor,
        size_bytes: int = 0,
        *,
        has_answer: bool = True,
        find_passed: Callable[[], Sensor | None] = lambda: None,
    ) -> None:
        """size_bytes: of the request, where these are what it is charged. find_passed: the sensor that counts now whose
        line the request has passed."""
        super().__init__(sensor)
        self._size_bytes = size_bytes
        self._has_answer = has_answer
        self._find_passed = find_passed

    async def wait(self, connection: Connection) -> None:
        connection.droppable_from = self._droppable_from()
        try:
            await self._stand(connection, self._sensor.line)
        finally:
            connection.droppable_from = math.inf

    async def _stand(self, connection: Connection, line: dict[Connection, int]) -> None:
        sensor = self._sensor
        line[connection] = self._size_bytes
        try:
            await connection.wait_for_time(lambda: self._turn_at(connection))
            if (passed := self._find_passed()) is not None:
                await InLine(passed)._stand(connection, passed.ahead)
            if not connection.closed and not self._counts_elsewhere:
                sensor.turn_of = connection
        finally:
            del line[connection]
            wake_next(sensor)

    def _droppable_from(self) -> float:
        """At once where somebody would ask again, or where it would wait longer than all windows: for what is owed, and
        for the bytes of each that is in line already. Else when it has waited so long."""
        sensor, now = self._sensor, trio.current_time()
        if self._has_answer:
            return now
        wait_s = sensor.meter.owed_s(now) + sum(sensor.line.values()) / sensor.meter.bound
        return now if wait_s > sensor.longest_held_s else now + sensor.longest_held_s

    def _turn_at(self, connection: Connection) -> float:
        now = trio.current_time()
        if self._is_let_go(connection):
            return now
        if self._sensor.first_in_line is not connection:
            return math.inf
        return now + self._sensor.meter.owed_s(now)


class Passage:
    """A `Passage` of the request channel: see the module."""

    def __init__(self, connection: Connection, find: Callable[[], Sensor | None]) -> None:
        """find: the sensor that the request is counted under now."""
        self._connection = connection
        self._find = find
        self._sensor: Sensor | None = None

    def brake(self) -> Brake | None:
        connection, sensor = self._connection, self._find()
        if sensor is not self._sensor:
            self.end()
            self._sensor = sensor
        if sensor is None:
            return None
        sensor.passing.setdefault(connection, None)
        if next(iter(sensor.passing)) is not connection:
            return _BehindOthers(sensor)
        return InLine(sensor) if must_wait(connection, sensor, trio.current_time()) else None

    def end(self) -> None:
        if self._sensor is not None:
            end_passage(self._connection, self._sensor)


class _BehindOthers(_Waiting):
    """A `Brake`, of a request that queues while another one is on its way to its handler."""

    async def wait(self, connection: Connection) -> None:
        connection.droppable_from = trio.current_time()
        try:
            await connection.wait_for_time(lambda: 0.0 if self._may_go_on(connection) else math.inf)
        finally:
            connection.droppable_from = math.inf

    def _may_go_on(self, connection: Connection) -> bool:
        is_let_go = self._sensor.changes != self._changes or self._is_let_go(connection)
        return is_let_go or next(iter(self._sensor.passing)) is connection


class InLineToPay(InLine):
    """Of a large frame that is still to be received: it is charged at its turn, so that those behind it wait for that
    and not for its last byte. Where another quota counts by then it is charged nothing, and comes to the gate again."""

    async def wait(self, connection: Connection) -> None:
        await super().wait(connection)
        self._sensor.turn_of = None
        has_turn = not connection.closed and not self._counts_elsewhere
        if has_turn and self._sensor.changes == self._changes:
            pay(connection, self._sensor, self._size_bytes)


class PaidFrame:
    """A large frame was charged before it was received."""

    def __init__(self, sensor: Sensor, size_bytes: int) -> None:
        self._sensor = sensor
        self._size_bytes = size_bytes
        self._counted = sensor.meter.counted
        self._changes = sensor.changes

    def counts_for(self, sensor: Sensor) -> bool:
        """Whether it was charged by the quota by which that one counts now. Its client may have another sensor by then:
        one that is as new loses its place, and who shared one gets a place."""
        return sensor.entity == self._sensor.entity

    def give_back(self, missing_bytes: int) -> None:
        """So much of it never came: or two hundred bytes that announce a hundred megabytes would hold everybody."""
        sensor = self._sensor
        if missing_bytes and sensor.changes == self._changes:
            sensor.give_back(missing_bytes, self._counted * missing_bytes / self._size_bytes)
            wake_next(sensor)


class TimeOwed(_Waiting):
    """A `Debt`, of a client whose next request would go into the line. Its large frames are received while there is
    room for what is held: the time that they take shows when they are handled, and they have their place in the line
    then."""

    async def wait(self, connection: Connection, goes_on: Callable[[], bool]) -> None:
        unreceived = self._sensor.unreceived
        unreceived[connection] = None
        connection.droppable_from = trio.current_time()
        try:
            await connection.wait_for_time(
                lambda: 0.0 if goes_on() or self._is_let_go(connection) else self._settled_at()
            )
        finally:
            connection.droppable_from = math.inf
            del unreceived[connection]

    def _settled_at(self) -> float:
        sensor, now = self._sensor, trio.current_time()
        return math.inf if sensor.first_in_line else now + sensor.meter.owed_s(now)


def pay(connection: Connection, sensor: Sensor, size_bytes: int) -> None:
    """Charge a large frame before it is received."""
    sensor.take(size_bytes, trio.current_time())
    connection.before_frame = PaidFrame(sensor, size_bytes)


def mute(connection: Connection, sensor: Sensor, owed_s: float) -> None:
    """Read nothing more from it for so long. The longest of several quotas counts."""
    until = trio.current_time() + owed_s
    if isinstance(connection.brake, Muted) and connection.brake.until >= until:
        return
    connection.brake = Muted(sensor, until)


def must_wait(connection: Connection, sensor: Sensor, now: float) -> bool:
    """Whether a request of this connection goes into the line: something is owed, or others came before."""
    turn, sensor.turn_of = sensor.turn_of, None
    return turn is not connection and is_owed(sensor, now)


def is_owed(sensor: Sensor, now: float) -> bool:
    """Whether the request of a connection that comes now would go into the line."""
    return not sensor.meter.is_free(now) or sensor.first_in_line is not None


def end_passage(connection: Connection, sensor: Sensor) -> None:
    """Its request, if it was on the way, is at its handler, and what it has taken so far is counted."""
    if connection in sensor.passing:
        del sensor.passing[connection]
        for first in sensor.passing:
            first.wake()
            break


def wake_next(sensor: Sensor) -> None:
    """Have who is first in line look whether it is its turn; where nobody is, those who wait for that."""
    if sensor.first_in_line is not None:
        sensor.first_in_line.wake()
        return
    for connection in sensor.unreceived:
        connection.wake()


def let_go(sensor: Sensor) -> None:
    """Its quota is another one now, or none: nothing is owed any more."""
    sensor.meter.set_bound(sensor.meter.bound)
    sensor.changes += 1
    ask_again(sensor)


def ask_again(sensor: Sensor) -> None:
    """Another table of quotas counts: who waits for this sensor looks whether it still does."""
    for connection in (*sensor.muted, *sensor.ahead, *sensor.line, *sensor.passing, *sensor.unreceived):
        connection.wake()
