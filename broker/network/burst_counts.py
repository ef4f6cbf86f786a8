"""Counts the requests of a burst when it has ended: those that left at once together, the others one by one, later."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from strandline.broker.network.connection import Connection
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_counts import FETCH, NOTED_AT_ONCE, RequestTimes
from strandline.broker.network.response_slot import ResponseSlot
from strandline.protocol.messages import Request


def count_burst(
    connection: Connection, requests: Sequence[RequestInHand[Request]], taken_at: float, begun_at: float
) -> None:
    """The handlers of all of these, of which there are some, are done, and what they answered was flushed.

    begun_at: monotonic seconds; NOT_YET: as soon as they were taken."""
    first, count, counts = requests[0], len(requests), connection.counts
    header = first.header
    key, size_bytes = header.api_key, header.size_bytes
    if count > 1:
        size_bytes = 0
        for request in requests:
            header = request.header
            if header.api_key != key:
                for group in _by_api(requests):
                    count_burst(connection, group, taken_at, begun_at)
                return
            size_bytes += header.size_bytes
    if connection.all_sent_at >= taken_at and begun_at < 0:
        row_number = key if key != FETCH else counts.row_number(key, first)
        noted = counts.at_once[row_number, count]
        noted += (size_bytes, taken_at, connection.left_at, connection.all_sent_at)
        if len(noted) >= NOTED_AT_ONCE:
            counts.settle()
        return
    row = counts.row(key, first)
    times = row.begin(count, size_bytes, taken_at)
    if connection.closed:
        times.counts.failed -= sum(request.slot.has_error for request in requests)
        return
    times.begun_at = begun_at
    if connection.in_flight:
        count -= _stay(connection, requests, times)
    if connection.has_unsent:
        count -= _leave_with_errors(connection, requests, times)
    if count:
        connection.count_answered(times, count)


def _stay(connection: Connection, requests: Sequence[RequestInHand[Request]], times: RequestTimes) -> int:
    """Have those counted later whose answers have not left; returns how many they are."""
    waiting: set[int] | None = None
    staying: list[ResponseSlot] = []
    for request in requests:
        slot = request.slot
        if slot.head is not None:  # it has left, or waits for the answers to earlier requests
            waiting = connection.waiting() if waiting is None else waiting
            if id(slot) not in waiting:
                continue
        staying.append(slot)
    if staying:
        later = times.later(trio.current_time())
        for slot in staying:
            slot.times = later
            if slot.has_error:
                slot.times = later.failed()
                times.counts.failed -= 1
            if slot.head is not None:
                slot.answered_at = later.handled_at
    return len(staying)


def _leave_with_errors(connection: Connection, requests: Sequence[RequestInHand[Request]], times: RequestTimes) -> int:
    """Have those counted by themselves that left with an error, for a peer that may never take it; returns how many."""
    count = sum(request.slot.has_error and request.slot.times is None for request in requests)
    if count:
        times.counts.failed -= count
        connection.count_answered(times.failed(), count)
    return count


def _by_api(requests: Sequence[RequestInHand[Request]]) -> list[list[RequestInHand[Request]]]:
    groups: dict[int, list[RequestInHand[Request]]] = {}
    for request in requests:
        groups.setdefault(request.header.api_key, []).append(request)
    return list(groups.values())
