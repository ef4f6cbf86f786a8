"""What quotas do to requests: each is counted under its sensor, and who exceeds one is told and held (`holding`).

| quota | counts | when |
|---|---|---|
| producer_byte_rate | the bytes of Produce requests | as they come |
| consumer_byte_rate | the record batches in answers to Fetch | as they leave; left out while something is owed |
| request_percentage | time of the event loop in handlers, of any API, and at the end of bursts | as these return |
| controller_mutation_rate | partitions created and deleted | `mutations` |

What is counted while a request is under way, and what its answer tells, goes by the quota that counts by then: where it
was removed, nothing is charged, told or held.

Of time only what the loop is busy with is counted: waiting costs nothing. The end of a burst, in which its appends are
written and its answers sent, is paid by the first request of it that is counted at all. A burst is of one connection,
so that it is one client's nearly always, and a share by number would let who adds cheap requests pay less.

This gate stands before the handlers only while there is such a quota (`RequestChannel.switch_gate`). Exempt is what
brokers ask of each other, who show the key of whom they ask (`membership/broker_key`).
The first ApiVersions of a connection is exempt for everybody: every connection begins with it, those of brokers too,
and who it is is not known before. Whoever only says that it is a replica counts as the client that it is, and is
refused (`FetchHandler`).

Sources: KafkaApis.handleProduceRequest, handleFetchRequest of Kafka 3.9; KIP-13, KIP-124, KIP-219.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

import msgspec
import trio

from strandline.broker.network.connection import Connection
from strandline.broker.network.dialects import Regions
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_channel import EndOfBurst, Handler, Held
from strandline.broker.quotas.entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from strandline.broker.quotas.holding import (
    InLine,
    InLineToPay,
    PaidFrame,
    Passage,
    TimeOwed,
    end_passage,
    is_owed,
    must_wait,
    mute,
    pay,
)
from strandline.broker.quotas.sensors import Sensor, Sensors
from strandline.broker.steps import InSteps
from strandline.protocol.api import Api, ApiKey, Scheduling
from strandline.protocol.messages import (
    FetchRequest,
    FetchResponse,
    Message,
    ProduceRequest,
    Request,
)
from strandline.runtime.disk import FileRegion

MAX_THROTTLE_MS = 2**31 - 1


class QuotaGate:
    """See the module. clock: of the time that handlers take, in seconds."""

    def __init__(self, sensors: dict[str, Sensors], *, clock: Callable[[], float] = trio.current_time) -> None:
        """sensors: by the key of their quota."""
        self._produced = sensors[PRODUCER_BYTE_RATE]
        self._consumed = sensors[CONSUMER_BYTE_RATE]
        self._spent = sensors[REQUEST_PERCENTAGE]
        self._clock = clock
        self._payer: _Watch | None = None
        """Of the end of the burst that is under way."""

    def __call__(self, api: Api, handler: Handler) -> Handler:
        if api.inter_broker_only:
            return handler
        inner = handler
        if api.key is ApiKey.PRODUCE and self._produced.bounds:
            inner = partial(self._produce, handler)
        elif api.key is ApiKey.FETCH and self._consumed.bounds:
            inner = partial(self._fetch, handler)
        if not self._spent.bounds:
            return inner
        if api.key is ApiKey.API_VERSIONS:
            return partial(self._greet, inner)
        return partial(self._timed if api.scheduling is Scheduling.INLINE else self._timed_queued, inner)

    def before_large(self, connection: Connection, api: Api, size_bytes: int) -> InLineToPay | None:
        """What a connection waits for before a large frame of that API is received: it holds no memory meanwhile that
        others wait for. It is charged at its turn, here or by what is returned."""
        if api.key is not ApiKey.PRODUCE or connection.context.is_inter_broker:
            return None
        now = trio.current_time()
        sensor = self._produced.of(connection.context.principal, connection.context.client_id, now)
        if sensor is None:
            return None
        if must_wait(connection, sensor, now):
            return InLineToPay(sensor, size_bytes)
        pay(connection, sensor, size_bytes)
        return None

    def debt_of(self, connection: Connection, api: Api) -> TimeOwed | None:
        """What would hold a large frame of that API, were it received now, for the time that its client has taken: no
        API's frame is charged before it is handled."""
        if api.inter_broker_only or connection.context.is_inter_broker:
            return None
        if api.key is ApiKey.API_VERSIONS and not connection.has_greeted:
            return None
        now = trio.current_time()
        sensor = self._spent.of(connection.context.principal, connection.context.client_id, now)
        return None if sensor is None or not is_owed(sensor, now) else TimeOwed(sensor)

    def passage_of(self, request: RequestInHand[Request]) -> Passage | None:
        """How a request that queues comes to its handler."""

        find = self._finder(self._spent, request)
        return None if find() is None else Passage(request.connection, find)

    # --- bytes -------------------------------------------------------------------------------------------------------

    def _produce(self, handler: Handler, request: RequestInHand[ProduceRequest]) -> Any:
        now = trio.current_time()
        sensor = self._sensor(self._produced, request, now)
        if sensor is None:
            return handler(request)
        if (paid := request.connection.before_frame) is None and must_wait(request.connection, sensor, now):
            return Held(
                InLine(
                    sensor,
                    request.header.size_bytes,
                    has_answer=request.message.has_answer,
                    find_passed=self._finder(self._spent, request),
                )
            )
        # What was received by a quota that counts no more is charged to the one that does.
        is_paid = isinstance(paid, PaidFrame) and paid.counts_for(sensor)
        size_bytes = 0 if is_paid else request.header.size_bytes
        if owed_s := sensor.take(size_bytes, now) if size_bytes else sensor.held_s(now):
            mute(request.connection, sensor, owed_s)
            request.note_throttled(owed_s)
            request.on_answer(partial(_tell, self._finder(self._produced, request)))
        return handler(request)

    def _fetch(self, handler: Handler, request: RequestInHand[FetchRequest]) -> Any:
        message, now = request.message, trio.current_time()
        sensor = self._sensor(self._consumed, request, now)
        if sensor is None:
            return handler(request)
        if must_wait(request.connection, sensor, now):
            return Held(InLine(sensor, find_passed=self._finder(self._spent, request)))
        # Else one answer could take what the quota gives in a minute.
        most_bytes = max(int(sensor.meter.bound * self._consumed.windows.size_s), 1)
        if most_bytes < message.max_bytes:
            request.message = msgspec.structs.replace(
                message, max_bytes=most_bytes, min_bytes=min(message.min_bytes, most_bytes)
            )
        request.on_answer(partial(self._fetched, request))
        return handler(request)

    def _fetched(
        self, request: RequestInHand[FetchRequest], message: Message | None, regions: Regions
    ) -> tuple[Message, Regions] | None:
        size_bytes = sum(map(_size, regions))
        if not size_bytes or not isinstance(message, FetchResponse):
            return None
        now = trio.current_time()
        sensor = self._sensor(self._consumed, request, now)
        if sensor is None:
            return None
        owed_s = sensor.held_s(now)
        if owed_s:  # others took it while this one waited: the batches stay here, and are asked for again
            regions = ()
        else:
            owed_s = sensor.take(size_bytes, now)
        if not owed_s:
            return None
        mute(request.connection, sensor, owed_s)
        request.note_throttled(owed_s)
        return throttled(message, owed_s), regions

    # --- time --------------------------------------------------------------------------------------------------------

    def _greet(self, handler: Handler, request: RequestInHand[Request]) -> Any:
        if request.connection.has_greeted:
            return self._timed(handler, request)
        request.connection.has_greeted = True
        return handler(request)

    def _timed(self, handler: Handler, request: RequestInHand[Request]) -> Any:
        """100 percent are the whole event loop: what is taken is hundredths of it."""
        now = trio.current_time()
        sensor = self._sensor(self._spent, request, now)
        if sensor is None:
            return handler(request)
        if must_wait(request.connection, sensor, now):
            return Held(InLine(sensor, has_answer=request.message.has_answer))
        hooks, payer = request.hooks, self._payer
        watch = _Watch(self._clock, self._finder(self._spent, request), request)
        self._payer = payer or watch
        try:
            remainder = watch.timed(partial(handler, request))
        finally:
            watch.charge()
        if isinstance(remainder, Held):
            request.hooks, self._payer = hooks, payer
        if remainder is None or isinstance(remainder, Held):
            return remainder
        if isinstance(remainder, InSteps):
            return _TimedSteps(watch, remainder)
        return partial(_await_timed, watch, remainder)

    def end_burst(self, end: EndOfBurst) -> None:
        """Call the end of a burst: a further step of the request that pays for it. An answer that is made in it tells
        of what it has taken by then."""
        payer, self._payer = self._payer, None
        if payer is None:
            end()
            return
        try:
            payer.timed(end)
        finally:
            payer.charge()

    async def _timed_queued(self, handler: Handler, request: RequestInHand[Request]) -> Any:
        sensor = self._sensor(self._spent, request, trio.current_time())
        if sensor is None:
            return await handler(request)
        begun = partial(end_passage, request.connection, sensor)
        watch = _Watch(self._clock, self._finder(self._spent, request), request, begun)
        return await _await_timed(watch, partial(handler, request))

    # --- whose -------------------------------------------------------------------------------------------------------

    def _sensor(self, sensors: Sensors, request: RequestInHand[Any], now: float) -> Sensor | None:
        context = request.context
        if context.is_inter_broker:
            return None
        return sensors.of(context.principal, context.client_id, now)

    def _finder(self, sensors: Sensors, request: RequestInHand[Any]) -> Callable[[], Sensor | None]:
        """For a request that is under way while its quota may be altered or removed: what counts when that is asked."""
        return lambda: self._sensor(sensors, request, trio.current_time())


class _Watch:
    """Counts what a request takes of the event loop; the answer, on its way out, tells if that is too much."""

    def __init__(
        self,
        clock: Callable[[], float],
        find: Callable[[], Sensor | None],
        request: RequestInHand[Any],
        begun: Callable[[], None] | None = None,
    ) -> None:
        """find: the sensor that the request is counted under now. begun: called when the request waits for the first
        time, and what it has taken until then is charged."""
        self._clock = clock
        self._begun = begun
        self._find = find
        self._request = request
        self._began: float | None = None
        self._spent_s = 0.0
        self._has_muted = False
        request.on_answer(self._answered)

    def timed(self, step: Callable[[], Any]) -> Any:
        self._began = self._clock()
        try:
            return step()
        finally:
            self._spent_s += self._clock() - self._began
            self._began = None

    def pause(self) -> None:
        """The request begins to wait for something."""
        if self._begun is not None:
            self.charge()
            self._begun()
            self._begun = None

    def charge(self) -> float:
        """Take what was spent since the last charge; returns for how long it is made up for."""
        if self._began is not None:
            now = self._clock()
            self._spent_s += now - self._began
            self._began = now
        spent_s, self._spent_s = self._spent_s, 0.0
        if not spent_s or (sensor := self._find()) is None:
            return 0.0
        owed_s = sensor.take(spent_s * 100, trio.current_time())
        if owed_s:
            self._has_muted = True
            mute(self._request.connection, sensor, owed_s)
        return owed_s

    def _answered(self, message: Message | None, regions: Regions) -> tuple[Message, Regions] | None:
        owed_s = self.charge()
        if not owed_s and self._has_muted:  # it was charged when its handler was done, and is answered now
            owed_s = _held_s(self._find())
        if owed_s:
            self._request.note_throttled(owed_s)
        return (throttled(message, owed_s), regions) if owed_s and message is not None else None


class _Steps:
    """An awaitable whose steps are timed one by one: what it waits for is not."""

    def __init__(self, watch: _Watch, awaited: Awaitable[Any]) -> None:
        self._watch = watch
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._awaited.__await__()
        send: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                asked = self._watch.timed(send)
            except StopIteration as end:
                return end.value
            self._watch.pause()
            try:
                send = partial(steps.send, (yield asked))
            except BaseException as error:
                send = partial(steps.throw, error)


class _TimedSteps(InSteps):
    """Work in steps, which stays that for the channel; the others that run in between are not timed."""

    def __init__(self, watch: _Watch, steps: InSteps) -> None:
        super().__init__(iter(()))
        self._watch = watch
        self._steps = steps

    async def __call__(self) -> None:
        await _await_timed(self._watch, self._steps)


async def _await_timed(watch: _Watch, begin: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await _Steps(watch, begin())
    finally:
        watch.charge()


# --- answers -----------------------------------------------------------------------------------------------------


def _tell(
    find: Callable[[], Sensor | None], message: Message | None, regions: Regions
) -> tuple[Message, Regions] | None:
    return None if message is None else (throttled(message, _held_s(find())), regions)


def _held_s(sensor: Sensor | None) -> float:
    return 0.0 if sensor is None else sensor.held_s(trio.current_time())


def throttled(message: Message, owed_s: float) -> Message:
    """The answer that tells it, in whole milliseconds, rounded up. The longest of several counts."""
    told_ms = getattr(message, "throttle_time_ms", None)
    owed_ms = min(math.ceil(owed_s * 1000), MAX_THROTTLE_MS)
    if told_ms is None or told_ms >= owed_ms:
        return message
    return msgspec.structs.replace(message, throttle_time_ms=owed_ms)


def _size(region: FileRegion | memoryview | bytes | None) -> int:
    if region is None:
        return 0
    return region.length if isinstance(region, FileRegion) else len(region)
