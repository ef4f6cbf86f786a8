"""Connections that tell how long requests take."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from strandline.client.connection import Connection
from strandline.client.pipelined import OnAnswer, PipelinedConnection
from strandline.protocol.messages import Message, Request
from strandline.runtime.disk import Buffer


class RequestTimes:
    """Of answered requests, all connections together."""

    def __init__(self) -> None:
        self.count = 0
        self.total_s = 0.0
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total_s += seconds
        self.max_s = max(self.max_s, seconds)


class TimedConnection(PipelinedConnection):
    """Tells `times` how long each request took. Those without an answer (acks=0) are not counted."""

    def __init__(self, connection: Connection, times: RequestTimes) -> None:
        super().__init__(connection)
        self._times = times

    def submit(
        self, message: Request, attachments: Sequence[Buffer], timeout_ms: float, on_answer: OnAnswer | None
    ) -> None:
        super().submit(message, attachments, timeout_ms, on_answer and self._timed(on_answer))

    def _timed(self, on_answer: OnAnswer) -> OnAnswer:
        began, times = trio.current_time(), self._times

        def timed(answer: Message | Exception, attached: memoryview) -> None:
            if not isinstance(answer, Exception):
                times.add(trio.current_time() - began)
            on_answer(answer, attached)

        return timed
