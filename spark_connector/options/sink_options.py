"""The options of `df.write.format("strandline")` and `df.writeStream`: those of Spark's Kafka sink. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options.values import (
    boolean,
    bootstrap_servers,
    kafka_settings,
    refuse,
    unknown_options,
    whole_number,
)

KNOWN = (
    "kafka.bootstrap.servers",
    "servers",
    "topic",
    "path",
    "includeHeaders",
    "exactlyOnce",
    "writeId",
    "writeVersion",
    "checkpointLocation",
)

MAX_WRITE_ID = 150
"""Characters: it becomes part of a group's name."""

PROTECTED = {
    "kafka.key.serializer": "keys are text or binary",
    "kafka.value.serializer": "values are text or binary",
    "kafka.acks": "what Spark counts as written must be acknowledged by all replicas in sync",
    "kafka.enable.idempotence": "records of one task must not be doubled by its own retries",
    "kafka.transactional.id": "transactions are not served",
}

PRODUCER_SETTINGS = (
    "batch.size",
    "buffer.memory",
    "client.id",
    "compression.type",
    "delivery.timeout.ms",
    "linger.ms",
    "max.block.ms",
    "max.request.size",
    "metadata.max.age.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
)
"""`kafka.<name>` is handed to the producer as `<name>`."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options, checked. `topic` None: each row names its own; it wins over the column. `include_headers`: the
    column `headers` is written, and ignored otherwise."""

    bootstrap_servers: str
    topic: str | None
    include_headers: bool
    is_exactly_once: bool
    write_id: str | None
    """Under which a batch writes, None: one that is made up; the rows of a stream are known by its checkpoint."""
    write_version: int
    producer_settings: Mapping[str, str]
    warnings: tuple[str, ...]


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check all options. Raises InvalidOption naming the option, the value and what is allowed."""
    given = {key.lower(): value for key, value in options.items()}
    refuse(given, PROTECTED)
    topics = {given[name].strip() for name in ("topic", "path") if name in given}
    if len(topics) > 1:
        raise InvalidOption("'topic' and save('topic') differ; give one of them")
    topic = topics.pop() if topics else None
    if topic == "":
        raise InvalidOption("Option 'topic' is empty; name a topic, or leave it out where the rows have a column topic")
    settings, warnings = kafka_settings(given, KNOWN, PRODUCER_SETTINGS)
    is_exactly_once = boolean(given, "exactlyOnce", True)
    write_id = _write_id(given, is_exactly_once)
    return SinkOptions(
        bootstrap_servers=bootstrap_servers(given),
        topic=topic,
        include_headers=boolean(given, "includeHeaders", False),
        is_exactly_once=is_exactly_once,
        write_id=write_id,
        write_version=whole_number(given, "writeVersion", 0),
        producer_settings=settings,
        warnings=(*warnings, *unknown_options(given, KNOWN)),
    )


def _write_id(given: Mapping[str, str], is_exactly_once: bool) -> str | None:
    if (write_id := given.get("writeid")) is None:
        if "writeversion" in given:
            raise InvalidOption("writeVersion counts the writes of one writeId: give that, too, or leave both out")
        return None
    if not is_exactly_once:
        raise InvalidOption("writeId tells a repeated write from a new one, which exactlyOnce=false does not; drop one")
    if not re.fullmatch(rf"[A-Za-z0-9._-]{{1,{MAX_WRITE_ID}}}", write_id):
        raise InvalidOption(
            f"writeId {write_id!r} must be 1 to {MAX_WRITE_ID} letters, digits, dots, hyphens and underscores"
        )
    return write_id
