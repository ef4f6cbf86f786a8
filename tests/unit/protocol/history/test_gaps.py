"""What is missing from change logs is found from what the others say, and nothing else is."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.protocol.history import gaps as finding
from strandline.protocol.history.gaps import SILENCE_MS, Gap, Gaps
from strandline.protocol.history.lines import Event, Kind, Line
from strandline.protocol.history.merging import Told

MINUTE_MS = 60_000


def told(number: int, time_ms: int, *events: Event, broker_id: int = 1, beats: bool = True) -> Told:
    return Told(0, beats, f"/{broker_id}.log", number, Line(time_ms, broker_id, events))


def state(version: int, topic_id: str = "id", partition: int = 0, kind: Kind = Kind.WRITTEN) -> Event:
    return Event(kind, version, 1, "t", topic_id, partition, 1, version, version)


def life(kind: Kind, broker_id: int = 1) -> Event:
    return Event(kind, 0, broker_id, peer=broker_id)


def gaps_of(lines: Iterable[Told]) -> list[Gap]:
    gaps = Gaps()
    for each in lines:
        gaps.add(each, each.line.events)
    return gaps.found()


def versions(lines: Iterable[Told]) -> list[tuple[int, int]]:
    return [(gap.first, gap.last) for gap in gaps_of(lines)]


def test_states_that_no_line_tells_of_are_named_with_the_lines_around_them() -> None:
    lines = [told(number, number * 1000, state(version)) for number, version in enumerate([3, 4, 7, 8, 10], 1)]
    first, second = gaps_of(lines)
    assert first.text == "t-0: no log has znode versions 5 to 6, between /1.log:2 and /1.log:3"
    assert second.text == "t-0: no log has znode version 9, between /1.log:4 and /1.log:5"
    assert (first.before.time_ms, first.behind.time_ms) == (2000, 3000)


def test_each_partition_of_each_topic_id_counts_by_itself_and_whoever_tells_of_a_state() -> None:
    events = [state(0), state(0, partition=1), state(1, partition=1), state(1), state(0, topic_id="new"), state(2)]
    assert gaps_of(told(number, number, event) for number, event in enumerate(events)) == []
    told_only = [told(1, 1, state(0)), told(2, 2, state(1, kind=Kind.TOLD), broker_id=2), told(3, 3, state(2))]
    assert gaps_of(told_only) == []
    assert len(gaps_of([told_only[0], told_only[2]])) == 1


@given(st.sets(st.integers(0, 20), min_size=1), st.randoms())
def test_what_is_missing_does_not_depend_on_the_order_of_lines(seen: set[int], order: random.Random) -> None:
    shuffled = sorted(seen)
    order.shuffle(shuffled)
    missing = {
        number
        for first, last in versions(told(1, version, state(version)) for version in shuffled)
        for number in range(first, last + 1)
    }
    assert missing == set(range(min(seen), max(seen))) - seen


def test_a_term_of_a_controller_that_no_log_has_is_named() -> None:
    def elected(epoch: int) -> Event:
        return Event(Kind.ELECTED, epoch, 1, controller_epoch=epoch)

    [gap] = gaps_of([told(1, 1, elected(4)), told(2, 2, elected(6))])
    assert gap.text == "no log has the election of controller epoch 5, between /1.log:1 and /1.log:2"


def alive(*minutes: int, broker_id: int = 1, beats: bool = True) -> list[Told]:
    return [told(minute, minute * MINUTE_MS, broker_id=broker_id, beats=beats) for minute in minutes]


def test_a_broker_that_wrote_nothing_for_minutes_though_it_lived_is_named() -> None:
    [gap] = gaps_of([*alive(1, 2), *alive(*range(2, 9), broker_id=2), *alive(9)])
    assert gap.broker_id == 1
    assert gap.text == "broker 1: no line for 420 s, though it writes one a minute, between /1.log:2 and /1.log:9"
    assert gaps_of(alive(1, 1 + SILENCE_MS // MINUTE_MS)) == []


@pytest.mark.parametrize(("kind", "minute"), [(Kind.STARTED, 20), (Kind.STOPPED, 2)])
def test_a_broker_that_was_down_has_no_gap(kind: Kind, minute: int) -> None:
    """Killed, it says nothing, but registers when it is back."""
    assert gaps_of([*alive(1, 2), told(3, minute * MINUTE_MS, life(kind)), *alive(20, 21)]) == []


def test_who_is_found_gone_long_after_its_last_line_has_lines_missing_up_to_then() -> None:
    others = alive(*range(1, 30), broker_id=2)
    gone = Event(Kind.GONE, 15 * MINUTE_MS, 2, peer=1, session_timeout_ms=6000)
    [gap] = gaps_of([*alive(1, 2), *others[:14], told(99, 15 * MINUTE_MS, gone, broker_id=2), *others[14:]])
    assert (gap.broker_id, gap.before.number, gap.behind.number) == (1, 2, 99)


def term(kind: Kind, number: int, minute: int, broker_id: int, *brokers: int) -> Told:
    event = Event(kind, minute * MINUTE_MS, broker_id, brokers=brokers)
    return told(number, minute * MINUTE_MS, event, broker_id=broker_id)


FIRST_TERM = term(Kind.ACTING, 1, 0, 2, 1, 2, 3)
"""Of broker 2; broker 3 comes next."""


@pytest.mark.parametrize(
    ("before", "minute", "living"),
    [
        ([FIRST_TERM, *alive(*range(1, 11), broker_id=2)], 11, [3]),  # they died together
        ([FIRST_TERM, *alive(*range(1, 11), broker_id=2)], 60, [3]),  # all did, and only broker 3 is back
        ([FIRST_TERM, told(50, 59 * MINUTE_MS, life(Kind.STARTED, 2), broker_id=2)], 60, [2, 3]),  # broker 2 is, too
        ([FIRST_TERM, term(Kind.RESIGNED, 50, 10, 2), *alive(*range(11, 60), broker_id=2)], 60, [2, 3]),
        ([], 11, [3]),  # the log of the controller before is missing
    ],
)
def test_who_died_with_the_controller_is_known_to_be_gone_by_the_next_one(
    before: list[Told], minute: int, living: list[int]
) -> None:
    def silent(takes_over: Told) -> list[int]:
        lines = [*alive(*range(1, 11)), *before, takes_over, *alive(*range(minute, 90), broker_id=3)]
        return [gap.broker_id for gap in gaps_of(lines) if gap.broker_id == 1]

    assert silent(term(Kind.ACTING, 99, minute, 3)) == [1]
    assert silent(term(Kind.ACTING, 99, minute, 3, *living)) == []


def test_a_log_that_ends_long_before_its_broker_died_with_the_controller_is_named() -> None:
    begun = [FIRST_TERM, *alive(1, 2), *alive(*range(1, 20), broker_id=2)]
    [gap] = gaps_of([*begun, term(Kind.ACTING, 99, 20, 3, 3), *alive(*range(20, 40), broker_id=3)])
    assert (gap.broker_id, gap.before.number) == (1, 2)


def test_a_log_in_which_no_signs_of_life_stand_has_no_silence() -> None:
    assert gaps_of(alive(1, 20, beats=False)) == []


def test_very_many_gaps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "MOST_GAPS", 5)
    assert len(versions(told(1, version, state(version)) for version in range(0, 100, 2))) == 5
