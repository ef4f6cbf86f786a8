"""What a broker finds to be wrong, and what counts as one problem."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from strandline.broker.admin import remedies
from strandline.broker.admin.problem_search import MOST_LINES, ProblemSearch
from strandline.broker.admin.problems import LEADERLESS, UNDER_REPLICATED, Level, Problem
from strandline.broker.metadata_cache import MetadataCache, TopicMetadata
from strandline.broker.steps import PARTITIONS_PER_STEP
from strandline.protocol.messages import UpdateMetadataPartitionState
from strandline.protocol.types import NO_BROKER, TopicId, TopicPartition
from strandline.runtime.coordination import SessionState
from strandline.runtime.disk import DiskSpace
from strandline.storage.errors import LogStorageError


class Directories(list[Any]):
    offline_paths: list[str] = []


class Site:
    """Of broker 1, which has what the test gives it; broker 2 runs and is the controller, broker 3 is gone."""

    def __init__(self) -> None:
        self.metadata = MetadataCache()
        self.metadata.controller_id, self.metadata.brokers = 2, cast(Any, {1: None, 2: None})
        self.partitions: dict[tuple[str, int], Any] = {}
        self.refused: dict[TopicPartition, LogStorageError] = {}
        self.left_alone: list[Any] = []
        self.directories = Directories()
        self.volumes: dict[str, DiskSpace] = {}
        logs = SimpleNamespace(refused=self.refused, directories=self.directories)
        coordination = SimpleNamespace(state=SessionState.CONNECTED)
        self.search = ProblemSearch(
            1,
            self.metadata,
            self.partitions,
            cast(Any, logs),
            cast(Any, coordination),
            lambda: self.volumes,
            lambda: self.left_alone,
            dict,
        )

    def found(self) -> list[Problem]:
        return [each for each in self.search() if each is not None]

    def leads(self, index: int, isr: tuple[int, ...], *, minimum: int = 1, adding: tuple[int, ...] = ()) -> None:
        """t-index, on brokers 1 to 3 and those that are being added."""
        tp = TopicPartition("t", index)
        leadership = SimpleNamespace(
            replicas=(1, 2, 3, *adding),
            isr=isr,
            is_under_replicated=len(isr) < 3,
            has_enough_replicas=len(isr) >= minimum,
        )
        self.partitions[tp] = SimpleNamespace(
            topic_partition=tp, leadership=leadership, adding_replicas=adding, failed=False
        )

    def knows(self, index: int, isr: list[int]) -> None:
        """Of t-index, that nobody leads it and who was in sync last."""
        state = UpdateMetadataPartitionState(index, 1, NO_BROKER, 1, isr, 1, [1, 2, 3])
        self.metadata.topics.setdefault("t", TopicMetadata(TopicId(bytes(16)))).partitions[index] = state


def found(refused: int = 0, left_alone: list[Any] | None = None) -> list[Problem]:
    site = Site()
    names = [TopicPartition("t", index) for index in range(refused)]
    site.refused.update(
        {tp: LogStorageError(str(tp), f"{tp} was not loaded: gap; put it back; then restart") for tp in names}
    )
    site.left_alone = left_alone or []
    return site.found()


def found_while(site: Site, change: Callable[[], object]) -> list[Problem]:
    """change: what others do as soon as they may run."""
    found, is_changed = [], False
    for each in site.search():
        if each is not None:
            found.append(each)
        elif not is_changed:
            is_changed = True
            change()
    return found


def test_what_gets_a_leader_while_it_is_looked_at_has_one_line() -> None:
    site = Site()
    site.metadata.controller_id = 1
    site.knows(0, [1])
    [told] = found_while(site, lambda: site.leads(0, (1,)))
    assert (told.kind, told.where) == (LEADERLESS, "t-0")
    site.metadata.topics["t"].partitions.clear()
    assert {each.kind for each in site.found()} == {UNDER_REPLICATED}


def test_what_goes_while_the_others_are_looked_at_is_told_no_more() -> None:
    site = Site()
    for index in range(PARTITIONS_PER_STEP + 1):
        site.leads(index, (1, 2))
    last = TopicPartition("t", PARTITIONS_PER_STEP)
    [told] = found_while(site, lambda: site.partitions.pop(last))
    assert len(told.led) == PARTITIONS_PER_STEP and str(last) not in told.led


def test_nothing_is_wrong_with_nothing() -> None:
    assert found() == []


def test_a_refused_log_is_told_with_its_own_remedy() -> None:
    [problem] = found(refused=1)
    assert (problem.level, problem.where, problem.what) == (Level.ERROR, "t-0", "was not loaded: gap")
    assert problem.remedy == "put it back; then restart"


def test_of_many_refused_logs_the_rest_shares_a_line() -> None:
    *lines, rest = found(refused=MOST_LINES + 5)
    assert len(lines) == MOST_LINES
    assert rest.what == "5 partitions are not served by this broker either" and rest.where.endswith("and 2 more")


def test_what_the_cleaner_leaves_alone_is_a_warning_each() -> None:
    alone = [SimpleNamespace(topic_partition=TopicPartition("t", index)) for index in range(MOST_LINES + 2)]
    problems = found(left_alone=alone[:3])
    assert {each.level for each in problems} == {Level.WARNING}
    assert [(each.where, each.subject) for each in problems] == [(name, name) for name in ("t-0", "t-1", "t-2")]
    assert problems[0].what == "is not compacted any more from some offset on"
    *_, rest = found(
        left_alone=[SimpleNamespace(topic_partition=TopicPartition("t", each)) for each in range(MOST_LINES + 2)]
    )
    assert rest.what == "2 partitions are not compacted any more either"


def test_each_broker_that_is_missing_has_a_line_of_its_own() -> None:
    site = Site()
    for index in range(4):
        site.leads(index, (1, 2))
    [gone] = site.found()
    assert (gone.level, gone.what) == (Level.WARNING, "4 partitions are under-replicated: broker 3 does not run")
    assert (gone.where, gone.remedy) == ("t-0, t-1, t-2 and 1 more", f"{remedies.START} 3")
    assert gone.led == ("t-0", "t-1", "t-2", "t-3")
    site.leads(0, (1,))
    lags, still_gone = site.found()
    assert lags.what == "1 partition is under-replicated: broker 2 runs and is not in sync"
    assert (lags.where, lags.remedy) == ("t-0", remedies.SLOW)
    assert still_gone.identity == gone.identity != lags.identity


def test_a_broker_that_goes_is_another_problem_than_that_it_lagged() -> None:
    site = Site()
    site.leads(0, (1, 3))
    [lags] = site.found()
    del site.metadata.brokers[2]
    [gone] = site.found()
    assert lags.identity != gone.identity


def test_a_partition_that_refuses_writes_is_told_once() -> None:
    site = Site()
    site.leads(0, (1, 2), minimum=3)
    site.leads(1, (1, 2), minimum=2)
    refusing, lacking = site.found()
    assert (refusing.level, refusing.where, lacking.level, lacking.where) == (Level.ERROR, "t-0", Level.WARNING, "t-1")
    assert refusing.what == (
        "1 partition is under min.insync.replicas, producers with acks=all are refused: broker 3 does not run"
    )


def test_who_is_only_being_added_is_not_missing() -> None:
    site = Site()
    site.leads(0, (1, 2), adding=(4,))
    [found] = site.found()
    assert "broker 3" in found.what and "broker 4" not in found.what


def test_partitions_without_a_leader_are_told_by_who_was_in_sync() -> None:
    site = Site()
    site.metadata.controller_id = 1
    for index in range(2):
        site.knows(index, [3])
    [first] = site.found()
    assert (first.level, first.what) == (Level.ERROR, "2 partitions are without a leader; last in sync: broker 3")
    assert (first.where, first.remedy) == ("t-0, t-1", remedies.RECOVER)
    site.knows(2, [2, 3])
    later, same = sorted(site.found(), key=lambda each: each.subject)
    assert same.identity == first.identity and "broker 2, 3" in later.what
    for index in range(3, 3 + MOST_LINES):
        site.knows(index, [100 + index])
    *lines, rest = site.found()
    assert len(lines) == MOST_LINES and rest.what == "2 partitions are without a leader, too"


def test_a_volume_is_nearly_full_until_there_is_clearly_more_room() -> None:
    site = Site()
    site.directories.append(SimpleNamespace(path="/data", health=SimpleNamespace(failure=None, full=None)))

    def is_told(percent_left: int) -> bool:
        site.volumes["/data"] = DiskSpace(100 * 10**9, percent_left * 10**9)
        return [(each.kind, each.subject) for each in site.found()] == [("nearly full", "/data")]

    assert [is_told(left) for left in (11, 10, 9, 11, 10, 9, 11, 12, 11, 10, 9)] == [
        *(False, False, True, True, True, True, True),
        *(False, False, False, True),
    ]
