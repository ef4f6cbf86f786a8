"""InitProducerId, over connections: ids at once, one block for all who wait, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from strandline.broker.handlers.producer_ids import BLOCK_TIMEOUT_S, ProducerIdHandler
from strandline.broker.membership.producer_ids import ProducerIdsUsedUp
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from strandline.protocol.znodes import InvalidZnode
from strandline.runtime.coordination import ConnectionLost, CoordinationError, SessionExpired
from support.pipeline import Pipeline, open_pipeline
from support.raw_client import RawClient, request_frame

ASK = InitProducerIdRequest()


class Blocks:
    """ZooKeeper by script: blocks of three ids, once `gate` is open, or an error."""

    def __init__(self) -> None:
        self.taken = 0
        self.gate = trio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def take(self) -> range:
        self.taken += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return range(3 * self.taken, 3 * self.taken + 3)


@asynccontextmanager
async def serving(blocks: Blocks) -> AsyncIterator[Pipeline]:
    flushes: list[Callable[[], None]] = []
    handler = ProducerIdHandler(blocks.take, lambda: flushes[0](), structlog.get_logger())
    async with open_pipeline({ApiKey.INIT_PRODUCER_ID: handler.handle}) as pipeline, trio.open_nursery() as nursery:
        flushes.append(pipeline.channel.flush_responses)
        nursery.start_soon(handler.run)
        yield pipeline
        nursery.cancel_scope.cancel()


async def answer(client: RawClient) -> InitProducerIdResponse:
    response: Any = await client.response()
    assert response is not None and isinstance(response.message, InitProducerIdResponse)
    return response.message


async def ask(pipeline: Pipeline, message: InitProducerIdRequest = ASK) -> InitProducerIdResponse:
    client = await pipeline.connect()
    await client.send(request_frame(message))
    return await answer(client)


async def test_each_id_is_given_out_once_with_epoch_0(autojump_clock: MockClock) -> None:
    blocks = Blocks()
    async with serving(blocks) as pipeline:
        answers = [await ask(pipeline) for _ in range(7)]
    assert [(each.error_code, each.producer_id, each.producer_epoch) for each in answers] == [
        (0, producer_id, 0) for producer_id in range(3, 10)
    ]
    assert blocks.taken == 3, "a block is asked for when the one before is used up"


async def test_all_who_wait_share_one_block_request_and_are_answered_in_their_order(autojump_clock: MockClock) -> None:
    blocks = Blocks()
    blocks.gate = trio.Event()
    async with serving(blocks) as pipeline:
        client, other = await pipeline.connect(), await pipeline.connect()
        await client.send(request_frame(ASK) * 2)
        await wait_all_tasks_blocked()
        await other.send(request_frame(ASK) * 2)
        await wait_all_tasks_blocked()
        assert blocks.taken == 1
        blocks.gate.set()
        assert [(await answer(client)).producer_id for _ in range(2)] == [3, 4]
        assert [(await answer(other)).producer_id for _ in range(2)] == [5, 6]
    assert blocks.taken == 2


async def test_who_waits_too_long_is_told_to_ask_again_and_then_gets_an_id(autojump_clock: MockClock) -> None:
    blocks = Blocks()
    blocks.gate = trio.Event()
    async with serving(blocks) as pipeline:
        begin = trio.current_time()
        refused = await ask(pipeline)
        assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            -1,
            -1,
        )
        assert trio.current_time() - begin <= BLOCK_TIMEOUT_S + 1
        blocks.gate.set()
        assert (await ask(pipeline)).error_code == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionLost("x"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (SessionExpired("x"), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (InvalidZnode("/x", "why"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ProducerIdsUsedUp("x"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (CoordinationError("no rights"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_all_who_wait_are_told_why_there_is_no_id(
    error: Exception, code: ErrorCode, autojump_clock: MockClock
) -> None:
    blocks = Blocks()
    blocks.error = error
    async with serving(blocks) as pipeline:
        client = await pipeline.connect()
        await client.send(request_frame(ASK) * 2)
        assert [(await answer(client)).error_code for _ in range(2)] == [code, code]
        blocks.error = None
        assert (await ask(pipeline)).error_code == 0, "the next one asks anew"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (InitProducerIdRequest("tx", 60_000), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (InitProducerIdRequest("tx", 60_000, 5, 1), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (InitProducerIdRequest(""), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(None, 0, 5, -1), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(None, 0, -1, 0), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_is_not_served_is_refused_at_once(
    message: InitProducerIdRequest, code: ErrorCode, autojump_clock: MockClock
) -> None:
    async with serving(Blocks()) as pipeline:
        refused = await ask(pipeline, message)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (code, -1, -1)


async def test_who_had_an_id_gets_a_new_one_with_epoch_0_as_from_kafka(autojump_clock: MockClock) -> None:
    async with serving(Blocks()) as pipeline:
        given = await ask(pipeline, InitProducerIdRequest(None, 0, 3, 7))
        assert (await ask(pipeline)).producer_id == given.producer_id + 1
    assert (given.error_code, given.producer_epoch) == (0, 0)


async def test_a_first_block_is_taken_before_anybody_asks(autojump_clock: MockClock) -> None:
    blocks = Blocks()
    async with serving(blocks) as pipeline:
        await wait_all_tasks_blocked()
        blocks.gate = trio.Event()
        assert [(await ask(pipeline)).producer_id for _ in range(3)] == [3, 4, 5], "ZooKeeper may be away by now"
