"""What operators look at: who the brokers are, what lies in the log directories, which producers a log knows.

DescribeCluster, AlterReplicaLogDirs and DescribeProducers are answered inline or in steps, DescribeLogDirs by a handler
task, since how much room a volume has is asked of it. Nothing else of these answers needs the disk: a log knows its
size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import trio

from strandline.broker.network.request import Remainder, RequestInHand
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import InSteps, at_once_or_in_steps
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    ALL_CLUSTER_OPERATIONS,
    BROKERS_ENDPOINT,
    CONTROLLERS_ENDPOINT,
    OPERATIONS_NOT_ASKED_FOR,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    ProducerState,
)
from strandline.protocol.types import NO_OFFSET, TopicPartition
from strandline.runtime.disk import Disk, DiskSpace
from strandline.runtime.environment import Blocking
from strandline.storage.manager.log_manager import LogManager

VOLUME_PATIENCE_S = 2.0
"""A volume that does not say how much room it has does not hold the answer up."""

NO_SPACE_KNOWN = DiskSpace(-1, -1)


class InventoryHandler:
    """Answers from this broker's logs and the metadata cache."""

    def __init__(
        self, logs: LogManager, replicas: Replicas, disk: Disk, blocking: Blocking, *, cluster_id: str
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._disk = disk
        self._blocking = blocking
        self._cluster_id = cluster_id

    # --- DescribeCluster ---------------------------------------------------------------------------------------

    def describe_cluster(self, request: RequestInHand[DescribeClusterRequest]) -> None:
        """Brokers at the address that the asking listener advertises."""
        asked, metadata = request.message, self._replicas.metadata
        if asked.endpoint_type == CONTROLLERS_ENDPOINT:
            raise BrokerError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a broker: its cluster has no controllers")
        if asked.endpoint_type != BROKERS_ENDPOINT:
            raise BrokerError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"unknown endpoint type {asked.endpoint_type}")
        request.respond(
            DescribeClusterResponse(
                0,
                cluster_id=self._cluster_id,
                controller_id=metadata.controller_id,
                brokers=[
                    DescribeClusterBroker(broker.id, endpoint.host, endpoint.port, broker.rack)
                    for broker in metadata.brokers.values()
                    for endpoint in broker.endpoints
                    if endpoint.listener == request.context.listener_name
                ],
                cluster_authorized_operations=ALL_CLUSTER_OPERATIONS
                if asked.include_cluster_authorized_operations
                else OPERATIONS_NOT_ASKED_FOR,
            )
        )

    # --- DescribeLogDirs ---------------------------------------------------------------------------------------

    async def describe_log_dirs(self, request: RequestInHand[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
        """Each directory, in the order of `log.dirs`, and which of the partitions asked about lie in it: those that
        lie elsewhere, or nowhere, are left out, as in Kafka. A directory that failed is KAFKA_STORAGE_ERROR."""
        spaces: dict[str, DiskSpace] = {}
        async with trio.open_nursery() as nursery:
            for directory in self._logs.directories.online():
                nursery.start_soon(self._ask_for_space, directory.path, spaces)
        found: dict[str, dict[str, DescribeLogDirsTopic]] = defaultdict(dict)
        await InSteps(self._find(request.message, found))()
        results: list[DescribeLogDirsResult] = []
        for directory in self._logs.directories:
            if directory.health.failure is not None:
                results.append(DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, directory.path))
                continue
            topics, space = [*found[directory.path].values()], spaces.get(directory.path, NO_SPACE_KNOWN)
            results.append(DescribeLogDirsResult(0, directory.path, topics, space.total_bytes, space.free_bytes))
        return DescribeLogDirsResponse(0, results)

    async def _ask_for_space(self, path: str, spaces: dict[str, DiskSpace]) -> None:
        """A disk that failed, or does not answer, says nothing here: whoever uses it finds out."""
        with trio.move_on_after(VOLUME_PATIENCE_S):
            try:
                spaces[path] = await self._blocking.run_in(path, self._disk.space, path, abandon=True)
            except OSError:
                pass

    def _find(self, asked: DescribeLogDirsRequest, found: dict[str, dict[str, DescribeLogDirsTopic]]) -> Iterator[int]:
        """By directory, then by topic. Each log as it is at its turn."""
        if asked.topics is None:
            wanted = dict.fromkeys(self._logs.logs)
        else:
            wanted = {TopicPartition(topic.topic, index): None for topic in asked.topics for index in topic.partitions}
        for tp in wanted:
            log = self._logs.get(tp)
            if log is not None:
                partition = self._replicas.partitions.get(tp)
                lag = NO_OFFSET if partition is None else max(partition.high_watermark - log.log_end_offset, 0)
                topics = found[log.segments.folder.rpartition("/")[0]]
                topic = topics.setdefault(tp.topic, DescribeLogDirsTopic(tp.topic, []))
                topic.partitions.append(DescribeLogDirsPartition(tp.partition, log.segments.size_bytes, lag))
            yield 1

    # --- AlterReplicaLogDirs -----------------------------------------------------------------------------------

    def alter_replica_log_dirs(self, request: RequestInHand[AlterReplicaLogDirsRequest]) -> Remainder | None:
        """Nothing is moved between directories: a broker chooses one when it makes a log. What lies where it should is
        well; the plans that Kafka's tool prints for the way back ask for that. A replica that is not here is
        REPLICA_NOT_AVAILABLE: the tool asks again until it has come. One that lies elsewhere: UNSUPPORTED_VERSION."""
        partitions = sum(len(topic.partitions) for each in request.message.dirs for topic in each.topics)
        return at_once_or_in_steps(self._judge_directories(request), partitions)

    def _judge_directories(self, request: RequestInHand[AlterReplicaLogDirsRequest]) -> Iterator[int]:
        failed = {each.path: each.health.failure is not None for each in self._logs.directories}
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        for asked in request.message.dirs:
            for topic in asked.topics:
                result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic.name, []))
                for index in topic.partitions:
                    log = self._logs.get(TopicPartition(topic.name, index))
                    if asked.path not in failed:
                        code = ErrorCode.LOG_DIR_NOT_FOUND
                    elif failed[asked.path]:
                        code = ErrorCode.KAFKA_STORAGE_ERROR
                    elif log is None:
                        code = ErrorCode.REPLICA_NOT_AVAILABLE
                    else:
                        is_there = log.segments.folder.rpartition("/")[0] == asked.path
                        code = ErrorCode.NONE if is_there else ErrorCode.UNSUPPORTED_VERSION
                    result.partitions.append(AlterReplicaLogDirPartitionResult(index, code))
                    yield 1
        request.respond(AlterReplicaLogDirsResponse([*results.values()]))

    # --- DescribeProducers -------------------------------------------------------------------------------------

    def describe_producers(self, request: RequestInHand[DescribeProducersRequest]) -> Remainder | None:
        """From any replica that is here. A partition or a producer that is named twice is INVALID_REQUEST: what may be
        much is told once."""
        wanted = [
            TopicPartition(topic.name, index) for topic in request.message.topics for index in topic.partition_indexes
        ]
        if len(set(wanted)) < len(wanted):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a DescribeProducers request names a partition twice")
        asked = request.message.producer_ids
        if asked is not None and len(set(asked)) < len(asked):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "a DescribeProducers request names a producer twice")
        logs = [log for tp in wanted if (log := self._logs.get(tp)) is not None]
        producers = sum(len(log.producers.states) if asked is None else len(asked) for log in logs)
        return at_once_or_in_steps(self._tell_producers(request), len(wanted) + producers)

    def _tell_producers(self, request: RequestInHand[DescribeProducersRequest]) -> Iterator[int]:
        topics = [DescribeProducersTopicResponse(topic.name, []) for topic in request.message.topics]
        for topic, answer in zip(request.message.topics, topics, strict=True):
            for index in topic.partition_indexes:
                states: list[ProducerState] = []
                code = self._why_no_replica(topic.name, index)
                if not code:
                    asked = request.message.producer_ids
                    yield from self._tell_states(TopicPartition(topic.name, index), asked, states)
                answer.partitions.append(DescribeProducersPartitionResponse(index, code, active_producers=states))
                yield 1
        request.respond(DescribeProducersResponse(topics))

    def _tell_states(self, tp: TopicPartition, asked: Sequence[int] | None, told: list[ProducerState]) -> Iterator[int]:
        """Others run in between, so producers may come and go: the list is of those at the beginning, each is told as
        it is at its turn. asked: of these only, None: of all."""
        states = self._replicas.partitions[tp].log.producers.states
        for producer_id in list(states) if asked is None else asked:
            producer = states.get(producer_id)
            if producer is not None:
                told.append(
                    ProducerState(
                        producer_id,
                        producer.epoch,
                        producer.batches[-1].last_sequence if producer.batches else -1,
                        producer.timestamp_ms,
                        producer.coordinator_epoch,
                        producer.transaction_start,
                        producer.last_offset,
                    )
                )
            yield 1

    def _why_no_replica(self, topic: str, index: int) -> int:
        """0, or why this broker can say nothing of that partition."""
        partition = self._replicas.partitions.get((topic, index))
        if partition is None or partition.failed:
            return self._replicas.why_not_leading(topic, index, partition)[0]
        return 0
