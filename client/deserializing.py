"""`key_deserializer` and `value_deserializer`: what keys and values are made into, in the program's thread or task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.client.errors import DeserializationFailed
from strandline.client.record import ConsumerRecord
from strandline.client.settings import ConsumerSettings


class Deserializers:
    """Functions of bytes. None, a tombstone's value or the key of a record without one, stays None."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._key = settings.key_deserializer
        self._value = settings.value_deserializer
        self.are_needed = self._key is not None or self._value is not None

    def applied(self, record: ConsumerRecord) -> ConsumerRecord:
        """The record with what they make of it. DeserializationFailed."""
        key = self._made("key", self._key, record.key, record)
        return record._replace(key=key, value=self._made("value", self._value, record.value, record))

    @staticmethod
    def _made(what: str, deserialize: Callable[[bytes], Any] | None, data: Any, record: ConsumerRecord) -> Any:
        if deserialize is None or data is None:
            return data
        try:
            return deserialize(data)
        except Exception as error:
            raise DeserializationFailed(
                f"the {what} of {record.topic_partition} at offset {record.offset} cannot be deserialized: {error!r}; "
                f"seek to {record.offset + 1} to go on behind it",
                record.topic_partition,
                record.offset,
                record,
            ) from error
