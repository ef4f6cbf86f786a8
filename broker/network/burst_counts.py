"""Counts the requests of a burst when it has ended: those that left at once together, the others when they leave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from strandline.broker.network.connection import Connection
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_counts import NOT_YET, RequestCounts, RequestTimes
from strandline.protocol.messages import Request

Requests = Sequence[RequestInHand[Request]]


def count_burst(
    connection: Connection, counts: RequestCounts, requests: Requests, taken_at: float, begun_at: float
) -> None:
    """The handlers of all of these, of which there are some, and of one API, are done, and what they answered was
    flushed. counts: of that API.

    begun_at: monotonic seconds; NOT_YET: as soon as they were taken."""
    count, slots, later = len(requests), connection.slots, connection.later
    if (
        not connection.pending_bytes
        and count <= len(slots)
        and slots[-1] is requests[-1].slot
        and slots[-count] is requests[0].slot
    ):
        # None is answered, as nearly always where one is not. `_stay` would do the same at several times the cost: what
        # is touched here was not since the last burst, so that each call and each object count.
        counts.requests += count
        size_bytes = requests[int(taken_at * 1e6) % count].header.size_bytes
        timed = count if taken_at >= counts.ways_timed_from and counts.claim_timing(taken_at) else 0
        end = later.left + len(slots)
        later.staying.append(
            RequestTimes(counts, size_bytes, taken_at, begun_at, connection.now(), timed, end - count, end)
        )
    else:
        _count(connection, counts, requests, taken_at, begun_at)
        connection.has_errors = False


def count_mixed_burst(connection: Connection, requests: Requests, taken_at: float, begun_at: float) -> None:
    """The same of several APIs."""
    groups: defaultdict[int, list[RequestInHand[Request]]] = defaultdict(list)
    for request in requests:
        groups[request.header.api_key].append(request)
    for api_key, group in groups.items():
        _count(connection, connection.counts.row(api_key, group[0]), group, taken_at, begun_at)
    connection.has_errors = False


def _count(connection: Connection, counts: RequestCounts, requests: Requests, taken_at: float, begun_at: float) -> None:
    counts.requests += len(requests)
    if connection.closed:
        return
    times = RequestTimes(counts, size_of_any(requests, taken_at), taken_at, begun_at)
    if connection.slots:
        requests = _stay(connection, requests, times)
    if connection.has_errors:
        failed = sum(request.slot.has_error for request in requests)
        if failed:
            connection.count_answered(times.failed(), failed)
            requests = [request for request in requests if not request.slot.has_error]
    if connection.has_unsent or begun_at >= 0:
        silent = sum(not request.slot.head for request in requests)
        if silent:  # these are done now, whatever answer left last, and when
            now = connection.now()
            times.took(silent, NOT_YET, now, now)
            requests = [request for request in requests if request.slot.head]
    if requests:
        connection.count_answered(times, len(requests))


def _stay(connection: Connection, requests: Requests, times: RequestTimes) -> list[RequestInHand[Request]]:
    """Have those counted later whose answers have not left; returns the others."""
    counts, later = times.counts, connection.later
    places = {id(slot): place for place, slot in enumerate(connection.slots, later.left)}
    now = connection.now()
    staying: list[RequestTimes] = []
    left: list[RequestInHand[Request]] = []
    for request in requests:
        place = places.get(id(request.slot))
        if place is None:
            left.append(request)
            continue
        if not staying or staying[-1].end != place:
            staying.append(replace(times, handled_at=now, timed=0, first=place, end=place))
        staying[-1].end += 1
    if staying and counts.claim_timing(times.taken_at):
        staying[0].timed = staying[0].end - staying[0].first
    for each in staying:
        later.stay(each)
    return left


def size_of_any(requests: Requests, taken_at: float) -> int:
    """In bytes, of one of them, by chance: by the microsecond in which they were taken."""
    return requests[int(taken_at * 1e6) % len(requests)].header.size_bytes
