"""The answer to a request that failed as a whole: the response class of its API with the code in every place where the
client looks for one (each topic or partition that it asked about, or the response's own `error_code`).

Where the request itself could not be read (None here), or asked about nothing, responses without an `error_code` of
their own carry one element that names no topic, so that the client still sees a typed error. The text stands in
`error_message`, of each element or of the response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.protocol import messages as m
from strandline.protocol.messages.base import Message
from strandline.protocol.types import NO_BROKER, NO_PARTITION, NO_TOPIC

NO_GROUP = ""

Failure = Callable[[Any, int, str | None], Message]
"""(request, or None where it could not be read; error code; one line of text) → the response."""


def of_the_whole(response: Callable[..., Message], *nothing: object) -> Failure:
    """Of a response that begins with an error code; `nothing` is the rest of it."""
    return lambda request, code, text: response(code, *nothing)


def with_message(response: Callable[..., Message]) -> Failure:
    """Of a response that has an error code and a message, and may lack all the rest."""
    return lambda request, code, text: response(error_code=code, error_message=text)


def produce(request: m.ProduceRequest | None, code: int, text: str | None) -> Message:
    asked = [] if request is None else request.topic_data
    topics = [(topic.name, [part.index for part in topic.partition_data]) for topic in asked]
    return m.ProduceResponse(
        [
            m.TopicProduceResponse(
                name, [m.PartitionProduceResponse(index, code, error_message=text) for index in indexes]
            )
            for name, indexes in topics or [(NO_TOPIC, [NO_PARTITION])]
        ]
    )


def fetch(request: m.FetchRequest | None, code: int, text: str | None) -> Message:
    topics = [] if request is None else request.topics
    return m.FetchResponse(
        [
            m.FetchTopicResponse(
                topic.topic,
                [m.FetchPartitionData(part.partition, code, -1) for part in topic.partitions],
                topic.topic_id,
            )
            for topic in topics
        ],
        error_code=code,
        error_message=text,
    )


def per_partition(
    response: Callable[..., Message],
    topic_result: Callable[..., Message],
    partition_result: Callable[..., Message],
    topic_field: str,
    partition_field: str,
) -> Failure:
    """Of a response that has nothing but topics of partitions; the fields are those of its request."""

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


def metadata(request: m.MetadataRequest | None, code: int, text: str | None) -> Message:
    by_id = [] if request is None else [m.MetadataTopic(code, None, [], topic_id) for topic_id in request.topic_ids]
    names = (request.topics if request is not None else None) or ([] if by_id else [NO_TOPIC])
    return m.MetadataResponse([], [*(m.MetadataTopic(code, name, []) for name in names), *by_id], error_message=text)


def create_topics(request: m.CreateTopicsRequest | None, code: int, text: str | None) -> Message:
    names = [topic.name for topic in request.topics] if request is not None else []
    return m.CreateTopicsResponse([m.CreatableTopicResult(name, code, text) for name in names or [NO_TOPIC]])


def delete_topics(request: m.DeleteTopicsRequest | None, code: int, text: str | None) -> Message:
    asked = request.asked() if request is not None else []
    return m.DeleteTopicsResponse(
        [
            m.DeletableTopicResult(topic.name, code, text, topic.topic_id)
            for topic in asked or [m.DeleteTopicState(NO_TOPIC)]
        ]
    )


def create_partitions(request: m.CreatePartitionsRequest | None, code: int, text: str | None) -> Message:
    names = [topic.name for topic in request.topics] if request is not None else []
    results = [m.CreatePartitionsTopicResult(name, code, text) for name in names or [NO_TOPIC]]
    return m.CreatePartitionsResponse(results)


def per_resource(response: Callable[..., Message], result: Callable[..., Message]) -> Failure:
    """Of a response about configurations: a list of (code, text, type, name)."""

    def fail(request: Any, code: int, text: str | None) -> Message:
        asked = [] if request is None else [(each.resource_type, each.resource_name) for each in request.resources]
        return response([result(code, text, *each) for each in asked or [(m.ConfigResource.UNKNOWN, NO_TOPIC)]])

    return fail


def elect_leaders(request: m.ElectLeadersRequest | None, code: int, text: str | None) -> Message:
    """Each partition that was named has the error, too: Kafka's version 0 has no other place for it."""
    named = (request.topic_partitions if request is not None else None) or [
        m.ElectLeadersTopic(NO_TOPIC, [NO_PARTITION])
    ]
    results = [
        m.ElectLeadersTopicResult(
            topic.topic, [m.ElectLeadersPartitionResult(partition, code, text) for partition in topic.partitions]
        )
        for topic in named
    ]
    return m.ElectLeadersResponse(results, code, text)


def describe_log_dirs(request: m.DescribeLogDirsRequest | None, code: int, text: str | None) -> Message:
    """Kafka's versions below 3 have no error code but those of directories."""
    return m.DescribeLogDirsResponse(code, [m.DescribeLogDirsResult(code, "")], error_message=text)


def alter_replica_log_dirs(request: m.AlterReplicaLogDirsRequest | None, code: int, text: str | None) -> Message:
    asked = [] if request is None else [topic for each in request.dirs for topic in each.topics]
    results = [
        m.AlterReplicaLogDirTopicResult(
            topic.name, [m.AlterReplicaLogDirPartitionResult(index, code) for index in topic.partitions]
        )
        for topic in asked or [m.AlterReplicaLogDirTopic(NO_TOPIC, [NO_PARTITION])]
    ]
    return m.AlterReplicaLogDirsResponse(results, error_message=text)


def describe_producers(request: m.DescribeProducersRequest | None, code: int, text: str | None) -> Message:
    topics = [(topic.name, topic.partition_indexes) for topic in request.topics] if request is not None else []
    return m.DescribeProducersResponse(
        [
            m.DescribeProducersTopicResponse(
                name, [m.DescribeProducersPartitionResponse(index, code, text) for index in indexes]
            )
            for name, indexes in topics or [(NO_TOPIC, [NO_PARTITION])]
        ]
    )


def alter_client_quotas(request: m.AlterClientQuotasRequest | None, code: int, text: str | None) -> Message:
    entities = [] if request is None else [entry.entity for entry in request.entries]
    return m.AlterClientQuotasResponse([m.AlterQuotaResult(code, text, entity) for entity in entities or [[]]])


def find_coordinator(request: m.FindCoordinatorRequest | None, code: int, text: str | None) -> Message:
    keys = [NO_GROUP] if request is None else request.coordinator_keys or []
    found = [m.Coordinator(key, NO_BROKER, "", -1, code, text) for key in keys]
    return m.FindCoordinatorResponse(code, text, coordinators=found)


def describe_groups(request: m.DescribeGroupsRequest | None, code: int, text: str | None) -> Message:
    names = request.groups if request is not None else []
    return m.DescribeGroupsResponse([m.DescribedGroup(code, name) for name in names or [NO_GROUP]])


def delete_groups(request: m.DeleteGroupsRequest | None, code: int, text: str | None) -> Message:
    names = request.groups_names if request is not None else []
    return m.DeleteGroupsResponse([m.DeletableGroupResult(name, code) for name in names or [NO_GROUP]])


def offset_fetch(request: m.OffsetFetchRequest | None, code: int, text: str | None) -> Message:
    """Old clients look at the partitions, later ones at the whole, the latest at each group."""
    asked = [m.OffsetFetchRequestGroup(NO_GROUP)] if request is None else request.groups or []
    nothing = [m.OffsetFetchRequestTopic(NO_TOPIC, [NO_PARTITION])]
    topics = [
        m.OffsetFetchResponseTopic(
            topic.name, [m.OffsetFetchResponsePartition(index, error_code=code) for index in topic.partition_indexes]
        )
        for topic in (nothing if request is None else request.topics or [])
    ]
    return m.OffsetFetchResponse(code, topics, [m.OffsetFetchResponseGroup(each.group_id, [], code) for each in asked])
