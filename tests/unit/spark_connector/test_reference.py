"""The page of options is the table's, the file in docs/ is the page, and what the table says is what the parsers do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options.reference import NOT_RAISED, conditions, reference
from strandline.spark_connector.options.sink_options import parse_sink_options
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.options.stream_options import parse_stream_options
from strandline.spark_connector.options.table import OPTIONS, REFUSED_OPTIONS, Option, RefusedOption, Use

PAGE = Path(__file__).parents[3] / "docs" / "spark-options.md"

NAMES_OF_SPARKS_CONNECTOR = """
kafka.bootstrap.servers subscribe subscribePattern assign startingTimestamp startingOffsetsByTimestamp startingOffsets
startingOffsetsByTimestampStrategy endingTimestamp endingOffsetsByTimestamp endingOffsets failOnDataLoss
maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition includeHeaders
groupIdPrefix kafka.group.id kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs topic
"""

CONDITIONS_OF_SPARKS_CONNECTOR = """
MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED
MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET
END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED
LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW
END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW
KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED
KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED
KAFKA_NULL_TOPIC_IN_DATA
KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO
KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE
KAFKA_DATA_LOSS.INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS
KAFKA_DATA_LOSS.PARTITIONS_DELETED
KAFKA_DATA_LOSS.PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT
KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED
KAFKA_DATA_LOSS.START_OFFSET_RESET
RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET
UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET
KAFKA_MALFORMED_RECORD_TIMESTAMP
"""


def parsed(use: Use, **options: str) -> Any:
    """What the options of this use become."""
    given = {"servers": "b:1"} | options
    if use is Use.SINK:
        return parse_sink_options(given)
    given = given if {"assign", "subscribePattern", "path"} & set(given) else {"subscribe": "t"} | given
    return parse_options(given) if use is Use.BATCH else parse_stream_options(given)


def test_the_page_in_docs_is_the_table() -> None:
    assert PAGE.read_text() == reference(), f"{PAGE.name} is stale: run `make docs` and commit docs/{PAGE.name}"


def test_every_option_stands_once_in_a_table_that_is_whole() -> None:
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    names = [row.split("`")[1] for row in rows]
    assert len(names) == len(set(names))
    assert set(names) >= {option.name for option in OPTIONS} | {each.name for each in REFUSED_OPTIONS}
    assert {row.replace("\\|", "").count("|") for row in rows} == {9, 4, 3}


def test_the_names_of_sparks_own_connector_are_all_known() -> None:
    assert set(NAMES_OF_SPARKS_CONNECTOR.split()) <= {option.name for option in OPTIONS}


def test_each_condition_of_sparks_own_connector_is_raised_or_cannot_occur() -> None:
    known = CONDITIONS_OF_SPARKS_CONNECTOR.split()
    assert not set(conditions()) & set(NOT_RAISED)
    assert set(known) <= set(conditions()) | set(NOT_RAISED)
    assert set(NOT_RAISED) <= set(known)
    assert all(conditions().values())


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.default], ids=lambda option: option.name)
def test_a_default_that_is_written_out_changes_nothing(option: Option) -> None:
    for use in (Use.BATCH, Use.STREAM, Use.SINK):
        if use in option.uses:
            assert parsed(use, **{option.name: option.default}) == parsed(use)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_is_known_where_the_table_says_so_and_else_brings_a_warning(option: Option) -> None:
    values = {"assign": '{"t":[0]}', "columns": "key", "subscribePattern": "t", "servers": "b:1", "path": "t"}
    values["where"] = "offset > 5"
    value = option.default or values.get(option.name, "")
    if option.name.startswith(("starting", "ending")) and not value:
        value = '{"t":{"0":5}}' if "Offsets" in option.name else "5"
    value = value or {"host:port,…": "b:1", "as isolationLevel": "read_committed", "true or false": "true"}.get(
        option.kind, "7"
    )
    for use in (Use.BATCH, Use.STREAM, Use.SINK):
        try:
            found = parsed(use, **{option.name: value})
        except InvalidOption as error:
            assert use is Use.STREAM and "not valid in streaming queries" in str(error)
            assert use not in option.uses
            continue
        warnings = [text for text in getattr(found, "source", found).warnings if option.name in text]
        assert bool(warnings) == (use not in option.uses or option.name == "kafka.group.id"), use


@pytest.mark.parametrize("refused", REFUSED_OPTIONS, ids=lambda refused: refused.name)
def test_what_a_query_rests_on_is_refused_with_the_reason(refused: RefusedOption) -> None:
    for use in (Use.BATCH, Use.STREAM, Use.SINK):
        if use in refused.uses:
            with pytest.raises(InvalidOption) as caught:
                parsed(use, **{refused.name: "true"})
            assert refused.name in str(caught.value)
            assert refused.why in str(caught.value)
