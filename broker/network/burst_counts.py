"""Counts the requests of a burst when it has ended: those that left at once together, the others one by one, later."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from strandline.broker.network.connection import Connection
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_counts import QUICK_S, RequestTimes
from strandline.broker.network.response_slot import ResponseSlot
from strandline.protocol.messages import Request


def count_burst(
    connection: Connection, requests: Sequence[RequestInHand[Request]], taken_at: float, begun_at: float
) -> None:
    """The handlers of all of these, of which there are some, and of one API, are done, and what they answered was
    flushed.

    begun_at: monotonic seconds; NOT_YET: as soon as they were taken."""
    count, first = len(requests), requests[0]
    counts = connection.counts.row(first.header.api_key, first)
    counts.requests += count
    if connection.closed:
        counts.failed -= sum(request.slot.has_error for request in requests)
        return
    size_bytes = any_of(requests, taken_at).header.size_bytes
    if connection.in_flight:
        later = RequestTimes(counts, size_bytes, taken_at, begun_at, trio.current_time(), 0)
        staying = _stay(connection, requests, later)
        if staying and taken_at >= counts.ways_timed_from:
            counts.ways_timed_from = taken_at + QUICK_S
            later.timed = staying
        count -= staying
    if count:
        times = RequestTimes(counts, size_bytes, taken_at, begun_at)
        if connection.has_unsent:
            count -= _leave_with_errors(connection, requests, times)
        if count:
            connection.count_answered(times, count)


def _stay(connection: Connection, requests: Sequence[RequestInHand[Request]], later: RequestTimes) -> int:
    """Have those counted later whose answers have not left; returns how many they are."""
    answered: list[ResponseSlot] = []
    for request in requests:
        slot = request.slot
        if slot.head is None:
            slot.times = later
        else:
            answered.append(slot)
    count = len(requests) - len(answered)
    if answered:  # they have left, or wait for the answers to earlier requests
        waiting = connection.waiting()
        for slot in answered:
            if id(slot) in waiting:
                count += 1
                slot.times, slot.answered_at = later, later.handled_at
                if slot.has_error:
                    slot.times = later.failed()
                    later.counts.failed -= 1
    return count


def _leave_with_errors(connection: Connection, requests: Sequence[RequestInHand[Request]], times: RequestTimes) -> int:
    """Have those counted by themselves that left with an error, for a peer that may never take it; returns how many."""
    count = sum(request.slot.has_error and request.slot.times is None for request in requests)
    if count:
        times.counts.failed -= count
        connection.count_answered(times.failed(), count)
    return count


def by_api(requests: Sequence[RequestInHand[Request]]) -> list[list[RequestInHand[Request]]]:
    groups: dict[int, list[RequestInHand[Request]]] = {}
    for request in requests:
        groups.setdefault(request.header.api_key, []).append(request)
    return list(groups.values())


def any_of(requests: Sequence[RequestInHand[Request]], taken_at: float) -> RequestInHand[Request]:
    """One of them, by chance: by the microsecond in which they were taken."""
    return requests[int(taken_at * 1e6) % len(requests)]
