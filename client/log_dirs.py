"""How much of each log lies where: DescribeLogDirs, asked of single brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from strandline.client.errors import AnsweredError, ClientError, error_for
from strandline.client.owners import Attempts, of_each
from strandline.client.request_bounds import in_parts
from strandline.protocol.messages import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from strandline.protocol.types import TopicPartition


class LogSize(NamedTuple):
    """One log: bytes of its segments; by how many records it ends below the high watermark, −1 where that is not known.
    `is_future`: it is on its way into this directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool = False


class LogDirView(NamedTuple):
    """A log directory of a broker. `error`: it failed. The volume's `total_bytes` and `usable_bytes`: −1 where nobody
    knows."""

    path: str
    logs: Mapping[TopicPartition, LogSize]
    total_bytes: int = -1
    usable_bytes: int = -1
    error: AnsweredError | None = None


LogDirs = dict[int, "list[LogDirView] | ClientError"]
"""Broker → its directories, or why they are not known."""


async def describe_log_dirs(
    brokers: Iterable[int], partitions: Iterable[TopicPartition] | None, attempts: Attempts
) -> LogDirs:
    """Each broker is asked once: who wants to see progress looks again anyway, and the others shall not wait for one
    that is gone."""
    parts = [None] if partitions is None else list(in_parts(sorted(set(partitions))))

    async def ask(broker_id: int, asked: list[int]) -> Mapping[int, list[LogDirView] | ClientError]:
        found: list[LogDirView] = []
        for part in parts:
            request = DescribeLogDirsRequest(None if part is None else _by_topic(part))
            answer = await attempts.ask(broker_id, request, DescribeLogDirsResponse)
            if answer is None:
                return {}
            if answer.error_code:
                what = "describing log directories"
                return {broker_id: error_for(answer.error_code, what, f"broker {broker_id}", answer.error_message)}
            found += [_view(broker_id, each) for each in answer.results]
        return {broker_id: found}

    async def itself(left: list[int]) -> Mapping[int, int | ClientError]:
        await attempts.learn()  # where they are now
        return {broker_id: broker_id for broker_id in left}

    return await of_each(brokers, attempts, itself, ask, is_open=lambda result: False)


def log_sizes(directories: Iterable[LogDirView]) -> dict[TopicPartition, int]:
    """Bytes of each log of one broker, in whichever directory it lies; without those that are being moved between
    directories, which the broker has twice."""
    return {tp: log.size_bytes for each in directories for tp, log in each.logs.items() if not log.is_future}


def _by_topic(partitions: Iterable[TopicPartition]) -> list[DescribableLogDirTopic]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return [DescribableLogDirTopic(name, numbers) for name, numbers in topics.items()]


def _view(broker_id: int, result: DescribeLogDirsResult) -> LogDirView:
    logs = {
        TopicPartition(topic.name, each.partition_index): LogSize(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in result.topics
        for each in topic.partitions
    }
    what = f"log directory {result.log_dir}"
    error = error_for(result.error_code, what, f"broker {broker_id}") if result.error_code else None
    return LogDirView(result.log_dir, logs, result.total_bytes, result.usable_bytes, error)
