"""Change logs replayed as a topic was seen: states by epoch and version, offsets where lines have them, the pace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.watch_replay import LONGEST_PAUSE_S, pause_s, replayed
from strandline.cli.watch_seen import Watched
from strandline.protocol.history.lines import Event, Kind


def state(time_ms: int, broker: int, epoch: int, version: int, leader: int, *isr: int, **more: object) -> Event:
    fields = {"kind": Kind.WRITTEN, "topic_id": "A", "partition": 0, **more}
    return Event(
        time_ms=time_ms, broker_id=broker, topic="t", leader=leader, leader_epoch=epoch, zk_version=version, isr=isr,
        **fields,
    )  # fmt: skip


def told(events: list[Event], since_ms: int | None = None, until_ms: int | None = None) -> list[tuple[int, str]]:
    watched = Watched()
    return [
        (change.time_ms, change.text)
        for seen in replayed(sorted(events, key=lambda event: event.time_ms), "t", since_ms, until_ms)
        for change in watched.take(seen)
    ]


FIRST = state(1000, 1, 0, 0, 1, 1, 2, replicas=(1, 2))


def test_states_are_told_in_the_order_of_time_and_old_ones_not_at_all() -> None:
    late = state(3500, 2, 0, 0, 1, 1, 2, kind=Kind.TOLD)
    events = [state(3000, 3, 1, 2, 2, 2, why="gone"), late, state(2000, 1, 0, 1, 1, 1, kind=Kind.CHANGED), FIRST]
    assert told(events) == [
        (1000, "leader 1, epoch 0, ISR 1,2 of 1,2"),
        (2000, "ISR 1,2 -> 1"),
        (3000, "leader 1 -> 2, epoch 0 -> 1, ISR 1 -> 2"),
    ]


def test_lines_that_have_offsets_move_those_of_the_replica_that_wrote_them() -> None:
    leads = state(1000, 1, 0, 0, 1, 1, 2, kind=Kind.LEADS, log_end_offset=50, high_watermark=40)
    follows = state(1500, 2, 0, 0, 1, 1, 2, kind=Kind.TOLD, log_end_offset=45, high_watermark=30)
    assert told([FIRST, leads, follows]) == [
        (1000, "leader 1, epoch 0, ISR 1,2 of 1,2, HW 40, LEO 1:50"),
        (1500, "LEO 2:45"),
    ]


def test_it_begins_with_what_was_at_the_time_asked_for_and_ends_before_the_other() -> None:
    events = [FIRST, state(2000, 1, 0, 1, 1, 1), state(9000, 1, 0, 2, 1, 1, 2), state(9500, 1, 0, 3, 1, 1)]
    assert told(events, 5000, 9500) == [(5000, "leader 1, epoch 0, ISR 1 of 1,2"), (9000, "ISR 1 -> 1,2")]
    assert told(events, 99_000) == [(99_000, "leader 1, epoch 0, ISR 1 of 1,2")]
    assert told([], 0) == []


def test_brokers_that_go_and_come_and_logs_that_fail_are_told() -> None:
    gone = Event(Kind.GONE, 2000, 1, peer=2)
    back = Event(Kind.STARTED, 3000, 1, peer=2)
    failed = Event(Kind.FAILED, 4000, 1, "t", "A", 0)
    assert told([FIRST, gone, back, failed])[1:] == [
        (2000, "broker 2 is gone"),
        (3000, "broker 2 answers again"),
        (4000, "the log of broker 1 has failed"),
    ]


def test_who_is_not_alive_when_a_controller_takes_over_is_away_until_it_registers() -> None:
    takes_over = Event(Kind.ACTING, 2000, 3, controller_epoch=2, brokers=(2, 3))
    says_nothing = Event(Kind.ACTING, 2500, 3, controller_epoch=3)
    back = Event(Kind.STARTED, 3000, 1, peer=1)
    assert told([FIRST, takes_over, back])[1:] == [(2000, "broker 1 is gone"), (3000, "broker 1 answers again")]
    assert told([FIRST, says_nothing])[1:] == []
    assert told([takes_over._replace(time_ms=500), FIRST]) == [
        (1000, "leader 1, epoch 0, ISR 1,2 of 1,2, broker 1 is gone")
    ], "also of a partition that is told of later"


def test_a_topic_that_was_deleted_and_made_anew_is_told_apart_from_the_old_one() -> None:
    deleted = Event(Kind.DELETED, 2000, 1, "t", "A")
    anew = state(3000, 1, 0, 0, 2, 2, topic_id="B", replicas=(2,))
    late = state(3500, 1, 7, 7, 1, 1)
    assert told([FIRST, deleted, anew, late])[1:] == [
        (2000, "was deleted"),
        (3000, "was created anew: its id is B, before A"),
        (3000, "leader 2, epoch 0, ISR 2 of 2"),
    ]
    assert told([FIRST, anew, late]) == told([FIRST, anew]), "also where no log has the deletion"


@st.composite
def any_events(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    for time_ms in range(1000, 1000 + draw(st.integers(1, 30))):
        broker, number = draw(st.integers(1, 3)), draw(st.integers(0, 3))
        kind = draw(st.sampled_from([Kind.WRITTEN, Kind.WRITTEN, Kind.GONE, Kind.STARTED, Kind.FAILED, Kind.DELETED]))
        topic_id = draw(st.sampled_from("AAAB"))
        if kind is Kind.WRITTEN:
            leader, version = draw(st.integers(1, 3)), draw(st.integers(0, 5))
            more = {"partition": number, "topic_id": topic_id, "log_end_offset": draw(st.integers(0, 3))}
            events.append(state(time_ms, broker, version // 2, version, leader, leader, replicas=(1, 2, 3), **more))
        elif kind in (Kind.FAILED, Kind.DELETED):
            events.append(Event(kind, time_ms, broker, "t", topic_id, number))
        else:
            events.append(Event(kind, time_ms, broker, peer=draw(st.integers(1, 3))))
    return events


@given(any_events())
def test_partitions_that_are_not_named_as_touched_have_not_moved(events: list[Event]) -> None:
    looks = list(replayed(events, "t", None, None))
    one, other = Watched(), Watched()
    assert [one.take(seen) for seen in looks] == [other.take(replace(seen, touched=None)) for seen in looks]


@pytest.mark.parametrize(
    ("between_ms", "speed", "wait_s"),
    [(3000, 1, 3.0), (3000, 60, 0.05), (3000, 0, 0.0), (-50, 1, 0.0), (86_400_000, 60, LONGEST_PAUSE_S)],
)
def test_a_pause_is_as_long_as_it_was_by_speed_and_never_longer_than_a_person_waits(
    between_ms: int, speed: float, wait_s: float
) -> None:
    assert pause_s(1000, 1000 + between_ms, speed) == wait_s
