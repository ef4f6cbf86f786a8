"""How far a stream has come: the offset dictionary that Spark keeps in the checkpoint. Pure.

    {"clicks": {"0": 42, "1": 17}, "#ids": {"clicks": "9hW…"}, "#initial": {"clicks": {"0": 40, "1": 17}}}

Rules:
* Per topic and partition the next offset to read, as Spark's Kafka source writes it, whose form is read, too.
* `#ids` (no topic has `#` in its name) tells which of the topics that had this name is meant: one that is created anew
  counts from 0 again. Where the id is not known it is left out, and nothing is compared.
* Spark does not persist the first offset of a Python source, it asks for it again after a crash. So the first one is
  marked (`#new`), and the end of the first batch, which Spark does persist, carries it (`#initial`): whenever a start
  is marked, what the end carries counts. The first end differs from its start even where there is nothing to read:
  an empty first batch writes it down.
* Equal positions are equal dictionaries: Spark compares the text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.spark_connector.errors import UnreadableOffset

_IDS, _INITIAL, _NEW = "#ids", "#initial", "#new"

Positions = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Where each partition goes on; `initial`: where the stream began, in the end of its first batch; `is_new`: nothing
    of the stream was read yet."""

    positions: Positions
    topic_ids: Mapping[str, TopicId] = field(default_factory=dict)
    initial: Positions | None = None
    is_new: bool = False

    def is_same_topic(self, topic: str, other: TopicId) -> bool:
        """False: the topic was created anew. An id that is not known differs from none."""
        own = self.topic_ids.get(topic, NO_TOPIC_ID)
        return NO_TOPIC_ID in (own, other) or own == other


def to_json(offset: StreamOffset) -> dict[str, Any]:
    """The dictionary that Spark keeps."""
    found: dict[str, Any] = _by_topic(offset.positions)
    ids = {
        topic: base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        for topic, topic_id in sorted(offset.topic_ids.items())
        if topic_id != NO_TOPIC_ID
    }
    if ids:
        found[_IDS] = ids
    if offset.initial is not None:
        found[_INITIAL] = _by_topic(offset.initial)
    if offset.is_new:
        found[_NEW] = True
    return found


def from_json(found: Mapping[str, Any]) -> StreamOffset:
    """What a checkpoint holds. UnreadableOffset: no stream of this source, nor of Spark's Kafka source, wrote it."""
    try:
        positions = {topic: numbers for topic, numbers in found.items() if not topic.startswith("#")}
        ids = {topic: _topic_id(text) for topic, text in found.get(_IDS, {}).items()}
        initial = found.get(_INITIAL)
        return StreamOffset(
            _positions(positions), ids, None if initial is None else _positions(initial), bool(found.get(_NEW, False))
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise UnreadableOffset(
            f"the checkpoint holds an offset that is not understood ({error}): {str(found)[:300]!r}; it belongs to "
            "another source: give this query a checkpoint of its own"
        ) from None


def effective_start(start: StreamOffset, end: StreamOffset) -> StreamOffset:
    """Where the batch that ends at `end` begins: what `end` carries, where `start` was only asked for again."""
    if start.is_new and end.initial is not None:
        return StreamOffset(end.initial, end.topic_ids)
    return start


def _by_topic(positions: Positions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for partition, offset in sorted(positions.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


def _positions(found: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    positions = {}
    for topic, numbers in found.items():
        for number, offset in numbers.items():
            if type(offset) is not int or offset < 0 or not number.isascii():
                raise ValueError(f"{topic}-{number} is {offset!r}")
            positions[TopicPartition(topic, int(number))] = offset
    return positions


def _topic_id(text: str) -> TopicId:
    try:
        found = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is no topic id: {error}") from None
    if len(found) != len(NO_TOPIC_ID):
        raise ValueError(f"{text!r} is no topic id")
    return found
