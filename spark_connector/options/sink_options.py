"""The options of `df.write.format("strandline")` and `df.writeStream`: those of Spark's Kafka sink. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options.names import bootstrap_servers, check_names, client_settings
from strandline.spark_connector.options.table import Use
from strandline.spark_connector.options.values import boolean, whole_number

MAX_WRITE_ID = 150
"""Characters: it becomes part of a group's name."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options, checked. `topic` None: each row names its own; it wins over the column. `include_headers`: the
    column `headers`, if there is one, is written, and passed over otherwise."""

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
    warnings = check_names(given, Use.SINK)
    topics = {given[name].strip() for name in ("topic", "path") if name in given}
    if len(topics) > 1:
        raise InvalidOption("'topic' and save('topic') differ; give one of them")
    topic = topics.pop() if topics else None
    if topic == "":
        raise InvalidOption("Option 'topic' is empty; name a topic, or leave it out where the rows have a column topic")
    settings, without_effect = client_settings(given, Use.SINK)
    is_exactly_once = boolean(given, "exactlyOnce", True)
    write_id = _write_id(given, is_exactly_once)
    write_version = whole_number(given, "writeVersion", 0)
    if write_version and write_id is None:
        raise InvalidOption("writeVersion counts the writes of one writeId: give that, too, or leave both out")
    return SinkOptions(
        bootstrap_servers=bootstrap_servers(given),
        topic=topic,
        include_headers=boolean(given, "includeHeaders", True),
        is_exactly_once=is_exactly_once,
        write_id=write_id,
        write_version=write_version,
        producer_settings=settings,
        warnings=(*without_effect, *warnings),
    )


def _write_id(given: Mapping[str, str], is_exactly_once: bool) -> str | None:
    if (write_id := given.get("writeid")) is None:
        return None
    if not is_exactly_once:
        raise InvalidOption("writeId tells a repeated write from a new one, which exactlyOnce=false does not; drop one")
    if not re.fullmatch(rf"[A-Za-z0-9._-]{{1,{MAX_WRITE_ID}}}", write_id):
        raise InvalidOption(
            f"writeId {write_id!r} must be 1 to {MAX_WRITE_ID} letters, digits, dots, hyphens and underscores"
        )
    return write_id
