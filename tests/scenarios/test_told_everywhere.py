"""What holds for every scrape of a loaded cluster: what only grows, what is told once, and what the machine tells."""

from __future__ import annotations

from itertools import pairwise

import pytest

from support.loaded_cluster import BROKERS, CONTROLLER, KILLED, story
from support.scraping import Scrape

OF_THE_CLUSTER = ("kafka_brokers", "kafka_broker_info", "kafka_topic_", "kafka_consumergroup_")
"""How kafka_exporter's names begin: an exporter is one for a cluster."""

MAY_GO = (
    "kafka_server_brokertopicmetrics_",
    "kafka_controller_controllerchannelmanager_requestrateandqueuetimems",
)
"""Of topics, of brokers."""


def lives(broker_id: int) -> list[list[tuple[str, Scrape]]]:
    """The scrapes of each life of a broker."""
    found = [(moment, brokers[broker_id]) for moment, brokers in story().told.items() if broker_id in brokers]
    if broker_id != KILLED:
        return [found]
    first = [moment for moment, _ in found].index("catching up")
    return [found[:first], found[first:]]


@pytest.mark.parametrize("broker_id", BROKERS)
def test_what_counts_never_falls_while_a_broker_lives(broker_id: int) -> None:
    for life in lives(broker_id):
        for (before, earlier), (then, later) in pairwise(life):
            grown = later.totals()
            fallen = {
                series: (figure, grown[series])
                for series, figure in earlier.totals().items()
                if series in grown and grown[series] < figure
            }
            assert not fallen, f"between {before} and {then}"
            gone = {name for name, _ in earlier.totals().keys() - grown.keys() if not name.startswith(MAY_GO)}
            assert not gone, f"between {before} and {then}"


def test_what_is_of_the_cluster_is_told_by_one_broker() -> None:
    for moment, brokers in story().told.items():
        seen: dict[object, int] = {}
        for broker_id, scrape in brokers.items():
            for series in scrape.samples:
                if series[0].startswith(OF_THE_CLUSTER):
                    assert series not in seen, f"{moment}: {series} by {seen[series]} and {broker_id}"
                    seen[series] = broker_id
        assert seen or moment in ("catching up", "idle")


def test_nothing_was_left_out() -> None:
    for brokers in story().told.values():
        for scrape in brokers.values():
            failures = scrape.rows("strandline_metrics_source_failures_total")
            assert len(failures) > 10 and not any(failures.values())
            left_out = scrape.rows("strandline_metrics_left_out")
            assert not any(left_out.values())


def test_both_formats_tell_the_same_figures() -> None:
    """But for what went on between the two: the scrapes themselves, and who asks now and then."""
    for moment, brokers in story().told_as_openmetrics.items():
        for broker_id, scrape in brokers.items():
            before = story().told[moment][broker_id]
            same = [series for series, figure in before.samples.items() if scrape.samples.get(series) == figure]
            assert len(same) > 0.9 * len(before.samples)
            steady = [each for each in before.samples if each[0].startswith(("kafka_log_log_", *OF_THE_CLUSTER))]
            assert set(steady) <= set(same)


def test_a_broker_tells_that_it_runs_with_what_and_on_what() -> None:
    for broker_id in BROKERS:
        scrape = story().told["loaded"][broker_id]
        assert scrape.value("kafka_server_kafkaserver_brokerstate") == 3
        assert [*scrape.rows("strandline_build_info").values()] == [1]
        assert scrape.value("kafka_log_logmanager_offlinelogdirectorycount") == 0
        assert scrape.rows("kafka_log_logmanager_logdirectoryoffline") == {("/data",): 0}
        free = scrape.value("strandline_log_directory_free_bytes", logDirectory="/data")
        assert 0 < free < scrape.value("strandline_log_directory_size_bytes", logDirectory="/data")
        connections = scrape.value(
            "kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT", networkProcessor="0"
        )
        assert 2 <= connections < 20, "two brokers follow it at least"
        assert scrape.value("process_open_fds") > 0 and scrape.value("process_resident_memory_bytes") > 2**20
        for way in ("read", "write"):
            told = scrape.value(f"kafka_server_kafkaserver_linux_disk_{way}_bytes")
            ours = scrape.value(f"strandline_process_disk_{'read' if way == 'read' else 'written'}_bytes_total")
            assert told == ours >= 0


def test_the_loop_s_idle_share_stands_under_both_names() -> None:
    for scrape in story().told["loaded"].values():
        handlers = scrape.value("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent")
        processors = scrape.value("kafka_network_socketserver_networkprocessoravgidle_percent")
        assert handlers == processors and 0 <= handlers <= 1
        assert scrape.value("strandline_event_loop_longest_step_seconds") >= 0


def test_cleaners_tell_what_they_kept_and_when_they_looked() -> None:
    """Of 400 records with five keys nearly nothing stays."""
    for scrape in story().told["loaded"].values():
        assert scrape.value("strandline_cleaner_cleanings_total") == 2
        assert 0 < scrape.value("kafka_log_logcleaner_cleaner_recopy_percent") < 10
        assert 30 < scrape.value("kafka_log_logcleanermanager_max_dirty_percent") <= 100, "it is chosen from 30 on"
        assert 0 < scrape.value("kafka_log_logcleaner_max_clean_time_secs") < 60
        assert 0 <= scrape.value("kafka_log_logcleanermanager_time_since_last_run_ms") <= 500
        assert 0 < scrape.value("kafka_log_logcleaner_max_buffer_utilization_percent") < 1, "of five keys"
        for name in ("logcleaner_deadthreadcount", "logcleaner_max_compaction_delay_secs"):
            assert scrape.value(f"kafka_log_{name}") == 0
        for name in ("partitions_count", "bytes"):
            assert scrape.rows(f"kafka_log_logcleanermanager_uncleanable_{name}") == {("/data",): 0}


def test_segments_that_are_full_are_made_durable_one_by_one() -> None:
    for broker_id, closed in ((1, "clicks"), (2, "clicks")):
        scrape = story().told["loaded"][broker_id]
        segments = scrape.of_partition("kafka_log_log_numlogsegments", closed)
        assert segments is not None
        assert scrape.value("kafka_log_logflushstats_logflushrateandtimems_count") > 0


def test_the_session_with_zookeeper_lasts() -> None:
    scrape = story().told["loaded"][CONTROLLER]
    states = scrape.rows("kafka_server_sessionexpirelistener_sessionstate")
    assert {state for (state,), is_so in states.items() if is_so} == {"CONNECTED"} and len(states) == 3
    assert scrape.value("kafka_server_sessionexpirelistener_zookeepersyncconnects_total") == 1
    assert scrape.value("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", quantile="0.50") > 1.9, (
        "two milliseconds"
    )
