"""A range of time of a few logs: what was before it is kept as it was then, and changes nothing of what is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from strandline.protocol.history.gathering import Gathering, TooManyEvents
from strandline.protocol.history.lines import Event, Kind, Line
from strandline.protocol.history.merging import Told
from strandline.protocol.history.summary import HistorySummary, Sources


def state(kind: Kind, time_ms: int, leader: int, epoch: int, version: int, *isr: int, topic_id: str = "id") -> Event:
    replicas = () if kind is Kind.CHANGED else (1, 2, 3)
    return Event(kind, time_ms, leader, "t", topic_id, 0, leader, epoch, version, isr, replicas)


def gathered(events: Sequence[Event], since_ms: int, until_ms: int | None, most: int) -> HistorySummary:
    gathering = Gathering(most, since_ms, until_ms)
    for event in sorted(events, key=lambda event: event.time_ms):
        told = Told(event.broker_id, False, "file", 1, Line(event.time_ms, event.broker_id, (event,)))
        gathering.add(told, [event])
    return gathering.summary(Sources(1, 0, 0, ()), 10)


GONE = Event(Kind.GONE, 60_000, 2, peer=1, session_timeout_ms=6_000)
RESTLESS = [
    state(Kind.WRITTEN, 0, 1, 0, 0, 1, 2, 3),
    state(Kind.LEADS, 5, 1, 0, 0, 1, 2, 3),
    *(state(Kind.CHANGED, 1_000 + at * 100, 1, 0, 1 + at, *((1, 2, 3) if at % 2 else (1, 2))) for at in range(400)),
    GONE,
]
NEXT = [state(Kind.WRITTEN, 70_000, 2, 1, 401, 2, 3), state(Kind.LEADS, 70_020, 2, 1, 401, 2, 3)]


@pytest.mark.parametrize("since_ms", [30_050, 50_000, 65_000, 70_010, 80_000])
def test_what_was_before_the_range_is_kept_as_it_was_and_the_rest_is_told_alike(
    since_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [*RESTLESS, *NEXT, state(Kind.CHANGED, 90_000, 2, 1, 402, 2)]
    of_few = gathered(events, since_ms, None, most=150)
    monkeypatch.setattr("strandline.protocol.history.gathering.MOST_EARLIER", 1_000)
    assert of_few == gathered(events, since_ms, None, most=1_000)
    assert of_few == gathered(events, since_ms, None, most=150), "all of it is looked through once it is too much"


def test_many_partitions_that_changed_before_the_range_leave_room_for_it() -> None:
    """Each too seldom to be looked at for itself."""
    names = range(100)
    earlier = [
        state(
            Kind.WRITTEN if at == 0 else Kind.CHANGED, 1_000 * at + name, 1, 0, at, *((1, 2), (1, 2, 3))[at % 2]
        )._replace(partition=name)
        for at in range(10)
        for name in names
    ]
    within = [each._replace(time_ms=each.time_ms + 50_000, zk_version=10) for each in earlier[-100:-50]]
    few = gathered([*earlier, *within], 40_000, None, most=200)
    assert few == gathered([*earlier, *within], 40_000, None, most=10_000)
    assert few.totals.partitions == 100
    with pytest.raises(TooManyEvents, match="61 partitions"):
        gathered(earlier, 40_000, None, most=60)
    with pytest.raises(TooManyEvents, match="more than 200 changes"):
        gathered([*earlier, *within * 5], 40_000, None, most=200)


def test_who_takes_over_as_the_range_ends_is_no_outage() -> None:
    events = [*RESTLESS[:2], state(Kind.WRITTEN, 70_000, 2, 1, 1, 2, 3), state(Kind.LEADS, 70_020, 2, 1, 1, 2, 3)]
    assert gathered(events, 50_000, 70_010, most=10).outages == ()


def test_what_is_behind_the_range_is_not_kept() -> None:
    assert gathered(RESTLESS, 0, 1_000, most=12).totals.partitions == 1
    with pytest.raises(TooManyEvents):
        gathered(RESTLESS, 0, 4_000, most=12)


def test_a_topic_that_was_made_anew_before_the_range_is_told_as_it_is() -> None:
    anew = [state(Kind.CHANGED, 50_000 + at, 1, 0, at, 1, 2, topic_id="id 2") for at in range(40)]
    summary = gathered([*RESTLESS[:100], *anew], 60_000, None, most=20)
    assert [each.topic_id for each in summary.partitions] == ["id 2"]
