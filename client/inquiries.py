"""What a consumer asks the cluster without reading: where partitions begin and end, who leads them, which offset was
when."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import trio

from strandline.client.errors import RequestTimedOut
from strandline.client.given import given_int, given_partition
from strandline.client.lookup import FoundOffset, OffsetLookup
from strandline.client.metadata import Metadata, TopicView
from strandline.client.settings import ConsumerSettings
from strandline.protocol.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from strandline.protocol.types import TopicId, TopicPartition


class Inquiries(ABC):
    """The part of a consumer that asks. Each call ends within its `timeout_ms` (default: `default_api_timeout_ms`)."""

    settings: ConsumerSettings
    _metadata: Metadata
    _lookup: OffsetLookup

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each. The last cause if a leader does not answer within `timeout_ms` (default:
        `default_api_timeout_ms`)."""
        found = await self._find(dict.fromkeys(partitions, EARLIEST_TIMESTAMP), timeout_ms)
        return {key: item.offset for key, item in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The high watermark of each: the offset after the last record that can be read. The last cause if a leader
        does not answer within `timeout_ms` (default: `default_api_timeout_ms`)."""
        found = await self._find(dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout_ms)
        return {key: item.offset for key, item in found.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """The first record of each partition with at least that timestamp (ms since 1970), or None. The last cause
        if a leader does not answer within `timeout_ms` (default: `default_api_timeout_ms`), ValueError, TypeError."""
        wanted = {key: given_int(value, f"the time for {key}, in ms,") for key, value in timestamps_ms.items()}
        if any(timestamp < 0 for timestamp in wanted.values()):
            raise ValueError("timestamps are milliseconds since 1970, not negative; use beginning_offsets, end_offsets")
        found = await self._find(wanted, timeout_ms)
        return {key: item if item.offset >= 0 else None for key, item in found.items()}

    async def partitions_for_topic(self, topic: str, timeout_ms: float | None = None) -> list[int]:
        """The topic's partitions. UnknownTopic or what hindered it after `timeout_ms`."""
        return sorted((await self._layout(topic, timeout_ms)).partitions)

    async def topic_id(self, topic: str, timeout_ms: float | None = None) -> TopicId:
        """Which of the topics that had this name it is, as far as this client knows now; zeros where the cluster gives
        no ids. UnknownTopic or what hindered it after `timeout_ms`."""
        return (await self._layout(topic, timeout_ms)).topic_id

    async def leaders_for_topic(self, topic: str, timeout_ms: float | None = None) -> dict[int, int]:
        """Partition → the broker that leads it, −1 for none, as far as this client knows now. UnknownTopic or what
        hindered it after `timeout_ms`."""
        found = await self._layout(topic, timeout_ms)
        return {number: found.partitions[number].leader for number in sorted(found.partitions)}

    @abstractmethod
    async def _raise_unless_running(self) -> None:
        """ClientClosed, NotRunning."""

    def _limit_ms(self, timeout_ms: float | None) -> float:
        return self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms

    async def _layout(self, topic: str, timeout_ms: float | None = None) -> TopicView:
        await self._raise_unless_running()
        limit_ms = self._limit_ms(timeout_ms)
        return await self._metadata.topic(topic, timeout_ms=limit_ms, setting="default_api_timeout_ms")

    async def _find(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None
    ) -> dict[TopicPartition, FoundOffset]:
        limit_ms = self._limit_ms(timeout_ms)
        wanted = {given_partition(key): value for key, value in timestamps.items()}
        started = trio.current_time()
        for topic in dict.fromkeys(key.topic for key in wanted):
            await self._layout(topic, limit_ms)
        spent_ms = (trio.current_time() - started) * 1000
        with trio.move_on_after(limit_ms / 1000):
            return await self._lookup.until_found(wanted, max(1.0, limit_ms - spent_ms))
        raise RequestTimedOut(
            f"no offsets of {', '.join(map(str, wanted))} within {limit_ms:g} ms (default_api_timeout_ms)"
        )
