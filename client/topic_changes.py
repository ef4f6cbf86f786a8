"""Topics that are to be created or deleted, and what became of each.

"Exists already" after a creation whose answer was lost, and "unknown" after such a deletion, count as done.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from strandline.client.errors import AnsweredError, error_for
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    CreatableTopic,
    CreatableTopicResult,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from strandline.protocol.types import NO_TOPIC, NO_TOPIC_ID, TopicId


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. −1: the broker's default. `assignments`: partition → replica ids, instead of both counts."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None
    assignments: Mapping[int, Sequence[int]] | None = None


class CreatedTopic(NamedTuple):
    name: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int


def creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        topic.name,
        topic.num_partitions if topic.assignments is None else -1,
        topic.replication_factor if topic.assignments is None else -1,
        {index: list(replicas) for index, replicas in (topic.assignments or {}).items()},
        {key: str(value) for key, value in (topic.configs or {}).items()},
    )


def created(result: CreatableTopicResult, topic: NewTopic, *, may_have_been_us: bool) -> CreatedTopic | AnsweredError:
    if result.error_code == ErrorCode.NONE:
        return CreatedTopic(result.name, result.topic_id, result.num_partitions, result.replication_factor)
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and may_have_been_us:
        return CreatedTopic(topic.name, result.topic_id, topic.num_partitions, topic.replication_factor)
    return error_for(result.error_code, f"creating topic {result.name!r}", detail=result.error_message)


def raise_whole_refusal(result: CreatableTopicResult | DeletableTopicResult, asked: Container[str], what: str) -> None:
    """The error of an answer that names no topic: the request was refused as a whole."""
    if result.name == NO_TOPIC and result.error_code and NO_TOPIC not in asked:
        raise error_for(result.error_code, what, detail=result.error_message)


def told_apart(
    found: Mapping[str, TopicId | AnsweredError],
) -> tuple[dict[TopicId, str], dict[str, AnsweredError | None]]:
    """The names of those that have an id, by it; and of all why they are not deleted, None where nothing is known that
    is against it."""
    ids = {each: name for name, each in found.items() if isinstance(each, bytes) and each != NO_TOPIC_ID}
    return ids, {name: each if isinstance(each, AnsweredError) else None for name, each in found.items()}


def deletion(names: Collection[str], ids: Mapping[TopicId, str], wait_ms: int) -> DeleteTopicsRequest:
    """Each by its id where that is known."""
    by_id = {name: DeleteTopicState(topic_id=topic_id) for topic_id, name in ids.items() if name in names}
    return DeleteTopicsRequest([name for name in names if name not in by_id], wait_ms, list(by_id.values()))


def deleted(result: DeletableTopicResult, name: str, *, may_have_been_us: bool) -> AnsweredError | None:
    is_gone = result.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    if result.error_code == ErrorCode.NONE or (is_gone and may_have_been_us):
        return None
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_gone else result.error_code
    return error_for(code, f"deleting topic {name!r}", detail=result.error_message)
