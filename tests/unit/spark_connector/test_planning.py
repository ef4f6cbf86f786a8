"""From options to the ranges that tasks read."""

from __future__ import annotations

import pytest

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import (
    DataLoss,
    EndOffsetMismatch,
    NoOffsetForTimestamp,
    StartAfterEnd,
    StartOffsetMismatch,
    TimestampMismatch,
)
from strandline.spark_connector.options.request import (
    EARLIEST,
    EVERY_TOPIC,
    LATEST,
    Ago,
    FromEnd,
    GlobalTimestamp,
    OffsetLimit,
    OffsetWord,
    SpecificOffsets,
    SpecificTimestamps,
)
from strandline.spark_connector.reading.planning import Held, Resolver, covering

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FROM_EARLIEST, TO_LATEST = OffsetWord(EARLIEST), OffsetWord(LATEST)


class Plan:
    """A resolver over two partitions, [10, 50) and the empty [0, 0)."""

    def __init__(self) -> None:
        self.held = {T0: Held(10, 50), T1: Held(0, 0)}
        self.at_start: dict[TopicPartition, int | None] = {}
        self.at_end: dict[TopicPartition, int | None] = {}
        self.late_start_is_latest = False
        self.fail_on_data_loss = True
        self.warnings: list[str] = []

    def ranges(self, starting: OffsetLimit = FROM_EARLIEST, ending: OffsetLimit = TO_LATEST) -> list[tuple[int, int]]:
        resolver = Resolver(
            self.held,
            self.at_start,
            self.at_end,
            self.late_start_is_latest,
            self.fail_on_data_loss,
            self.warnings.append,
            1_000_000,
        )
        found = resolver.ranges(starting, ending)
        assert all((each.topic, each.partition) == T0 for each in found)
        return [(each.start, each.end) for each in found]


@pytest.fixture
def plan() -> Plan:
    return Plan()


def test_everything_held_is_read_and_empty_partitions_make_no_range(plan: Plan) -> None:
    assert plan.ranges() == [(10, 50)]


def test_offsets_per_partition(plan: Plan) -> None:
    assert plan.ranges(SpecificOffsets({T0: 20, T1: EARLIEST})) == [(20, 50)]
    assert plan.ranges(ending=SpecificOffsets({T0: 20, T1: LATEST})) == [(10, 20)]
    assert plan.ranges(SpecificOffsets({T0: 20, T1: 0}), SpecificOffsets({T0: 20, T1: 0})) == []


def test_a_start_after_the_end_is_an_error_that_names_the_partition(plan: Plan) -> None:
    with pytest.raises(StartAfterEnd, match=r"t-0 .* 30 > 20"):
        plan.ranges(SpecificOffsets({T0: 30, T1: 0}), SpecificOffsets({T0: 20, T1: 0}))


@pytest.mark.parametrize(("start", "end"), [(5, 50), (10, 51), (0, 5), (60, 70)])
def test_a_range_that_is_not_all_there_fails_unless_loss_is_allowed(plan: Plan, start: int, end: int) -> None:
    limits = SpecificOffsets({T0: start, T1: 0}), SpecificOffsets({T0: end, T1: 0})
    with pytest.raises(DataLoss, match="failOnDataLoss"):
        plan.ranges(*limits)
    plan.fail_on_data_loss = False
    clipped = (max(start, 10), min(end, 50))
    assert plan.ranges(*limits) == ([clipped] if clipped[0] < clipped[1] else [])
    assert len(plan.warnings) == 1


@pytest.mark.parametrize(("start", "end", "kind"), [(5, 60, "gone"), (5, 50, "gone"), (10, 51, "end"), (60, 70, "end")])
def test_an_end_beyond_the_log_is_not_called_aged_out(plan: Plan, start: int, end: int, kind: str) -> None:
    with pytest.raises(DataLoss) as failure:
        plan.ranges(SpecificOffsets({T0: start, T1: 0}), SpecificOffsets({T0: end, T1: 0}))
    text = str(failure.value)
    assert text.startswith("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Offsets ") and "[10, 50)" in text
    assert ("aged out" in text) == (kind == "gone")
    assert ("which reach beyond its end 50" in text and "Name an end that the partition has" in text) == (kind == "end")


def test_nothing_at_or_above_the_high_watermark_is_ever_planned(plan: Plan) -> None:
    plan.fail_on_data_loss = False
    assert plan.ranges(ending=SpecificOffsets({T0: 2**62, T1: 2**62})) == [(10, 50)]


def test_times_become_offsets(plan: Plan) -> None:
    plan.at_start, plan.at_end = {T0: 20, T1: 0}, {T0: 30, T1: None}
    assert plan.ranges(GlobalTimestamp(5), GlobalTimestamp(9)) == [(20, 30)]
    plan.at_end = {T0: None, T1: None}
    assert plan.ranges(GlobalTimestamp(5), GlobalTimestamp(9)) == [(20, 50)]


def test_a_start_later_than_every_record_is_an_error_or_the_end(plan: Plan) -> None:
    plan.at_start = {T0: None, T1: None}
    for limit in (GlobalTimestamp(5), SpecificTimestamps({T0: 5, T1: 6})):
        with pytest.raises(NoOffsetForTimestamp, match="startingOffsetsByTimestampStrategy"):
            plan.ranges(limit)
    plan.late_start_is_latest = True
    assert plan.ranges(GlobalTimestamp(5)) == []


@pytest.mark.parametrize("named", [{T0: 1}, {T0: 1, T1: 1, TopicPartition("t", 2): 1}, {}])
def test_json_must_name_exactly_the_partitions_that_are_read(named: dict[TopicPartition, int]) -> None:
    with pytest.raises(StartOffsetMismatch, match=r"Use -1 for latest, -2 for earliest.*Assigned: \[t-0, t-1\]"):
        covering(SpecificOffsets(named), [T0, T1], starting=True)
    with pytest.raises(EndOffsetMismatch):
        covering(SpecificOffsets(named), [T0, T1], starting=False)
    for starting in (True, False):
        with pytest.raises(TimestampMismatch, match="KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"):
            covering(SpecificTimestamps(named), [T0, T1], starting=starting)
    assert covering(OffsetWord(EARLIEST), [T0, T1], starting=True) == OffsetWord(EARLIEST)
    covering(SpecificOffsets({T1: 0, T0: 1}), [T0, T1], starting=True)


def test_a_default_stands_for_partitions_that_are_not_named() -> None:
    other = TopicPartition("default", 0)
    limit = SpecificOffsets({T0: 5}, {"t": EARLIEST, EVERY_TOPIC: 7})
    assert covering(limit, [T0, T1, other], starting=True) == SpecificOffsets({T0: 5, T1: EARLIEST, other: 7})
    times = SpecificTimestamps({T0: 5}, {"t": Ago(3)})
    assert covering(times, [T0, T1], starting=False) == SpecificTimestamps({T0: 5, T1: Ago(3)})
    for wrong in ({"t": 1, "s": 2}, {"s": 2}):
        with pytest.raises(StartOffsetMismatch, match="default of s"):
            covering(SpecificOffsets({T0: 5}, wrong), [T0, T1], starting=True)
    with pytest.raises(StartOffsetMismatch, match="t-2"):
        covering(SpecificOffsets({TopicPartition("t", 2): 5}, {EVERY_TOPIC: 1}), [T0, T1], starting=True)


def test_offsets_counted_from_the_end_stay_within_what_is_held(plan: Plan) -> None:
    assert plan.ranges(OffsetWord(FromEnd(5))) == [(45, 50)]
    assert plan.ranges(OffsetWord(FromEnd(500))) == [(10, 50)]
    assert plan.ranges(ending=OffsetWord(FromEnd(5))) == [(10, 45)]
    assert plan.ranges(ending=OffsetWord(FromEnd(500))) == []
    with pytest.raises(StartAfterEnd, match="40 > 20"):
        plan.ranges(OffsetWord(FromEnd(10)), SpecificOffsets({T0: 20, T1: 0}))


def test_records_that_came_while_times_were_looked_up_are_not_read(plan: Plan) -> None:
    """They lie behind the end of what was held, which is neither a start after the end nor a loss."""
    plan.at_start, plan.at_end = {T0: 52, T1: 3}, {T0: 55, T1: 4}
    assert plan.ranges(GlobalTimestamp(5), GlobalTimestamp(9)) == []
    plan.at_start = {T0: 20, T1: 0}
    assert plan.ranges(GlobalTimestamp(5), GlobalTimestamp(9)) == [(20, 50)]
