"""Timelines of partitions: what lines of several brokers, in any order, amount to."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.history.figures import BrokerFigures, Range, broker_figures, figures, in_range
from strandline.protocol.history.lines import Event, Kind
from strandline.protocol.history.lives import Downtime, Lives
from strandline.protocol.history.timeline import Interval, Outage, PartitionHistory, Service, histories

REPLICAS = (1, 2, 3)
LOGGED = dict.fromkeys(REPLICAS, 0)


def state(
    kind: Kind, time_ms: int, by: int, leader: int, epoch: int, version: int, *isr: int, topic_id: str = "id"
) -> Event:
    replicas = () if kind is Kind.CHANGED else REPLICAS
    min_isr = 2 if kind is Kind.LEADS else 0
    return Event(kind, time_ms, by, "t", topic_id, 0, leader, epoch, version, isr, replicas, min_isr)


def written(time_ms: int, leader: int, epoch: int, version: int, *isr: int, **more: Any) -> Event:
    return state(Kind.WRITTEN, time_ms, 9, leader, epoch, version, *isr, **more)


def leads(time_ms: int, leader: int, epoch: int, version: int, *isr: int, **more: Any) -> Event:
    return state(Kind.LEADS, time_ms, leader, leader, epoch, version, *isr, **more)


def changed(time_ms: int, leader: int, epoch: int, version: int, *isr: int) -> Event:
    return state(Kind.CHANGED, time_ms, leader, leader, epoch, version, *isr)


def with_lives(*downtimes: Downtime, deletions: dict[str, int] | None = None, logged: Any = LOGGED) -> Lives:
    by_broker = {
        broker_id: tuple(each for each in downtimes if each.broker_id == broker_id)
        for broker_id in {each.broker_id for each in downtimes}
    }
    return Lives(by_broker, (), deletions or {}, dict(logged), {})


def one(events: list[Event], lives: Lives) -> PartitionHistory:
    (history,) = histories(events, lives)
    return history


KILLED = Downtime(1, 5_000, 60_000, in_order=False)
FAIL_OVER = [
    written(1_000, 1, 0, 0, 1, 2, 3),
    leads(1_010, 1, 0, 0, 1, 2, 3),
    state(Kind.TOLD, 1_011, 2, 1, 0, 0, 1, 2, 3),
    written(11_000, 2, 1, 1, 2, 3),
    leads(11_020, 2, 1, 1, 2, 3),
    changed(61_000, 2, 1, 2, 1, 2, 3),
]


def test_a_leader_that_died_is_missed_from_its_death_until_the_next_one_leads() -> None:
    history = one(FAIL_OVER, with_lives(KILLED))
    assert history.intervals == (
        Interval(1_000, 11_000, 1, 0, 0, (1, 2, 3), REPLICAS, 2),
        Interval(11_000, 61_000, 2, 1, 1, (2, 3), REPLICAS, 2),
        Interval(61_000, None, 2, 1, 2, (1, 2, 3), REPLICAS, 2),
    )
    assert history.services == (Service(1_010, 5_000, 1), Service(11_020, None, 2))
    assert history.outages == (Outage(5_000, 11_020, "broker 1 was gone", 1, 2),)
    assert history.hand_overs_ms == ((1_000, 10),)
    assert (history.unknown_changes, history.clock_skew_ms) == (0, 0)


def test_a_partition_that_nobody_leads_is_out_until_somebody_does() -> None:
    events = [*FAIL_OVER[:3], written(5_100, -1, 1, 1, 1), written(70_000, 1, 2, 2, 1), leads(70_005, 1, 2, 2, 1)]
    assert one(events, with_lives(KILLED)).outages == (Outage(5_000, 70_005, "broker 1 was gone", 1, 1),)
    (refused,) = one(events, with_lives()).outages
    assert refused == Outage(5_100, 70_005, "nobody in sync could lead", 1, 1)
    assert one(events[:-2], with_lives()).outages == (Outage(5_100, None, "nobody in sync could lead", 1, -1),)


def test_a_planned_move_is_a_hand_over_unless_it_takes_long() -> None:
    def moved(late_ms: int) -> PartitionHistory:
        return one([*FAIL_OVER[:4], leads(11_000 + late_ms, 2, 1, 1, 2, 3)], with_lives())

    assert moved(20).hand_overs_ms == ((1_000, 10), (11_000, 20)) and not moved(20).outages
    assert moved(5_000).outages == (Outage(11_000, 16_000, "the next leader was late", 1, 2),)


def test_an_epoch_that_changes_under_the_same_leader_is_no_interruption() -> None:
    events = [*FAIL_OVER[:3], written(11_000, 1, 1, 1, 1, 2), leads(11_030, 1, 1, 1, 1, 2)]
    history = one(events, with_lives())
    assert history.services == (Service(1_010, None, 1),) and not history.outages
    assert history.hand_overs_ms == ((1_000, 10),)


def test_a_leader_that_comes_back_before_it_is_missed_leads_on_in_its_epoch() -> None:
    history = one([*FAIL_OVER[:3], leads(8_000, 1, 0, 0, 1, 2, 3)], with_lives(Downtime(1, 5_000, 7_500, False)))
    assert history.services == (Service(1_010, 5_000, 1), Service(8_000, None, 1))
    assert history.outages == (Outage(5_000, 8_000, "broker 1 was gone", 1, 1),)


def test_a_log_that_fails_ends_what_its_broker_leads() -> None:
    failed = Event(Kind.FAILED, 4_000, 1, "t", "id", 0)
    (outage,) = one([*FAIL_OVER, failed], with_lives()).outages
    assert outage == Outage(4_000, 11_020, "the log of broker 1 failed", 1, 2)


def test_who_was_elected_and_never_led_ends_no_outage() -> None:
    events = [*FAIL_OVER[:4], written(20_000, 3, 2, 2, 3), leads(20_030, 3, 2, 2, 3)]
    assert one(events, with_lives(KILLED)).outages == (Outage(5_000, 20_030, "broker 1 was gone", 1, 3),)


def test_a_leader_whose_logs_are_missing_leads_from_when_it_was_elected() -> None:
    events = [event for event in FAIL_OVER if event.broker_id != 2]
    lives = with_lives(KILLED, logged={1: 0, 3: 0})
    assert one(events, lives).outages == (Outage(5_000, 11_000, "broker 1 was gone", 1, 2),)
    late = with_lives(KILLED, logged={1: 0, 2: 30_000})
    assert one(events, late).outages == (Outage(5_000, 11_000, "broker 1 was gone", 1, 2),)


def test_logs_that_begin_in_the_middle_show_no_outage_before() -> None:
    told = state(Kind.TOLD, 50_000, 3, 1, 4, 17, 1, 2, 3)
    history = one([told], with_lives())
    assert history.services == (Service(50_000, None, 1),) and not history.outages
    assert one([changed(50_000, 1, 4, 17, 1, 2)], with_lives()).services == (Service(50_000, None, 1),)


def test_a_topic_that_was_made_anew_is_another_one_from_epoch_0_on() -> None:
    anew = [written(40_000, 3, 0, 0, 3, 1, topic_id="new"), leads(40_010, 3, 0, 0, 3, 1, topic_id="new")]
    old, new = histories([*anew, *FAIL_OVER[:3]], with_lives(deletions={"id": 30_000}))
    assert (old.topic_id, old.intervals[-1].to_ms, old.services[-1].to_ms) == ("id", 30_000, 30_000)
    assert (new.topic_id, new.intervals[0].from_ms, new.outages) == ("new", 40_000, ())
    (undeleted, _) = histories([*anew, *FAIL_OVER[:3]], with_lives())
    assert undeleted.intervals[-1].to_ms == 40_000, "nobody logged the deletion: it ends where the next one begins"


def test_what_changes_after_the_deletion_began_is_no_part_of_it() -> None:
    history = one(FAIL_OVER, with_lives(KILLED, deletions={"id": 8_000}))
    assert [each.to_ms for each in history.intervals] == [8_000]
    assert history.outages == (Outage(5_000, 8_000, "broker 1 was gone", 1, -1),)


def test_versions_that_no_log_has_are_counted() -> None:
    assert one([*FAIL_OVER[:3], written(11_000, 2, 1, 7, 2)], with_lives()).unknown_changes == 6


def test_epochs_order_what_clocks_confuse() -> None:
    early = FAIL_OVER[3]._replace(time_ms=600)
    history = one([*FAIL_OVER[:3], early], with_lives())
    assert [each.from_ms for each in history.intervals] == [1_000, 1_000]
    assert history.clock_skew_ms == 400 and history.intervals[-1].leader == 2


# --- figures -------------------------------------------------------------------------------------------------------


def test_figures_count_what_lies_in_the_range() -> None:
    whole = Range(0, last_ms=100_000)
    history = in_range(one(FAIL_OVER, with_lives(KILLED)), whole)
    assert history is not None
    told = figures(history, whole)
    assert (told.elections, told.leader_changes, told.isr_shrinks, told.isr_expansions) == (1, 1, 1, 1)
    assert (told.outages, told.unavailable_ms, told.longest_outage_ms) == (1, 6_020, 6_020)
    assert (told.under_replicated_ms, told.under_min_isr_ms) == (50_000, 0)
    assert (told.hand_overs, told.longest_hand_over_ms) == (1, 10)
    assert broker_figures(history, whole) == {
        1: BrokerFigures(3_990, 0, 1, 1),
        2: BrokerFigures(88_980, 1, 0, 0),
    }
    part = Range(8_000, 20_000, 100_000)
    cut = in_range(history, part)
    assert cut is not None
    assert [(each.from_ms, each.to_ms) for each in cut.intervals] == [(8_000, 11_000), (11_000, 20_000)]
    told = figures(cut, part)
    assert (told.unavailable_ms, told.under_replicated_ms, told.isr_expansions, told.hand_overs) == (3_020, 9_000, 0, 0)
    assert in_range(history, Range(0, 900)) is None


def test_too_few_in_sync_for_acks_all_are_told_where_the_minimum_is_known() -> None:
    span = Range(last_ms=4_000)
    assert figures(one([*FAIL_OVER[:2], changed(2_000, 1, 0, 1, 1)], with_lives()), span).under_min_isr_ms == 2_000
    assert figures(one([written(1_000, 1, 0, 0, 1)], with_lives()), span).under_min_isr_ms == 0


# --- properties ----------------------------------------------------------------------------------------------------


class Truth(NamedTuple):
    """A history as it was, and what brokers logged of it."""

    states: list[tuple[int, int, int, int, tuple[int, ...]]]
    events: list[Event]


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    """States with growing epochs and versions; each told by its writer and, some ms off, by some of the replicas."""
    time_ms, epoch, leader, isr = 10_000, 0, 1, REPLICAS
    states, events = [], []
    for version in range(draw(st.integers(1, 12))):
        if version:
            time_ms += draw(st.integers(100, 10_000))
            if draw(st.booleans()):
                epoch, leader = epoch + 1, draw(st.sampled_from([-1, 1, 2, 3]))
            isr = tuple(draw(st.lists(st.sampled_from(REPLICAS), min_size=1, unique=True)))
        states.append((time_ms, leader, epoch, version, isr))
        new_epoch = version == 0 or states[-2][2] != epoch
        if new_epoch or leader == -1:
            events.append(written(time_ms, leader, epoch, version, *isr))
        else:
            events.append(changed(time_ms, leader, epoch, version, *isr))
        for broker_id in draw(st.lists(st.sampled_from(REPLICAS), unique=True)) if new_epoch else ():
            kind = Kind.LEADS if broker_id == leader else Kind.TOLD
            events.append(state(kind, time_ms + draw(st.integers(-20, 60)), broker_id, leader, epoch, version, *isr))
    return Truth(states, events)


@given(truths(), st.randoms(use_true_random=False), st.integers(1, 3))
@settings(max_examples=200)
def test_lines_in_any_order_and_any_number_of_times_tell_what_was(
    truth: Truth, rng: random.Random, copies: int
) -> None:
    shuffled = truth.events * copies
    rng.shuffle(shuffled)
    history = one(shuffled, with_lives())
    assert history == one(truth.events, with_lives())
    assert [(i.from_ms, i.leader, i.leader_epoch, i.zk_version, i.isr) for i in history.intervals] == truth.states
    assert all(before.to_ms == after.from_ms for before, after in pairwise(history.intervals))


@given(truths(), st.lists(st.tuples(st.sampled_from(REPLICAS), st.integers(0, 60_000), st.integers(1, 20_000))))
@settings(max_examples=200)
def test_services_outages_and_hand_overs_share_the_time_out(truth: Truth, away: list[tuple[int, int, int]]) -> None:
    lives = with_lives(*(Downtime(b, at, at + length, False) for b, at, length in away), logged={2: 0})
    history = one(truth.events, lives)
    parts = [(s.from_ms, s.to_ms) for s in history.services] + [(o.from_ms, o.to_ms) for o in history.outages]
    parts += [(at, at + length) for at, length in history.hand_overs_ms]
    parts.sort(key=lambda part: (part[0], part[1] is None))
    assert parts[0][0] == history.intervals[0].from_ms and parts[-1][1] is None
    assert all(before[1] == after[0] for before, after in pairwise(parts))
    for service in history.services:
        for downtime in lives.downtimes.get(service.leader, ()):
            assert not (service.from_ms < downtime.end_ms and (service.to_ms or 10**9) > downtime.from_ms)


@given(truths(), st.integers(0, 90_000), st.integers(0, 90_000))
def test_two_ranges_side_by_side_have_what_the_whole_has(truth: Truth, cut: int, last_ms: int) -> None:
    last_ms = max(last_ms, truth.states[-1][0])
    history = one(truth.events, with_lives())
    parts = [Range(0, cut, last_ms), Range(cut, last_ms=last_ms)]
    found = [figures(part, span) for span in parts if (part := in_range(history, span)) is not None]
    whole = figures(history, Range(last_ms=last_ms))
    assert sum(each.unavailable_ms for each in found) == whole.unavailable_ms
    assert sum(each.under_replicated_ms for each in found) == whole.under_replicated_ms
