"""A request between its connection and its answer: what handlers get, and how they answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec

from strandline.broker.network.connection import Connection
from strandline.broker.network.dialects import Dialect, Header, Records, Regions
from strandline.broker.network.request_context import RequestContext
from strandline.broker.network.response_slot import DROPPED, WITH_ERROR, ResponseSlot
from strandline.protocol.api import Api
from strandline.protocol.errors import ErrorCode, LocalProtocolError
from strandline.protocol.messages import Message, Request
from strandline.protocol.records import READER_SLACK_BYTES

M = TypeVar("M", bound=Request, covariant=True)

AnswerHook = Callable[[Message | None, Regions], tuple[Message, Regions] | None]
"""Is given an answer on its way out, before it is encoded (None: the request has none, or nobody is there for it any
more), and may return another one to send instead. It must not raise: who answers may be in the midst of a burst of
others. A request that waits when its connection closes may end without a word."""


class RequestInHand(msgspec.Struct, Generic[M], eq=False):
    """See the module. `records` (writable) are valid until their burst ends (`Burst.end`); what leaves it owns them
    (`own_records`).

    A gate may put another `message` here, and `records` to match, before it calls the handler: fewer topics than were
    asked for, say. What it left out, its `on_answer` adds again."""

    api: Api
    message: M
    records: Records
    context: RequestContext
    header: Header
    dialect: Dialect
    connection: Connection
    slot: ResponseSlot
    hooks: tuple[AnswerHook, ...] = ()

    def on_answer(self, hook: AnswerHook) -> None:
        """For gates: have `hook` see the answer, once. The gate that is next to the handler sees it first."""
        self.hooks = (hook, *self.hooks)

    def respond(self, message: Message, regions: Regions = (), *, is_clean: bool = False) -> None:
        """Encode the answer and put it into its place; `UnflushedConnections.flush` sends it. `regions`: the
        record batches of each partition that `message` names, in its order, or nothing where none has any. is_clean:
        there is no error in it, so that none is looked for.

        Only the first answer counts; after a close there is none. Never raises: an answer that cannot be encoded
        becomes UNKNOWN_SERVER_ERROR."""
        connection, slot = self.connection, self.slot
        if slot.head is not None:
            return
        if connection.closed:
            self.no_response()
            return
        if self.hooks:
            for hook in self._take_hooks():
                message, regions = hook(message, regions) or (message, regions)
        try:
            head, rest, rest_bytes = self.dialect.encode(self.api, self.header, message, regions)
        except LocalProtocolError as error:
            self._respond_unencodable(error)
            return
        if not is_clean:
            self._note_errors(message)
        connection.fill(slot, head, rest, rest_bytes)

    def no_response(self) -> None:
        """This request has no answer (acks=0, or a close): later responses do not wait for one."""
        for hook in self._take_hooks():
            hook(None, ())
        if self.slot.head is None and not self.connection.closed:
            self.slot.answered = DROPPED
            self.connection.fill(self.slot, b"", (), 0)

    def refuse(self, code: ErrorCode, text: str) -> None:
        """Answer that it failed as a whole, or hang up where it has no answer."""
        if self.message.has_answer:
            self.respond(self.api.failure(self.message, code, text))
            return
        self.hang_up(f"{self.api.key.name} failed, which has no answer: {code.name} {text}".rstrip())
        self.no_response()

    def hang_up(self, reason: str) -> None:
        """Close the connection: this request cannot be answered, and later answers would wait for it."""
        self.connection.close(reason)

    @property
    def is_abandoned(self) -> bool:
        """Nobody is there any more for the answer."""
        return self.connection.closed

    def note_throttled(self, seconds: float) -> None:
        """For figures: a gate held it, or its connection because of it, for so long."""
        self.connection.counts.row(self.header.api_key, self).throttle.add(seconds, 1)

    def own_records(self) -> None:
        """Take the records out of the buffer that they were received into; the slack behind them is what record checks
        may read."""
        size = sum(len(piece) for piece in self.records if piece is not None)
        copy = memoryview(bytearray(size + READER_SLACK_BYTES))
        owned: list[memoryview | None] = []
        position = 0
        for piece in self.records:
            if piece is not None:
                start, position = position, position + len(piece)
                copy[start:position] = piece
            owned.append(None if piece is None else copy[start:position])
        self.records = owned

    def _note_errors(self, answer: Message) -> None:
        """Count those of an answer that is about to leave, and of no other."""
        counts = self.connection.counts.row(self.header.api_key, self)
        if counts.note_errors(answer):
            self.slot.answered = WITH_ERROR
            self.connection.has_errors = True

    def _take_hooks(self) -> tuple[AnswerHook, ...]:
        hooks, self.hooks = self.hooks, ()
        return hooks

    def _respond_unencodable(self, error: LocalProtocolError) -> None:
        answer = self.api.failure(self.message, ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        try:
            head, rest, rest_bytes = self.dialect.encode(self.api, self.header, answer, ())
        except LocalProtocolError:
            self.connection.close(f"no answer to {self.api.key.name} can be encoded: {error}")
            return
        self._note_errors(answer)
        self.connection.fill(self.slot, head, rest, rest_bytes)


Remainder = Callable[[], Awaitable[None]]
"""What an inline handler leaves for a handler task to await (a worker's answer); answers by `respond`."""
