"""The options of `df.write.format("strandline")` and `df.writeStream`: those of Spark's Kafka sink. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options.names import bootstrap_servers, check_names, client_settings
from strandline.spark_connector.options.table import Use
from strandline.spark_connector.options.values import boolean


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options, checked. `topic` None: each row names its own; it wins over the column. `include_headers`: the
    column `headers` is written, and ignored otherwise."""

    bootstrap_servers: str
    topic: str | None
    include_headers: bool
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
    return SinkOptions(
        bootstrap_servers=bootstrap_servers(given),
        topic=topic,
        include_headers=boolean(given, "includeHeaders", False),
        producer_settings=settings,
        warnings=(*without_effect, *warnings),
    )
