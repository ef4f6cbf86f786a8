"""Finding and checking positions of a consumer: by the reset policy, and after each leader change (KIP-320).

A position is checked by asking the new leader where the epoch of the last fetched batch ends in its log: below the
position means that records which were read are not in the log any more (an unclean election). With a reset policy the
consumer goes on where the logs part, without one the program is told (`LogTruncated`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from strandline.client.assignment import Assigned
from strandline.client.errors import LogTruncated
from strandline.client.lookup import EpochEnd, FoundOffset, OffsetLookup, is_retriable
from strandline.client.metadata import Metadata, backoff_ms
from strandline.client.settings import ConsumerSettings
from strandline.protocol.messages import EARLIEST_TIMESTAMP
from strandline.protocol.types import TopicPartition
from strandline.runtime.client_environment import ClientEnvironment


def _fetched(state: Assigned) -> tuple[int, int, int]:
    """What a check is about. A former leader may still answer, with records of a later epoch, while one goes on."""
    return state.generation, state.last_epoch, state.fetch_offset


class Positions:
    """The task that looks positions up; `wanted` wakes it."""

    def __init__(
        self,
        settings: ConsumerSettings,
        environment: ClientEnvironment,
        metadata: Metadata,
        lookup: OffsetLookup,
        on_change: Callable[[], None],
    ) -> None:
        self.assigned: Mapping[TopicPartition, Assigned] = {}
        self._settings = settings
        self._environment = environment
        self._metadata = metadata
        self._lookup = lookup
        self._on_change = on_change
        self._wanted = trio.Event()

    def want(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        failures = 0
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            well = await self._reset()
            well = await self._check() and well
            self._on_change()
            if well:
                failures = 0
                continue
            failures += 1
            self._metadata.request_update()
            await trio.sleep(backoff_ms(self._settings, failures, self._environment) / 1000)
            self._wanted.set()

    async def _reset(self) -> bool:
        """Look up what `reset_to` asks for. False: some of it must be tried again."""
        asked = {
            key: (state, state.generation, state.reset_to)
            for key, state in self.assigned.items()
            if state.reset_to is not None and state.error is None
        }
        if not asked:
            return True
        well = True
        results = await self._lookup.by_timestamp({key: timestamp for key, (_, _, timestamp) in asked.items()})
        for key, result in results.items():
            state, generation, timestamp = asked[key]
            if state.generation != generation or state.reset_to != timestamp:
                continue
            if isinstance(result, FoundOffset):
                state.set_position(max(0, result.offset))
                if timestamp == EARLIEST_TIMESTAMP:
                    state.log_start_offset = max(state.log_start_offset, result.offset)
            else:
                well = self._failed(state, result) and well
        return well

    async def _check(self) -> bool:
        """Compare with the new leader's log. False: some of it must be tried again."""
        asked: dict[TopicPartition, tuple[Assigned, tuple[int, int, int], int]] = {}
        for key, state in self.assigned.items():
            partition = self._metadata.view.partition(key)
            if partition is None or state.reset_to is not None or state.error is not None:
                continue
            if state.last_epoch >= 0 and state.checked_epoch != partition.leader_epoch:
                asked[key] = (state, _fetched(state), partition.leader_epoch)
        if not asked:
            return True
        well = True
        results = await self._lookup.epoch_ends({key: state.last_epoch for key, (state, _, _) in asked.items()})
        for key, result in results.items():
            state, fetched, epoch = asked[key]
            if _fetched(state) != fetched:
                continue  # the next fetch finds that it is not checked
            if isinstance(result, EpochEnd):
                self._checked(state, result, epoch)
            else:
                well = self._failed(state, result) and well
        return well

    def _checked(self, state: Assigned, end: EpochEnd, epoch: int) -> None:
        state.checked_epoch = epoch
        if end.leader_epoch < 0 or end.end_offset < 0:
            return  # the leader knows no epoch that old (its log begins later): only the fetch can tell
        if end.leader_epoch == state.last_epoch and end.end_offset >= state.fetch_offset:
            return
        if end.end_offset >= state.position:
            # Only what was read ahead is affected.
            state.refetch()
            state.last_epoch = end.leader_epoch
            return
        diverging = end.end_offset
        text = (
            f"the log of {state.topic_partition} was truncated: this consumer is at offset {state.read_position}, but "
            f"the leader of epoch {epoch} has another log from offset {diverging} on (an unclean election)"
        )
        if self._settings.auto_offset_reset == "none":
            error = LogTruncated(f"{text}; seek to {diverging}, or set auto_offset_reset", diverging)
            state.part_at(diverging, end.leader_epoch, error)
            return
        state.part_at(diverging, end.leader_epoch)
        state.checked_epoch = epoch
        state.last_error = LogTruncated(f"{text}; going on there", diverging)

    def _failed(self, state: Assigned, error: Exception) -> bool:
        """Note it; True if trying again is of no use."""
        state.last_error = error
        if is_retriable(error):
            return False
        state.error = error
        return True
