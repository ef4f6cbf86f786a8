"""Connections that tell how long requests take."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from strandline.client.connection import Connection
from strandline.client.pipelined import OnAnswer, PipelinedConnection
from strandline.client.samples import Samples
from strandline.protocol.messages import Message, Request
from strandline.runtime.disk import Buffer


class RequestTimes:
    """Of answered requests, all connections together."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = Samples()
        self.throttle_ms = Samples()
        """For how long each of them says that a quota holds this client."""

    def add(self, answer: Message, began_s: float, now_s: float) -> None:
        self.count += 1
        self.seconds.add(now_s - began_s, now_s)
        self.throttle_ms.add(getattr(answer, "throttle_time_ms", 0), now_s)


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
                times.add(answer, began, trio.current_time())
            on_answer(answer, attached)

        return timed
