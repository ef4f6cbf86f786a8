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

The requests of a burst are counted together, where they have one API: what is answered at once costs three looks at
the clock, however many it is. Only those that stay behind carry `RequestTimes` with them, until their answer has left.
Buckets are a quarter of an octave wide: their number is the length in bits of the fourth power of the microseconds,
which costs a third of what looking a limit up would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, get_args, get_type_hints

import msgspec

from strandline.protocol.api import Api, ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import FetchRequest, Message, Request
from strandline.runtime.histogram import Histogram

STAGES = ("queue", "local", "remote", "throttle", "response_queue", "send", "total")
NUM_BUCKETS = 256
"""Enough for three hundred thousand years, so that no clock ends a broker."""
FETCH = int(ApiKey.FETCH)
UNKNOWN_CODE = "UNKNOWN"
NOT_YET = -1.0
COUNTED_TOGETHER = 256
"""Bursts: a fraction of a millisecond of the event loop."""


class Buckets:
    """How often something took how long, or was how large; see the module. `total` is exact."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * NUM_BUCKETS
        self.total = 0.0

    def add(self, value: float, count: int) -> None:
        """value: of times in microseconds."""
        if value < 0:  # a clock that went back, wherever it was read
            value = 0.0
        self.total += value * count
        square = value * value
        self.counts[int(square * square).bit_length()] += count

    def add_all(self, other: Buckets) -> None:
        self.total += other.total
        self.counts = [mine + others for mine, others in zip(self.counts, other.counts, strict=True)]


class RequestCounts:
    """Of one API. A stage that took no time is not written down: see `histogram`."""

    __slots__ = ("_at_once", "answered", "errors", "failed", "requests", "sizes", *STAGES)

    def __init__(self) -> None:
        self.requests = 0
        self.answered = 0
        """Those whose answer is with the kernel, and those without an answer that are handled."""
        self.failed = 0
        """Those of them in whose answer an error code stood; of a burst that goes on, such answers already."""
        self.errors: dict[int, int] = {}
        """Error code → how often it stood in an answer."""
        self.sizes = Buckets()
        """In bytes."""
        self.queue = Buckets()
        self.local = Buckets()
        self.remote = Buckets()
        self.throttle = Buckets()
        self.response_queue = Buckets()
        self.send = Buckets()
        self.total = Buckets()
        self._at_once: list[tuple[int, int, float, float, float]] = []

    def note_at_once(self, burst: tuple[int, int, float, float, float]) -> None:
        """How many requests were answered together, their bytes, and when they were taken, their answers left, and the
        kernel had it all. Bursts are counted together, some time later: for many in a row the processor has at hand
        what that takes."""
        self._at_once.append(burst)
        if len(self._at_once) >= COUNTED_TOGETHER:
            self.settle()

    def settle(self) -> None:
        """Count what was noted; before somebody looks."""
        at_once, self._at_once = self._at_once, []
        for count, size_bytes, taken_at, left_at, sent_at in at_once:
            self.requests += count
            self.answered += count
            self.sizes.add(size_bytes / count, count)
            self.local.add((left_at - taken_at) * 1e6, count)
            self.send.add((sent_at - left_at) * 1e6, count)
            self.total.add((sent_at - taken_at) * 1e6, count)

    def begin(self, count: int, size_bytes: int, taken_at: float) -> RequestTimes:
        """Count requests that came together, size_bytes in all, as if they were equally large."""
        self.requests += count
        self.sizes.add(size_bytes / count, count)
        return RequestTimes(self, taken_at)

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

    def histogram(self, stage: str) -> Histogram:
        """Of a stage's times so far, or of `sizes` (in bytes instead of microseconds)."""
        buckets: Buckets = getattr(self, stage)
        made = histogram_of(buckets.counts)
        passed_by = (self.requests if stage == "sizes" else self.answered) - made.count
        if passed_by > 0:
            made.record(0, passed_by)
        made.total_us = int(buckets.total)
        return made


def histogram_of(counts: Sequence[int]) -> Histogram:
    """With each value in the middle of its bucket."""
    made = Histogram()
    for bucket, count in enumerate(counts):
        if count:
            made.record(_middle(bucket), count)
    return made


class RequestTimes(msgspec.Struct, gc=False):
    """Of requests of one API that were taken together: monotonic seconds, `NOT_YET` where it did not come to that.

    begun_at: NOT_YET where they were handled in their burst. handled_at: NOT_YET where they were answered there."""

    counts: RequestCounts
    taken_at: float
    begun_at: float = NOT_YET
    handled_at: float = NOT_YET

    def took(self, count: int, answered_at: float, left_at: float, sent_at: float) -> None:
        """The answers to so many of them took the same way, and are with the kernel."""
        counts, taken_at, handled_at = self.counts, self.taken_at, self.handled_at
        counts.answered += count
        begun_at = taken_at
        if self.begun_at >= 0:
            begun_at = self.begun_at
            counts.queue.add((begun_at - taken_at) * 1e6, count)
        if handled_at >= 0:
            counts.remote.add((answered_at - handled_at) * 1e6, count)
            counts.response_queue.add((left_at - answered_at) * 1e6, count)
        else:
            handled_at = left_at
        counts.local.add((handled_at - begun_at) * 1e6, count)
        counts.send.add((sent_at - left_at) * 1e6, count)
        counts.total.add((sent_at - taken_at) * 1e6, count)

    def failed(self) -> FailedTimes:
        """Of such a request, in whose answer an error stands."""
        return FailedTimes(self.counts, self.taken_at, self.begun_at, self.handled_at)


class FailedTimes(RequestTimes, gc=False):
    """Of requests whose answers tell of errors: they are `failed` once they are `answered`, which they never are where
    their connection closes before."""

    def took(self, count: int, answered_at: float, left_at: float, sent_at: float) -> None:
        self.counts.failed += count
        RequestTimes.took(self, count, answered_at, left_at, sent_at)


class CountsByApi:
    """A row for each API that is served; fetches of followers have one of their own."""

    def __init__(self, apis: Iterable[Api]) -> None:
        self.rows = {int(api.key): RequestCounts() for api in apis}
        self.of_followers = RequestCounts()
        self.received_bytes = 0
        """From the peers of all connections, frames that were never finished included."""
        self.sent_bytes = 0

    def row(self, api_key: int, message: Request) -> RequestCounts:
        if api_key == FETCH and isinstance(message, FetchRequest) and message.replica_id >= 0:
            return self.of_followers
        return self.rows[api_key]

    def of_refusal(self, api_key: int, size_bytes: int, answer: Message) -> None:
        """Count one that is refused before it has a handler."""
        counts = self.rows[api_key]
        counts.requests += 1
        counts.sizes.add(size_bytes, 1)
        counts.note_errors(answer)

    def named(self) -> Iterator[tuple[str, RequestCounts]]:
        """By Kafka's names, as they are now: Fetch by who asks, and both together."""
        for counts in (*self.rows.values(), self.of_followers):
            counts.settle()
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


def _middle(bucket: int) -> int:
    """A value of that bucket, near its middle."""
    return round(2 ** ((bucket - 0.5) / 4)) if bucket else 0


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
