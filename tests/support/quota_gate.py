"""A gate of quotas before handlers of the test's choice, behind a whole pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from strandline.broker.network.dialects import Dialect
from strandline.broker.network.dialects.native import NATIVE
from strandline.broker.network.request import RequestInHand
from strandline.broker.network.request_channel import Handler
from strandline.broker.quotas.entities import DEFAULT, OF_CLIENTS, QuotaEntity
from strandline.broker.quotas.gate import QuotaGate
from strandline.broker.quotas.sensors import Sensors, Windows
from strandline.broker.steps import PARTITIONS_PER_STEP, InSteps
from strandline.protocol.api import ApiKey
from strandline.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetForLeaderEpochResponse,
    ProduceRequest,
    ProduceResponse,
)
from support.pipeline import Pipeline, open_pipeline

EVERYBODY = QuotaEntity(DEFAULT)
RECORDS = bytes(3000)


class Clock:
    """Of the time that handlers take: each takes `cost_s`, and the end of a burst `end_cost_s`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cost_s = 0.0
        self.end_cost_s = 0.0

    def end_burst(self) -> None:
        self.now += self.end_cost_s

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def gated(
    key: str,
    bound: float,
    *,
    is_inter_broker: bool = False,
    dialects: Sequence[Dialect] = (NATIVE,),
    max_queued_bytes: int = 64 * 1024 * 1024,
) -> AsyncIterator[tuple[Pipeline, Clock, dict[str, Sensors], list[Any]]]:
    clock, seen = Clock(), list[Any]()
    sensors = {each: Sensors(each, Windows(1, 11, 1)) for each in OF_CLIENTS}
    sensors[key].set_bounds({EVERYBODY: bound}, 0.0)

    def produce(request: RequestInHand[ProduceRequest]) -> None:
        seen.append(request.message)
        clock.now += clock.cost_s
        if request.message.acks:
            request.respond(ProduceResponse([]))
        else:
            request.no_response()

    def fetch(request: RequestInHand[FetchRequest]) -> None:
        seen.append(request.message)
        data = FetchPartitionData(0, 0, 9)
        request.respond(FetchResponse([FetchTopicResponse("t", [data])]), [RECORDS])

    def metadata(request: RequestInHand[MetadataRequest]) -> None:
        seen.append(request.message)
        clock.now += clock.cost_s
        request.respond(MetadataResponse([], []))

    def versions(request: RequestInHand[ApiVersionsRequest]) -> None:
        clock.now += clock.cost_s
        request.respond(ApiVersionsResponse(0, []))

    def list_offsets(request: RequestInHand[ListOffsetsRequest]) -> InSteps:
        def work() -> Iterator[int]:
            for _ in range(2):
                clock.now += clock.cost_s
                yield PARTITIONS_PER_STEP
            request.respond(ListOffsetsResponse([]))

        return InSteps(work())

    async def create(request: RequestInHand[CreateTopicsRequest]) -> CreateTopicsResponse:
        clock.now += clock.cost_s
        await trio.sleep(1)
        clock.now += clock.cost_s
        return CreateTopicsResponse([])

    handlers: dict[ApiKey, Handler] = {
        ApiKey.PRODUCE: produce,
        ApiKey.FETCH: fetch,
        ApiKey.METADATA: metadata,
        ApiKey.CREATE_TOPICS: create,
        ApiKey.LIST_OFFSETS: list_offsets,
        ApiKey.API_VERSIONS: versions,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda request: request.respond(OffsetForLeaderEpochResponse([])),
    }
    async with open_pipeline(
        handlers,
        dialects=dialects,
        end_of_burst=clock.end_burst,
        is_inter_broker=is_inter_broker,
        max_queued_bytes=max_queued_bytes,
    ) as pipeline:
        gate = QuotaGate(sensors, clock=clock)
        pipeline.channel.switch_gate(gate, gate.end_burst)
        pipeline.channel.before_large, pipeline.channel.debt_of = gate.before_large, gate.debt_of
        pipeline.channel.passage_of = gate.passage_of
        yield pipeline, clock, sensors, seen
