"""A client that speaks Kafka's protocol by kio's schemas on a blocking socket: for programs without an event loop."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from strandline.protocol.api import ApiKey
from strandline.protocol.kafka.schemas import read_entity, request_class, response_class, write_entity
from strandline.testkit.kafka_client import kafka_frame, made


class KafkaSocket:
    """One connection. ConnectionError when it ends before an answer, OSError where it cannot be made or in time."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 60.0) -> None:
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self.socket.makefile("rb")

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """The answer of a request with these fields."""
        self.send(api_key, version, **fields)
        return self.receive(api_key, version)

    def send(self, api_key: ApiKey, version: int, **fields: Any) -> None:
        entity = request_class(api_key, version)
        body = write_entity(made(entity, fields))
        self.socket.sendall(kafka_frame(api_key, version, body, flexible=entity.__flexible__))

    def receive(self, api_key: ApiKey, version: int) -> Any:
        """The next answer, which is to a request of this kind."""
        answer = response_class(api_key, version)
        (size,) = struct.unpack(">i", self._read(4))
        tags = answer.__flexible__ and api_key is not ApiKey.API_VERSIONS
        return read_entity(answer, memoryview(self._read(size)[4 + tags :]))

    def _read(self, size: int) -> bytes:
        data = self._answers.read(size)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data

    def close(self) -> None:
        self._answers.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
