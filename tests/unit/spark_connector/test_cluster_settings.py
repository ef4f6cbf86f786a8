"""The settings that a query gives reach every client that serves it."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from strandline.client.errors import InvalidTopic, NoBrokerReachable
from strandline.protocol.errors import ErrorCode
from strandline.spark_connector.errors import ReadFailed
from strandline.spark_connector.options.source_options import parse_options
from strandline.spark_connector.options.table import SOURCE_SETTINGS
from strandline.spark_connector.reading import cluster
from strandline.spark_connector.reading.cluster import ClusterClient
from strandline.spark_connector.reading.failures import named_failures
from strandline.spark_connector.reading.planning import OffsetRange
from strandline.spark_connector.reading.ranges import RangePartition
from strandline.spark_connector.source import StrandlineDataSource

GIVEN = {"servers": "b:1", "subscribePattern": "t.*", "kafka.request.timeout.ms": "7", "kafka.client.id": "mine"}


class Recorder:
    """In place of Consumer and Admin."""

    made: dict[str, dict[str, Any]]

    def __init__(self, **settings: Any) -> None:
        self.made[type(self).__name__] = settings

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def close(self) -> None:
        return None

    def describe_topics(self) -> dict[str, Any]:
        return {}


def test_topics_of_a_pattern_are_listed_with_the_settings_of_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, dict[str, Any]] = {}
    for name in ("Admin", "Consumer"):
        monkeypatch.setattr(cluster, name, type(name, (Recorder,), {"made": made}))
    with ClusterClient(parse_options({**GIVEN, "kafka.fetch.max.bytes": "1000"})) as client:
        client.topics()
    common = {"bootstrap_servers": "b:1", "client_id": "mine", "request_timeout_ms": "7"}
    assert made["Admin"] == common
    own = {"max_partition_fetch_bytes": cluster.FETCH_BYTES, "auto_offset_reset": "none"}
    assert made["Consumer"] == {**common, "fetch_max_bytes": "1000", **own}


def test_the_admin_client_takes_whatever_reaches_it() -> None:
    """Nobody listens there: only the making counts."""
    values = {f"kafka.{name}": "true" if name == "check.crcs" else "100" for name in SOURCE_SETTINGS}
    options = parse_options({"servers": "127.0.0.1:1", "subscribePattern": "t.*", **values})
    with ClusterClient(options) as client, pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        client.topics()


@pytest.mark.parametrize("subscription", [{"subscribePattern": "t.*"}, {"subscribe": "t"}])
def test_a_cluster_that_nobody_reaches_is_an_error_with_a_condition_each_address_and_the_option(
    monkeypatch: pytest.MonkeyPatch, subscription: dict[str, str]
) -> None:
    monkeypatch.setattr(cluster, "UNKNOWN_AFTER_MS", 10_000)
    servers = {"servers": "127.0.0.1:1,127.0.0.1:2", "kafka.bootstrap.timeout.ms": "100"}
    source = StrandlineDataSource(CaseInsensitiveDict({**servers, **subscription}))
    words = r"^\[STRANDLINE_READ_FAILED\] .*127\.0\.0\.1:1.*127\.0\.0\.1:2.*, raise kafka\.bootstrap\.timeout\.ms$"
    wanted = OffsetRange("t", 0, 0, 1)
    batch = source.reader(source.schema())
    with pytest.raises(ReadFailed, match=words):
        batch.partitions()
    with pytest.raises(ReadFailed, match=words):
        list(batch.read(RangePartition(wanted)))
    for ask in (
        lambda stream: stream.initialOffset(),
        lambda stream: stream.latestOffset({"t": {"0": 0}}, None),
        lambda stream: stream.prepareForTriggerAvailableNow(),
        lambda stream: stream.partitions({"t": {"0": 0}}, {"t": {"0": 1}}),
    ):
        stream = source.streamReader(source.schema())
        try:
            with pytest.raises(ReadFailed, match=words):
                ask(stream)
        finally:
            stream.stop()


def test_who_waited_for_something_else_is_told_the_option_for_that() -> None:
    with pytest.raises(ReadFailed, match=r"raise kafka\.default\.api\.timeout\.ms$"), named_failures():
        raise NoBrokerReachable("no broker answers: b:1: refused; not done within 100 ms (default_api_timeout_ms)")


def test_a_failure_that_asking_again_cannot_mend_says_only_what_is_wrong() -> None:
    refusal = "topic name 't/' may only have letters"
    with pytest.raises(ReadFailed, match=rf"^\[STRANDLINE_READ_FAILED\] {refusal}$"), named_failures():
        raise InvalidTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, refusal)


def test_what_the_user_says_of_fetches_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, dict[str, Any]] = {}
    monkeypatch.setattr(cluster, "Consumer", type("Consumer", (Recorder,), {"made": made}))
    ClusterClient(parse_options({**GIVEN, "kafka.max.partition.fetch.bytes": "1000"}))
    assert made["Consumer"]["max_partition_fetch_bytes"] == "1000"
