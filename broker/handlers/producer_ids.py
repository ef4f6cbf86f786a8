"""InitProducerId: a producer that wants to be idempotent asks any broker for an id.

    request ──an id is in hand──> answered within its burst
            ──none is──> waiting ──one block for all who wait──> answered

Whoever waits holds no handler task: ZooKeeper may be away for long. After `BLOCK_TIMEOUT_S`, or where the connection to
ZooKeeper breaks, all who wait are told COORDINATOR_LOAD_IN_PROGRESS, upon which clients ask again. What does not mend
by itself (a znode that cannot be read) is UNKNOWN_SERVER_ERROR, as Kafka's.

An id comes with epoch 0. Who names the id that it had (KIP-360) gets a new one, as from Kafka: only a transactional
producer keeps its id. Transactions are not served: TRANSACTIONAL_ID_AUTHORIZATION_FAILED is the code upon which both
Kafka's client and librdkafka give up at once; after others one of them asks for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator

import trio

from strandline.broker.membership.producer_ids import ProducerIdsUsedUp
from strandline.broker.network.request import RequestInHand
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from strandline.protocol.types import NO_EPOCH, NO_PRODUCER_ID
from strandline.protocol.znodes import InvalidZnode
from strandline.runtime.coordination import ConnectionLost, CoordinationError, SessionExpired
from strandline.runtime.logging import Logger, RateLimited

BLOCK_TIMEOUT_S = 5.0
"""Well below the request timeouts of clients, 30 s and more."""


class ProducerIdHandler:
    """See the module. `run` takes a first block, so that producers may begin while ZooKeeper is away, and answers who
    waits, until cancelled. take_block: ids that nobody else has
    (`membership/producer_ids.take_block`); send_answers: sends what was answered."""

    def __init__(
        self, take_block: Callable[[], Awaitable[range]], send_answers: Callable[[], None], log: Logger
    ) -> None:
        self._take_block = take_block
        self._send_answers = send_answers
        self._log = RateLimited(log)
        self._ids: Iterator[int] = iter(())
        self._waiting: deque[RequestInHand[InitProducerIdRequest]] = deque()
        self._came = trio.lowlevel.ParkingLot()

    def handle(self, request: RequestInHand[InitProducerIdRequest]) -> None:
        """BrokerError, for what is not served or contradicts itself."""
        _check(request.message)
        self._waiting.append(request)
        self._answer_waiting()
        if self._waiting:
            self._came.unpark()

    async def run(self) -> None:
        while True:
            await self._refill()
            self._send_answers()
            while not self._waiting:
                await self._came.park()

    def _answer_waiting(self) -> None:
        """In their order, as far as there are ids."""
        while self._waiting and (producer_id := next(self._ids, None)) is not None:
            self._waiting.popleft().respond(InitProducerIdResponse(0, producer_id, 0))

    async def _refill(self) -> None:
        """One attempt, and its outcome for all who wait by then."""
        try:
            with trio.fail_after(BLOCK_TIMEOUT_S):
                ids = await self._take_block()
        except (trio.TooSlowError, ConnectionLost, SessionExpired) as error:
            self._log.warning("late", "no producer ids: ZooKeeper does not answer", error=str(error))
            self._refuse_waiting(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        except (InvalidZnode, ProducerIdsUsedUp, CoordinationError) as error:
            self._log.error("unreadable", "no producer ids", error=str(error))
            self._refuse_waiting(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self._ids = iter(ids)
            self._answer_waiting()

    def _refuse_waiting(self, code: ErrorCode) -> None:
        while self._waiting:
            self._waiting.popleft().refuse(code, "no producer ids, see the broker's log")


def _check(message: InitProducerIdRequest) -> None:
    """As Kafka's KafkaApis and TransactionCoordinator do."""
    if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_EPOCH):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a producer id without its epoch, or the reverse")
    if message.transactional_id == "":
        raise BrokerError(ErrorCode.INVALID_REQUEST, "an empty transactional id")
    if message.transactional_id is not None:
        raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served")
