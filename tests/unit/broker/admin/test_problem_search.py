"""What a broker finds to be wrong, of logs that it does not serve."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from strandline.broker.admin.problem_search import MOST_LINES, ProblemSearch
from strandline.broker.admin.problems import Level, Problem
from strandline.broker.metadata_cache import MetadataCache
from strandline.protocol.types import TopicPartition
from strandline.runtime.coordination import SessionState
from strandline.storage.errors import LogStorageError


class Directories(list[Any]):
    offline_paths: list[str] = []


def found(refused: int = 0, left_alone: list[Any] | None = None) -> list[Problem]:
    """Of a broker that has nothing else."""
    metadata = MetadataCache()
    metadata.controller_id, metadata.brokers = 2, cast(Any, {1: None})
    names = [TopicPartition("t", index) for index in range(refused)]
    errors = {tp: LogStorageError(str(tp), f"{tp} was not loaded: gap; put it back; then restart") for tp in names}
    logs = SimpleNamespace(refused=errors, directories=Directories())
    coordination = SimpleNamespace(state=SessionState.CONNECTED)
    search = ProblemSearch(
        1, metadata, {}, cast(Any, logs), cast(Any, coordination), dict, lambda: left_alone or [], {}
    )
    return list(search())


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


def test_what_the_cleaner_leaves_alone_is_a_warning() -> None:
    [problem] = found(left_alone=[SimpleNamespace(topic_partition=TopicPartition("t", 3))])
    assert (problem.level, problem.where) == (Level.WARNING, "t-3")
    assert problem.what == "1 partition is not compacted any more from some offset on"
