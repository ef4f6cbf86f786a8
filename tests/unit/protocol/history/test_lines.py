"""Lines of the change logs: what is understood, what is a sign of life only, what is refused."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.history.lines import (
    Event,
    Kind,
    UnreadableLine,
    packed_leadership,
    packed_state,
    read_line,
)
from strandline.runtime.logging import StreamSink, make_logger

TIME = "2026-11-24T10:00:00.123456Z"
TIME_MS = 1_795_514_400_123
STATE = {"topic": "a-1", "topic_id": "id", "partition": 3, "leader": 2, "leader_epoch": 5, "zk_version": 9, "isr": [2]}


def line(event: str, **fields: Any) -> str:
    return json.dumps({"broker_id": 1, "event": event, "timestamp": TIME, **fields})


def test_a_state_is_read_with_everything_that_is_said_of_it() -> None:
    read = read_line(line("partition state changed", **STATE, replicas=[2, 3], controller_epoch=4, why="moved", more=1))
    state = Event(Kind.WRITTEN, TIME_MS, 1, "a-1", "id", 3, 2, 5, 9, (2,), (2, 3), controller_epoch=4, why="moved")
    assert read == (TIME_MS, 1, (state,))


@pytest.mark.parametrize(
    ("event", "kind"), [("isr changed", "changed"), ("became leader", "leads"), ("became follower", "told")]
)
def test_who_says_it_makes_another_event_of_a_state(event: str, kind: str) -> None:
    (read,) = read_line(line(event, **STATE, min_isr=2, log_end_offset=7)).events
    assert (read.kind, read.leader_epoch, read.min_isr) == (kind, 5, 2)


numbers = st.integers(-1, 2**31 - 1)
brokers = st.lists(st.integers(0, 2**31 - 1), max_size=5)


@given(numbers, numbers, numbers, numbers, brokers, brokers)
def test_what_is_packed_into_a_line_is_read_again(
    partition: int, leader: int, epoch: int, version: int, isr: list[int], replicas: list[int]
) -> None:
    packed = packed_state(partition, leader, epoch, version, isr, replicas)
    fields = {"topic_ids": {"t": "id"}, "states": {"t": [packed]}, "controller_epoch": 4, "why": "all"}
    (state,) = read_line(line("partition states changed", **fields)).events
    assert state[3:11] == ("t", "id", partition, leader, epoch, version, tuple(isr), tuple(replicas))
    leading = {"topic_ids": {"t": "id"}, "leading": {"t": [packed_leadership(partition, epoch)]}}
    (led,) = read_line(line("became leaders", **leading)).events
    assert led[:8] == (Kind.LEADS, TIME_MS, 1, "t", "id", partition, 1, epoch)


@pytest.mark.parametrize(
    ("event", "fields", "told"),
    [
        ("broker registered", {"broker_epoch": 7}, (Kind.STARTED, 1, 7)),
        ("broker stopped", {"broker_epoch": 7}, (Kind.STOPPED, 1, 7)),
        ("broker started", {"broker": 2, "broker_epoch": 7}, (Kind.STARTED, 2, 7)),
        ("broker failed", {"broker": 2, "broker_epoch": 7, "session_timeout_ms": 9}, (Kind.GONE, 2, 7)),
        ("broker suspected", {"broker": 2, "broker_epoch": 7, "refused_ms": 9}, (Kind.SUSPECTED, 2, 7)),
        ("broker that was suspected answers", {"broker": 2, "broker_epoch": 7}, (Kind.CLEARED, 2, 7)),
        ("contact lost", {"leader": 2, "error": "reset"}, (Kind.LOST, 2, -1)),
    ],
)
def test_lines_about_brokers_name_which_one_they_are_about(
    event: str, fields: dict[str, Any], told: tuple[Any, ...]
) -> None:
    (read,) = read_line(line(event, **fields)).events
    assert (read.kind, read.peer, read.broker_epoch) == told


def test_a_controller_that_takes_over_tells_who_lives_where_its_line_has_it() -> None:
    (acts,) = read_line(line("controller", controller_epoch=4, brokers=[1, 3], topics=1, partitions=6)).events
    assert (acts.kind, acts.controller_epoch, acts.brokers) == (Kind.ACTING, 4, (1, 3))
    (silent,) = read_line(line("controller", controller_epoch=4)).events
    assert silent.brokers == ()


def test_any_other_line_is_a_sign_of_life() -> None:
    assert read_line(line("broker alive", leading=1)) == (TIME_MS, 1, ())
    assert read_line(line("something new", partition="t-0", leader="?")) == (TIME_MS, 1, ())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0\0\0",
        "null",
        "[]",
        "{}",
        line("broker alive")[:-1],
        line("broker alive").replace(TIME, "soon"),
        line("isr changed", **{**STATE, "isr": [None]}),
        line("became leader", partition="t-0", leader_epoch=3),
        line("partition states changed", controller_epoch=1, topic_ids={}, states={"t": ["0 1 2 3 4 5"]}),
        line("partition states changed", controller_epoch=1, topic_ids={"t": "id"}, states={"t": ["0 1 2"]}),
        line("became leaders", topic_ids={"t": "id"}, leading={"t": ["0 x"]}),
        line("became leaders", topic_ids={"t": "id"}, leading={"t": [f"{2**31} 0"]}),
        line("isr changed", **{**STATE, "partition": 2**31}),
        line("contact lost", leader=2**31),
    ],
)
def test_what_is_cut_garbled_or_of_another_version_is_refused(text: str) -> None:
    with pytest.raises(UnreadableLine):
        read_line(text)


@given(st.binary(max_size=60), st.integers(0, 300))
def test_no_bytes_whatever_are_more_than_refused(garbage: bytes, at: int) -> None:
    whole = line("partition state changed", **STATE).encode()
    for data in (garbage, whole[:at] + garbage + whole[at:], whole[:at]):
        try:
            read_line(data)
        except UnreadableLine:
            continue


def test_what_the_logger_writes_is_read() -> None:
    stream = io.StringIO()
    log = make_logger(StreamSink(stream), form="json", level="info", broker_id=3).bind(controller_epoch=8)
    log.info("elected controller")
    (read,) = read_line(stream.getvalue()).events
    assert (read.kind, read.broker_id, read.controller_epoch) == (
        Kind.ELECTED,
        3,
        8,
    ) and read.time_ms > TIME_MS - 10**11
