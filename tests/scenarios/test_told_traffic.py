"""What `/metrics` of a loaded cluster tells of records, bytes and requests is what was done to it."""

from __future__ import annotations

import pytest

from support.loaded_cluster import BROKERS, HEAVY, story
from support.scraping import Scrape

TOPICS = "kafka_server_brokertopicmetrics"
REQUESTS = "kafka_network_requestmetrics"
STAGE = "strandline_request_stage_seconds"
PARTS = ("queue", "local", "remote", "response_queue", "send")


def told(moment: str, broker_id: int) -> Scrape:
    return story().told[moment][broker_id]


def of_topics(moment: str, broker_id: int, name: str) -> dict[str, float]:
    """Those that are not 0."""
    rows = told(moment, broker_id).rows(f"{TOPICS}_{name}_total")
    return {labels[0]: figure for labels, figure in rows.items() if labels and figure}


# --- topics ----------------------------------------------------------------------------------------------------------


def test_records_are_told_by_who_appended_them_as_leader() -> None:
    assert of_topics("loaded", 1, "messagesin") == {"orders": 51, "clicks": 40}
    assert of_topics("loaded", 2, "messagesin") == {"orders": 30, "__consumer_offsets": 4}
    assert of_topics("loaded", 3, "messagesin") == {"keys": 400, "narrow": 3}
    assert of_topics("short", 1, "messagesin") == {"orders": 61, "clicks": 40}


def test_bytes_are_those_of_the_logs() -> None:
    facts = story().facts
    in_bytes = facts["bytes of orders 0"] + facts["bytes of heavy"]
    assert of_topics("loaded", 1, "bytesin")["orders"] == in_bytes
    assert told("loaded", 1).of_partition("kafka_log_log_size", "orders") == in_bytes
    assert of_topics("loaded", 2, "bytesin")["orders"] == facts["bytes of orders 1"]
    assert of_topics("loaded", 1, "bytesout") == {"orders": facts["bytes of orders 0"]}
    assert of_topics("loaded", 2, "bytesout") == {"orders": facts["bytes of orders 1"]}


def test_what_followers_took_is_what_leaders_sent() -> None:
    """All of what was appended goes to each of the other replicas, and is counted at both ends."""
    sent, taken = (
        sum(told("loaded", each).value(f"{TOPICS}_replicationbytes{way}_total") for each in BROKERS)
        for way in ("out", "in")
    )
    appended = [of_topics("loaded", each, "bytesin") for each in BROKERS]
    copies = {"orders": 2, "keys": 2, "clicks": 1, "narrow": 1, "__consumer_offsets": 2}
    expected = sum(size * copies[topic] for rows in appended for topic, size in rows.items())
    assert sent == taken == expected


def test_produce_requests_are_told_by_the_topics_that_they_name() -> None:
    one_by_one = 40
    assert of_topics("loaded", 1, "totalproducerequests")["clicks"] == one_by_one
    assert of_topics("loaded", 3, "totalproducerequests") == {"keys": 100, "narrow": 2, "orders": 1}
    absent = told("loaded", 3).value(f"{TOPICS}_totalproducerequests_total") - 103
    assert absent == 1, "a topic that is not here is in the total"


def test_fetches_are_told_by_the_topics_that_are_read() -> None:
    """Of clicks a follower alone has read, and it was answered at least once for each record."""
    assert of_topics("loaded", 1, "totalfetchrequests")["clicks"] >= 40
    assert of_topics("loaded", 2, "totalfetchrequests").keys() == {"orders", "__consumer_offsets"}


def test_what_is_refused_is_told_by_its_reason() -> None:
    """Too large is told in bytes; a wrong broker or offset is no failure of the topic."""
    for broker_id in BROKERS:
        assert not of_topics("loaded", broker_id, "failedproducerequests")
        assert not of_topics("loaded", broker_id, "failedfetchrequests")
    assert 1000 < of_topics("loaded", 3, "bytesrejected")["narrow"] < 1100
    refused = of_topics("short", 2, "failedproducerequests")
    assert refused == {"narrow": told("short", 2).value(f"{REQUESTS}_errors_total", **too_few())} != {}


def test_the_total_is_the_sum_of_the_topics_and_does_not_fall_when_one_goes() -> None:
    for broker_id in BROKERS:
        for name in ("messagesin", "bytesin", "bytesout", "bytesrejected", "totalfetchrequests"):
            total = told("loaded", broker_id).value(f"{TOPICS}_{name}_total")
            assert total == sum(of_topics("loaded", broker_id, name).values())
    assert "narrow" not in of_topics("after", 3, "messagesin") and "narrow" in of_topics("loaded", 3, "messagesin")
    refused = "kafka_server_brokertopicmetrics_failedproducerequests_total"
    assert told("after", 2).value(refused) == of_topics("short", 2, "failedproducerequests")["narrow"]


# --- requests --------------------------------------------------------------------------------------------------------


def too_few() -> dict[str, str]:
    return {"request": "Produce", "error": "NOT_ENOUGH_REPLICAS"}


def requests(moment: str, broker_id: int, name: str) -> float:
    return told(moment, broker_id).value(f"{REQUESTS}_requests_total", request=name)


def test_requests_are_counted_by_their_api() -> None:
    assert requests("loaded", 3, "Produce") == 100 + 2 + 2, "keys, narrow, and those to the wrong broker"
    assert requests("loaded", 1, "Produce") == 40 + 1 + 1
    assert requests("loaded", 1, "CreateTopics") == 4 and requests("loaded", 1, "AlterClientQuotas") == 2
    assert requests("loaded", 2, "JoinGroup") == 2 and requests("loaded", 2, "OffsetCommit") == 1
    assert requests("loaded", 2, "Heartbeat") == 2 and requests("empty", 2, "LeaveGroup") == 2
    assert requests("loaded", 3, "FetchFollower") > 100
    assert told("loaded", 3).get(f"{REQUESTS}_requests_total", request="FetchConsumer") is None, "nobody consumed here"


def errors(moment: str, broker_id: int) -> dict[tuple[str, ...], float]:
    rows = told(moment, broker_id).rows(f"{REQUESTS}_errors_total")
    return {labels: n for labels, n in rows.items() if labels[0] != "NONE"}


def test_errors_are_counted_by_api_and_code() -> None:
    assert errors("loaded", 3) == {
        ("NOT_LEADER_OR_FOLLOWER", "Produce"): 1,
        ("UNKNOWN_TOPIC_OR_PARTITION", "Produce"): 1,
        ("MESSAGE_TOO_LARGE", "Produce"): 1,
    }
    assert errors("loaded", 1).items() >= {("OFFSET_OUT_OF_RANGE", "FetchConsumer"): 1}.items()
    assert errors("loaded", 2) == {("MEMBER_ID_REQUIRED", "JoinGroup"): 1}


@pytest.mark.parametrize("broker_id", BROKERS)
def test_fetches_are_told_together_and_by_who_asks(broker_id: int) -> None:
    for scrape in (told("loaded", broker_id), told("empty", broker_id)):
        rows = scrape.rows(f"{REQUESTS}_requests_total")
        assert rows["Fetch",] == rows["FetchFollower",] + rows.get(("FetchConsumer",), 0)


@pytest.mark.parametrize("broker_id", BROKERS)
def test_answers_without_an_error_are_counted_beside_the_others(broker_id: int) -> None:
    """So what share fails is one query. A request that is not answered yet is in neither."""
    scrape = told("loaded", broker_id)
    for (request,), answered in scrape.rows(f"{REQUESTS}_totaltimems_count").items():
        found = {error: n for (error, each), n in scrape.rows(f"{REQUESTS}_errors_total").items() if each == request}
        assert found["NONE"] <= answered and sum(found.values()) >= answered, request


@pytest.mark.parametrize("broker_id", BROKERS)
def test_the_total_time_of_requests_is_the_sum_of_their_stages(broker_id: int) -> None:
    scrape = told("loaded", broker_id)
    for (request,) in scrape.rows(f"{REQUESTS}_requests_total"):
        total = scrape.value(f"{STAGE}_sum", request=request, stage="total")
        stages = [scrape.value(f"{STAGE}_sum", request=request, stage=stage) for stage in PARTS]
        assert total == pytest.approx(sum(stages), abs=1e-6 * len(PARTS)), request


@pytest.mark.parametrize("broker_id", BROKERS)
def test_buckets_add_up(broker_id: int) -> None:
    """No bucket has less than the one below it, and the last one has all. The sum lies between what they allow."""
    scrape = told("loaded", broker_id)
    buckets: dict[tuple[str, str], dict[float, float]] = {}
    for (limit, request, stage), below in scrape.rows(f"{STAGE}_bucket").items():
        buckets.setdefault((request, stage), {})[float(limit)] = below
    assert buckets.keys() == scrape.rows(f"{STAGE}_count").keys()
    for (request, stage), below in buckets.items():
        limits = sorted(below)
        counts = [below[limit] for limit in limits]
        assert counts == sorted(counts)
        assert counts[-1] == scrape.value(f"{STAGE}_count", request=request, stage=stage)
        took_s = scrape.value(f"{STAGE}_sum", request=request, stage=stage)
        least_s = sum((n - m) * limit for limit, m, n in zip(limits, counts, counts[1:], strict=False))
        assert took_s >= 0.8 * least_s, "a bucket's figures are within a quarter of an octave"
        if counts[-2] == counts[-1]:
            most_s = sum((n - m) * limit for limit, m, n in zip(limits, [0, *counts], counts, strict=False) if n > m)
            assert took_s <= 1.2 * most_s


def test_each_stage_and_each_quantile_has_counted_what_was_answered() -> None:
    for broker_id in BROKERS:
        scrape = told("loaded", broker_id)
        for (request,), count in scrape.rows(f"{REQUESTS}_totaltimems_count").items():
            assert count <= scrape.value(f"{REQUESTS}_requests_total", request=request)
            for name in ("requestqueue", "local", "remote", "responsequeue", "responsesend", "throttle"):
                assert scrape.value(f"{REQUESTS}_{name}timems_count", request=request) == count
            for stage in (*PARTS, "total"):
                assert scrape.value(f"{STAGE}_count", request=request, stage=stage) == count
            assert scrape.value(f"{REQUESTS}_requestbytes", request=request, quantile="0.50") > 0
    assert told("loaded", 3).value(f"{REQUESTS}_totaltimems_count", request="Produce") == 104


def test_bytes_on_the_wire_are_more_than_those_of_records() -> None:
    scrape, prefix = told("loaded", 1), "kafka_server_socket_server_metrics"
    records = scrape.value(f"{TOPICS}_bytesin_total")
    assert records < scrape.value(f"{prefix}_incoming_byte_total") < 10 * records
    sent = scrape.value(f"{TOPICS}_bytesout_total") + scrape.value(f"{TOPICS}_replicationbytesout_total")
    assert sent < scrape.value(f"{prefix}_outgoing_byte_total") < 10 * sent


# --- quotas ----------------------------------------------------------------------------------------------------------


def test_who_exceeds_a_quota_is_told_with_how_much_passes_and_how_long_it_is_held() -> None:
    """Ten thousand bytes, of which one thousand may pass each second."""
    labels = {"resource": "Produce", "user": "", "clientId": HEAVY}
    scrape = told("throttled", 1)
    sent = story().facts["bytes of heavy"]
    assert 0 < scrape.value("kafka_server_quota_byte_rate", **labels) <= sent
    assert 1000 < scrape.value("kafka_server_quota_throttle_time", **labels) < sent
    assert told("loaded", 1).value("kafka_server_quota_throttle_time", **labels) < scrape.value(
        "kafka_server_quota_throttle_time", **labels
    )
    for broker_id in (2, 3):
        assert not told("throttled", broker_id).rows("kafka_server_quota_byte_rate"), "it has met no other broker"
    for family, resource in (("request_time", "Request"), ("mutation_rate", "ControllerMutation")):
        assert list(scrape.rows(f"kafka_server_quota_{family}")) == [(HEAVY, resource, "")], "no bytes"
    tokens = {"resource": "ControllerMutation", "user": "", "clientId": HEAVY}
    assert scrape.value("kafka_server_quota_tokens", **tokens) == 110, "ten a second, of eleven windows"
    assert 0 < scrape.value("kafka_server_socket_server_metrics_connection_accept_rate", ip="client") < 10
    held = scrape.value(f"{REQUESTS}_throttletimems", request="Produce", quantile="0.999")
    assert held > 1000 and not told("throttled", 3).value(
        f"{REQUESTS}_throttletimems", request="Produce", quantile="0.999"
    )
