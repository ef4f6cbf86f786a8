"""The options of `spark.readStream.format("strandline")`: those of a batch, and what only streams have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options.request import SourceOptions
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.options.table import DEFAULT_MAX_TRIGGER_DELAY_MS
from strandline.spark_connector.options.values import duration_ms, positive


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How much a batch takes; None: no limit. A trigger waits for `min_offsets`, but no longer than the delay."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_bytes: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """All options of a stream, checked. `commit_group`: where lag tools see how far the query is."""

    source: SourceOptions
    limits: TriggerLimits
    commit_group: str | None


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Check all options. Raises InvalidOption naming the option, the value and what is allowed."""
    source = parse_options(options, is_stream=True)
    given = {key.lower(): value for key, value in options.items()}
    most, least = positive(given, "maxOffsetsPerTrigger"), positive(given, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise InvalidOption(
            f"minOffsetsPerTrigger ({least}) must not be higher than maxOffsetsPerTrigger ({most}): lower the former"
        )
    group = given.get("commitgroup")
    if group is not None and not group.strip():
        raise InvalidOption("commitGroup is empty; name a consumer group, or leave the option out")
    return StreamOptions(
        source=source,
        limits=TriggerLimits(
            max_offsets=most,
            min_offsets=least,
            max_bytes=positive(given, "maxBytesPerTrigger"),
            max_trigger_delay_ms=duration_ms(given, "maxTriggerDelay", DEFAULT_MAX_TRIGGER_DELAY_MS),
        ),
        commit_group=group.strip() if group is not None else None,
    )
