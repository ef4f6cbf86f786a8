"""A log that begins: empty, in a folder that has nothing of an earlier one.

Loading that folder would come to the same, after a dozen looks at files that are not there: where thousands are made
at once these would be most of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.storage.disk.storage_context import LogConfig, StorageContext
from strandline.storage.log.leader_epochs import LeaderEpochCache
from strandline.storage.log.log import Log
from strandline.storage.producers.log_producers import LogProducers
from strandline.storage.producers.snapshots import ProducerSnapshots
from strandline.storage.segments.segment_list import SegmentList, create_segment

if TYPE_CHECKING:
    import random


def begin_log(
    context: StorageContext,
    folder: str,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: LogConfig,
    *,
    random: random.Random,
    checkpoint_now: Callable[[Log], None],
) -> Log:
    """topic_id: as the folder's `partition.metadata` says, which is there unless it is `NO_TOPIC_ID`. `checkpoint_now`:
    see `Log`. OSError from the disk."""
    segments = SegmentList(context, folder, [create_segment(context, folder, 0, config, random)], random)
    return Log(
        context,
        topic_partition,
        None if topic_id == NO_TOPIC_ID else topic_id,
        config,
        segments,
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        durable_log_start_offset=0,
        epochs=LeaderEpochCache(),
        producers=LogProducers(context, segments, ProducerSnapshots(context.disk, folder, [])),
        checkpoint_now=checkpoint_now,
    )
