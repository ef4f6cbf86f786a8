"""The answer to a request that failed as a whole: the response class of its API with the code in every place where the
client looks for one (each topic or partition that it asked about, or the response's own `error_code`).

Where the request itself could not be read, or asked about nothing, responses without an `error_code` of their own carry
one element that names no topic, so that the client still sees a typed error. The text stands in `error_message`, of
each element or of the response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.protocol import messages as m
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import Message, Request
from strandline.protocol.types import NO_PARTITION, NO_TOPIC


def error_response(request: Request, code: ErrorCode, text: str | None = None) -> Message:
    """The response that fails `request` with `code`. `text`: one line for classes that carry an error message."""
    return _FACTORIES[type(request)](request, int(code), text)


def unreadable_response(request_class: type[Request], code: ErrorCode, text: str | None = None) -> Message:
    """The same for a request whose body could not be read."""
    return _FACTORIES[request_class](None, int(code), text)


def _api_versions(_: object, code: int, __: str | None) -> Message:
    return m.ApiVersionsResponse(code, [])


def _produce(request: m.ProduceRequest | None, code: int, text: str | None) -> Message:
    if request is None or not request.topic_data:
        partition = m.PartitionProduceResponse(NO_PARTITION, code, error_message=text)
        return m.ProduceResponse([m.TopicProduceResponse(NO_TOPIC, [partition])])
    return m.ProduceResponse(
        [
            m.TopicProduceResponse(
                topic.name,
                [m.PartitionProduceResponse(part.index, code, error_message=text) for part in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: m.FetchRequest | None, code: int, text: str | None) -> Message:
    topics = [] if request is None else request.topics
    return m.FetchResponse(
        [
            m.FetchTopicResponse(
                topic.topic, [m.FetchPartitionData(part.partition, code, -1) for part in topic.partitions]
            )
            for topic in topics
        ],
        error_code=code,
        error_message=text,
    )


def _per_partition(
    response: Callable[..., Message],
    topic_result: Callable[..., Message],
    partition_result: Callable[..., Message],
    topic_field: str,
    partition_field: str,
) -> Callable[[Any, int, str | None], Message]:
    """The factory of a response that has nothing but topics of partitions; the fields are those of its request."""

    def fail(request: Any, code: int, text: str | None) -> Message:
        if request is None or not request.topics:
            return response([topic_result(NO_TOPIC, [partition_result(NO_PARTITION, code)])], error_message=text)
        return response(
            [
                topic_result(
                    getattr(topic, topic_field),
                    [partition_result(getattr(part, partition_field), code) for part in topic.partitions],
                )
                for topic in request.topics
            ],
            error_message=text,
        )

    return fail


def _metadata(request: m.MetadataRequest | None, code: int, text: str | None) -> Message:
    names = (request.topics if request is not None else None) or [NO_TOPIC]
    return m.MetadataResponse([], [m.MetadataTopic(code, name, []) for name in names], error_message=text)


def _create_topics(request: m.CreateTopicsRequest | None, code: int, text: str | None) -> Message:
    names = [topic.name for topic in request.topics] if request is not None else []
    return m.CreateTopicsResponse([m.CreatableTopicResult(name, code, text) for name in names or [NO_TOPIC]])


def _delete_topics(request: m.DeleteTopicsRequest | None, code: int, text: str | None) -> Message:
    names = request.topic_names if request is not None else []
    return m.DeleteTopicsResponse([m.DeletableTopicResult(name, code, text) for name in names or [NO_TOPIC]])


def _elect_leaders(_: object, code: int, text: str | None) -> Message:
    return m.ElectLeadersResponse([], code, text)


def _leader_and_isr(_: object, code: int, __: str | None) -> Message:
    return m.LeaderAndIsrResponse(code, [])


def _stop_replica(_: object, code: int, __: str | None) -> Message:
    return m.StopReplicaResponse(code, [])


def _update_metadata(_: object, code: int, __: str | None) -> Message:
    return m.UpdateMetadataResponse(code)


def _controlled_shutdown(_: object, code: int, __: str | None) -> Message:
    return m.ControlledShutdownResponse(code, [])


_FACTORIES: dict[type[Request], Callable[[Any, int, str | None], Message]] = {
    m.ApiVersionsRequest: _api_versions,
    m.ControlledShutdownRequest: _controlled_shutdown,
    m.CreateTopicsRequest: _create_topics,
    m.DeleteRecordsRequest: _per_partition(
        m.DeleteRecordsResponse, m.DeleteRecordsTopicResult, m.DeleteRecordsPartitionResult, "name", "partition_index"
    ),
    m.DeleteTopicsRequest: _delete_topics,
    m.ElectLeadersRequest: _elect_leaders,
    m.FetchRequest: _fetch,
    m.LeaderAndIsrRequest: _leader_and_isr,
    m.ListOffsetsRequest: _per_partition(
        m.ListOffsetsResponse, m.ListOffsetsTopicResponse, m.ListOffsetsPartitionResponse, "name", "partition_index"
    ),
    m.MetadataRequest: _metadata,
    m.OffsetForLeaderEpochRequest: _per_partition(
        m.OffsetForLeaderEpochResponse,
        m.OffsetForLeaderTopicResponse,
        m.OffsetForLeaderPartitionResponse,
        "topic",
        "partition",
    ),
    m.ProduceRequest: _produce,
    m.StopReplicaRequest: _stop_replica,
    m.UpdateMetadataRequest: _update_metadata,
}
