"""What is counted of requests: plain integers for each API, on the hot path; read when somebody looks.

    taken ──queue──> begun ──local──> handled ──remote──> answered ──response queue──> left ──send──> sent

| stage | Kafka's name | from, to |
|---|---|---|
| queue | RequestQueueTimeMs | taken from its connection, until a handler begins (0 for what is handled in its burst) |
| local | LocalTimeMs | until the handler is done, the end of its burst included |
| remote | RemoteTimeMs | until the answer is there: waiting for followers, data, workers |
| throttle | ThrottleTimeMs | held in line by a quota before it begins, or not read after it; no part of the total |
| response_queue | ResponseQueueTimeMs | until the answers to earlier requests of the connection are there, too |
| send | ResponseSendTimeMs | until the kernel has it all: long where the peer reads slowly |

The requests of a burst are counted together, where they have one API. How many there are is exact. So are the times of
those that take five milliseconds or more, or wait for a handler. Of quicker bursts one in five milliseconds is timed,
and stands for all since the one before, apart for those that are answered at once and those that have to wait for it:
two hundred in a second, where percentiles of Kafka's are of a thousand in five minutes. It is the first one that is
*taken* when the five are over: how long it takes has no say in that, or long ones would be met more often. Of several
requests one has its size noted, which stands for all. Those that stay behind have one `RequestTimes` for each burst,
until their answers have left (`CountedLater`).

Buckets end at round numbers, those that are told of among them (`at_most`), a fifth above each other at most. Where
each value belongs is found for many at once, when they are sorted: that costs a tenth of looking each one up.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import accumulate
from operator import sub
from typing import Any, Protocol, get_args, get_type_hints

import msgspec

from strandline.broker.network.request_context import RequestContext
from strandline.protocol.api import Api, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import FetchRequest, Message, Request
from strandline.runtime.histogram import Histogram

STAGES = ("queue", "local", "remote", "throttle", "response_queue", "send", "total")
FETCH = int(ApiKey.FETCH)
UNKNOWN_CODE = "UNKNOWN"
NOT_YET = -1.0
EACH = -1
COUNTED_TOGETHER = 256
"""Bursts that went the same way, or were timed: a fraction of a millisecond of the event loop."""
MAX_WAYS = 64
"""Of one API, of which something is noted: a burst may have any size."""
NUMBERS_OF_WAY = 7
QUICK_S = 0.005
"""Of bursts that take less at most one in so long is timed."""
Way = tuple[int, bool, bool]
"""How many requests took it together, whether they waited for a handler, and after it."""
_ROUND = (100, 120, 140, 170, 200, 225, 250, 300, 350, 400, 450, 500, 600, 700, 800, 900)
"""Hundredths; and so on, with more zeros."""
LIMITS_S = [number * 10**zeros / 10**8 for zeros in range(12) for number in _ROUND]
"""The greatest time in each bucket, from a microsecond to ten days; there is one bucket for all beyond."""
LIMITS_BYTES = [number * 10**zeros / 10**2 for zeros in range(9) for number in _ROUND]
"""Likewise of sizes, to 900 MB."""


class Buckets:
    """How often something took how long, or was how large; see the module. `total`: of all that was
    added, no matter how coarse the buckets are."""

    __slots__ = ("counts", "limits", "total")

    def __init__(self, limits: Sequence[float] = LIMITS_S) -> None:
        self.limits = limits
        self.counts = [0] * (len(limits) + 1)
        self.total = 0.0

    def add(self, value: float, count: int) -> None:
        """value: of times in seconds."""
        if value < 0:  # a clock that went back, wherever it was read
            value = 0.0
        self.total += value * count
        self.counts[bisect_left(self.limits, value)] += count

    def add_each(self, values: Iterable[float], count: int) -> None:
        """Each of many values, of which there is one, so often."""
        ordered = sorted(values)
        if ordered[0] < 0:
            ordered = [max(value, 0.0) for value in ordered]
        self.total += sum(ordered) * count
        begin = bucket = 0
        while begin < len(ordered):
            bucket = bisect_left(self.limits, ordered[begin], bucket)
            end = len(ordered)
            if bucket < len(self.limits):
                end = bisect_right(ordered, self.limits[bucket], begin)
            self.counts[bucket] += (end - begin) * count
            begin = end

    def at_most(self, limits: Sequence[float]) -> list[int]:
        """How many did not exceed each of these, which are limits of buckets, and are in order."""
        below = list(accumulate(self.counts))
        return [below[self.limits.index(limit)] for limit in limits]

    def add_all(self, other: Buckets) -> None:
        self.total += other.total
        self.counts = [mine + others for mine, others in zip(self.counts, other.counts, strict=True)]


class RequestCounts:
    """Of one API. A stage that took no time is not written down: see `passed_by`."""

    __slots__ = (
        "_last_timed",
        "_timed",
        "answered",
        "errors",
        "failed",
        "last_way",
        "requests",
        "sizes",
        "timed_from",
        "untimed",
        "untimed_ways",
        "ways",
        "ways_timed_from",
        *STAGES,
    )

    def __init__(self) -> None:
        self.requests = 0
        self.answered = 0
        """Those whose answer is with the kernel, and those without an answer that are handled."""
        self.failed = 0
        """Those of them in whose answer an error code stood."""
        self.errors: dict[int, int] = {}
        """Error code → how often it stood in an answer."""
        self.sizes = Buckets(LIMITS_BYTES)
        """In bytes."""
        self.queue = Buckets()
        self.local = Buckets()
        self.remote = Buckets()
        self.throttle = Buckets()
        self.response_queue = Buckets()
        self.send = Buckets()
        self.total = Buckets()
        self.untimed = 0
        """Requests that were answered in their burst, since one such burst was last timed."""
        self.timed_from = NOT_YET
        """Monotonic seconds: of those that are taken then, the next quick one is timed."""
        self._last_timed = (0, NOT_YET, NOT_YET, NOT_YET)
        """Of a quick burst: bytes of one request, and when they were taken, left, and were with the kernel."""
        self._timed: list[tuple[int, int, float, float, float]] = []
        """How many requests a timed burst stands for, and of it the same as of the last one."""
        self.ways: defaultdict[Way, list[float]] = defaultdict(list)
        """For each way what is noted of those that went it: bytes of one request, and when each stage ended. Numbers,
        one behind the other, so that the garbage collector sees nothing of them; they are counted together, some time
        later: for many in a row that costs little."""
        self.untimed_ways = 0
        """Requests that had to wait, were answered quickly all the same, and that no timed ones stand for yet."""
        self.ways_timed_from = NOT_YET
        """Monotonic seconds: of those that are taken then and have to wait, the next ones are timed."""
        self.last_way: tuple[Way, Sequence[float]] | None = None
        """What such timed ones were, and what was noted of them; before there are any, some other quick one."""

    def time_burst(self, count: int, size_bytes: int, taken_at: float, left_at: float, sent_at: float) -> None:
        """So many requests were answered in their burst, at its end: the latest of the `untimed`, and `timed_from` is
        over. See the module. size_bytes: of one of them."""
        stands_for = count
        if sent_at - taken_at >= QUICK_S:
            self.untimed -= count
        elif taken_at >= self.timed_from:
            stands_for, self.untimed = self.untimed, 0
            self.timed_from = sent_at + QUICK_S
            self._last_timed = (size_bytes, taken_at, left_at, sent_at)
        else:
            return
        self._timed.append((stands_for, size_bytes, taken_at, left_at, sent_at))
        if len(self._timed) >= COUNTED_TOGETHER:
            self._settle_timed()

    def claim_timing(self, taken_at: float) -> bool:
        """For a burst some of which wait: returns whether those are timed. No others are for five milliseconds then."""
        if taken_at < self.ways_timed_from:
            return False
        self.ways_timed_from = taken_at + QUICK_S
        return True

    def settle(self) -> Iterator[None]:
        """Count all that is done, before somebody looks; step by step."""
        if self.untimed:
            self._timed.append((self.untimed, *self._last_timed))
            self.untimed = 0
        if self._timed:
            self._settle_timed()
            yield
        if self.untimed_ways and self.last_way is not None:
            last, numbers = self.last_way
            self.note_way((self.untimed_ways, last[1], last[2]), numbers)
            self.untimed_ways = 0
        for way in list(self.ways):
            self.settle_way(way)
            yield

    def _settle_timed(self) -> None:
        timed, self._timed = self._timed, []
        for count, size_bytes, taken_at, left_at, sent_at in timed:
            self.requests += count
            self.answered += count
            self.sizes.add(size_bytes, count)
            self.local.add(left_at - taken_at, count)
            self.send.add(sent_at - left_at, count)
            self.total.add(sent_at - taken_at, count)

    def note_way(self, way: Way, numbers: Sequence[float]) -> None:
        """See `ways`."""
        noted = self.ways[way]
        noted += numbers
        if len(noted) >= NUMBERS_OF_WAY * COUNTED_TOGETHER:
            self.settle_way(way)
        elif len(self.ways) > MAX_WAYS:
            self.settle_way(next(iter(self.ways)))

    def note_share(self, way: Way, numbers: Sequence[float], count: int, of: int) -> None:
        """Of timed ones that were quick, the same: `count` of the `of` that are left of their burst stand for as large
        a part of the untimed ones."""
        stands_for = self.untimed_ways * count // of
        self.untimed_ways -= stands_for
        self.last_way = way, numbers
        if stands_for:
            self.note_way((stands_for, way[1], way[2]), numbers)

    def settle_way(self, way: Way) -> None:
        """Count what is noted of these, if anything is."""
        noted = self.ways.pop(way, None)
        if not noted:
            return
        count, has_queued, has_waited = way
        columns = [noted[column::NUMBERS_OF_WAY] for column in range(NUMBERS_OF_WAY)]
        sizes_bytes, taken_at, begun_at, handled_at, answered_at, left_at, sent_at = columns
        self.answered += count * len(taken_at)
        self.sizes.add_each(sizes_bytes, count)
        if has_queued:
            self.queue.add_each(map(sub, begun_at, taken_at), count)
        else:
            begun_at = taken_at
        if has_waited:
            self.remote.add_each(map(sub, answered_at, handled_at), count)
            self.response_queue.add_each(map(sub, left_at, answered_at), count)
        else:
            handled_at = left_at
        self.local.add_each(map(sub, handled_at, begun_at), count)
        self.send.add_each(map(sub, sent_at, left_at), count)
        self.total.add_each(map(sub, sent_at, taken_at), count)

    def note_errors(self, answer: Message) -> bool:
        """Whatever error codes stand in it; returns whether there is one."""
        found = [code for codes in _codes_of(type(answer)) for code in codes(answer) if code]
        for code in found:
            self.errors[code] = self.errors.get(code, 0) + 1
        return bool(found)

    @property
    def without_error(self) -> int:
        """How many were answered without any error. It falls for a moment within a burst."""
        return max(self.answered - self.failed, 0)

    def with_those_of(self, other: RequestCounts) -> RequestCounts:
        """Both together, as they are now."""
        both = RequestCounts()
        for each in (self, other):
            both.requests += each.requests
            both.answered += each.answered
            both.failed += each.failed
            for code, count in each.errors.items():
                both.errors[code] = both.errors.get(code, 0) + count
            for name in ("sizes", *STAGES):
                getattr(both, name).add_all(getattr(each, name))
        return both

    def passed_by(self, stage: str) -> int:
        """How many requests took no time of a stage so far, beside those that its buckets have."""
        buckets: Buckets = getattr(self, stage)
        return max(self.answered - sum(buckets.counts), 0)


def histogram_of(counts: Sequence[int], limits: Sequence[float], unit: float) -> Histogram:
    """With each value in the middle of its bucket. unit: what is recorded is so much smaller (microseconds)."""
    made = Histogram()
    for bucket, count in enumerate(counts):
        if count:
            made.record(round(_middle(bucket, limits) * unit), count)
    return made


class RequestTimes(msgspec.Struct, gc=False):
    """Of requests of one API that were taken together: monotonic seconds, `NOT_YET` where it did not come to that.

    size_bytes: of one of them, which stands for all. begun_at: NOT_YET where they were handled in their burst.
    handled_at: NOT_YET where they were answered there. timed: how many of them are still to stand for others if they
    are quick; 0: others stand for them then; `EACH`: each stands for itself. first, end: which places of their
    connection's order they have, where they leave later (`CountedLater`)."""

    counts: RequestCounts
    size_bytes: int
    taken_at: float
    begun_at: float = NOT_YET
    handled_at: float = NOT_YET
    timed: int = EACH
    first: int = 0
    end: int = 0

    def took(self, count: int, answered_at: float, left_at: float, sent_at: float) -> None:
        """The answers to so many of them took the same way, and are with the kernel."""
        counts, of = self.counts, self.timed
        is_quick = of >= 0 and sent_at - self.taken_at < QUICK_S
        if is_quick:
            counts.untimed_ways += count
            if not of and counts.last_way is not None:
                return
        way = count, self.begun_at >= 0, self.handled_at >= 0
        numbers = (self.size_bytes, self.taken_at, self.begun_at, self.handled_at, answered_at, left_at, sent_at)
        if not is_quick:
            counts.note_way(way, numbers)
        elif of:
            self.timed = of - count
            counts.note_share(way, numbers, count, of)
        else:
            counts.last_way = way, numbers

    def failed(self) -> FailedTimes:
        """Of such a request, in whose answer an error stands."""
        return FailedTimes(self.counts, self.size_bytes, self.taken_at, self.begun_at, self.handled_at)


class FailedTimes(RequestTimes, gc=False):
    """Of requests whose answers tell of errors: they are `failed` once they are `answered`, which they never are where
    their connection closes before."""

    def took(self, count: int, answered_at: float, left_at: float, sent_at: float) -> None:
        self.counts.failed += count
        RequestTimes.took(self, count, answered_at, left_at, sent_at)


class Asked(Protocol):
    """What tells of a request by whom it came (`RequestInHand`)."""

    @property
    def message(self) -> Request: ...
    @property
    def context(self) -> RequestContext: ...


class CountsByApi:
    """A row for each API that is served; fetches of followers have one of their own."""

    def __init__(self, apis: Iterable[Api]) -> None:
        self.rows = {int(api.key): RequestCounts() for api in apis}
        self.of_followers = RequestCounts()
        self.received_bytes = 0
        """From the peers of all connections, frames that were never finished included."""
        self.sent_bytes = 0

    def settle(self) -> Iterator[None]:
        """Count what was noted, before somebody looks; step by step."""
        for counts in (*self.rows.values(), self.of_followers):
            yield from counts.settle()

    def row(self, api_key: int, request: Asked) -> RequestCounts:
        """api_key: of the request. Who names a follower's id and has not shown a broker's key is a client."""
        if api_key == FETCH and request.context.is_inter_broker:
            message = request.message
            if isinstance(message, FetchRequest) and message.replica_id >= 0:
                return self.of_followers
        return self.rows[api_key]

    def of_refusal(self, api_key: int, size_bytes: int, answer: Message) -> None:
        """Count one that is refused before it has a handler."""
        counts = self.rows[api_key]
        counts.requests += 1
        counts.sizes.add(size_bytes, 1)
        counts.note_errors(answer)

    def named(self) -> Iterator[tuple[str, RequestCounts]]:
        """By Kafka's names, as they were settled last: Fetch by who asks, and both together."""
        for number, counts in self.rows.items():
            if number == FETCH:
                yield "FetchConsumer", counts
                yield "FetchFollower", self.of_followers
                yield "Fetch", counts.with_those_of(self.of_followers)
            else:
                yield kafka_name(ApiKey(number)), counts


def kafka_name(key: ApiKey) -> str:
    """LEADER_AND_ISR → LeaderAndIsr."""
    return "".join(part.capitalize() for part in key.name.split("_"))


def name_of_code(code: int) -> str:
    """As Kafka spells it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return UNKNOWN_CODE


def _middle(bucket: int, limits: Sequence[float]) -> float:
    """A value of that bucket, near its middle; the first one is as good as nothing, and the last one has no end."""
    if bucket == 0 or bucket == len(limits):
        return limits[-1] if bucket else 0
    return math.sqrt(limits[bucket - 1] * limits[bucket])


_Codes = Callable[[Any], Iterable[int]]
"""The error codes that stand in a part of a message."""


@cache
def _codes_of(kind: type) -> tuple[_Codes, ...]:
    """How to find the error codes in a message of this kind: its own, and those of its parts."""
    found: list[_Codes] = []
    for name, hint in get_type_hints(kind).items():
        if name == "error_code":
            found.append(lambda message: (message.error_code,))
        for part in _parts(hint):
            if inner := _codes_of(part):
                found.append(partial(_codes_within, name, inner))
    return tuple(found)


def _parts(hint: object) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for argument in get_args(hint):
        yield from _parts(argument)


def _codes_within(name: str, inner: tuple[_Codes, ...], message: object) -> Iterator[int]:
    value = getattr(message, name)
    for each in value if isinstance(value, Sequence) else () if value is None else (value,):
        for codes in inner:
            yield from codes(each)
