"""What `/metrics` of a loaded cluster tells of replicas, the controller and groups, moment by moment."""

from __future__ import annotations

import pytest

from support.loaded_cluster import BEHIND, BROKERS, CONTROLLER, COORDINATOR, story
from support.scraping import Scrape

MANAGER = "kafka_server_replicamanager"
PARTITION = "kafka_cluster_partition"
EXPORTER = "kafka_topic_partition"
CONTROL = "kafka_controller_kafkacontroller"
GROUPS = "kafka_coordinator_group_groupmetadatamanager"
PURGATORY = "kafka_server_delayedoperationpurgatory_purgatorysize"
STATES = ("empty", "preparingrebalance", "completingrebalance", "stable", "dead")


def told(moment: str, broker_id: int) -> Scrape:
    return story().told[moment][broker_id]


def by_broker(moment: str, name: str) -> list[float]:
    """Of the brokers that run."""
    return [each.value(name) for each in story().told[moment].values()]


def of_all(moment: str, name: str) -> dict[tuple[str, ...], float]:
    """(partition, topic) → figure, of whoever tells it. No two brokers tell one series."""
    found: dict[tuple[str, ...], float] = {}
    for scrape in story().told[moment].values():
        rows = scrape.rows(name)
        assert found.keys().isdisjoint(rows)
        found |= rows
    return {key: figure for key, figure in found.items() if key[-1] != "__consumer_offsets"}


# --- replicas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "name", "expected"),
    [
        ("idle", "partitioncount", [0, 0, 0]),
        ("loaded", "partitioncount", [5, 6, 5]),
        ("loaded", "leadercount", [2, 2, 2]),
        ("loaded", "underreplicatedpartitions", [0, 0, 0]),
        ("loaded", "atminisrpartitioncount", [1, 0, 1]),
        ("short", "leadercount", [3, 3]),
        ("short", "underreplicatedpartitions", [2, 3]),
        ("short", "atminisrpartitioncount", [3, 2]),
        ("short", "underminisrpartitioncount", [0, 1]),
        ("led elsewhere", "leadercount", [3, 3, 0]),
        ("led elsewhere", "isrexpands_total", [2, 3, 0]),
        ("back", "leadercount", [2, 2, 2]),
        ("back", "underreplicatedpartitions", [0, 0, 0]),
        ("back", "reassigningpartitions", [0, 0, 0]),
        ("moving", "reassigningpartitions", [1, 0, 0]),
        ("moved", "reassigningpartitions", [0, 0, 0]),
        ("moved", "partitioncount", [5, 6, 6]),
        ("moved", "atminisrpartitioncount", [0, 0, 1]),
        ("after", "partitioncount", [5, 5, 5]),
        ("after", "isrshrinks_total", [0, 0, 0]),
        ("after", "offlinereplicacount", [0, 0, 0]),
        ("after", "failedisrupdates_total", [0, 0, 0]),
    ],
)
def test_replicas_are_counted_by_each_broker(moment: str, name: str, expected: list[float]) -> None:
    """Two of three replicas are the minimum. The controller takes a dead broker out of the ISRs, so no leader does."""
    assert by_broker(moment, f"{MANAGER}_{name}") == expected


@pytest.mark.parametrize(
    ("name", "orders", "keys", "clicks", "narrow"),
    [
        ("replicascount", 3, 3, 2, 2),
        ("insyncreplicascount", 2, 2, 2, 1),
        ("underreplicated", 1, 1, 0, 1),
        ("atminisr", 1, 1, 1, 0),
        ("underminisr", 0, 0, 0, 1),
        ("laststableoffsetlag", 0, 0, 0, 0),
    ],
)
def test_leaders_tell_of_each_partition_what_it_lacks(
    name: str, orders: int, keys: int, clicks: int, narrow: int
) -> None:
    for partition, topic, leader, expected in (
        ("0", "orders", 1, orders),
        ("1", "orders", 2, orders),
        ("0", "keys", 1, keys),
        ("0", "clicks", 1, clicks),
        ("0", "narrow", 2, narrow),
    ):
        assert told("short", leader).value(f"{PARTITION}_{name}", topic=topic, partition=partition) == expected


def test_logs_are_told_by_every_replica() -> None:
    for broker_id in BROKERS:
        sizes = {
            name: told("loaded", broker_id).of_partition(f"kafka_log_log_{name}", "orders")
            for name in ("size", "logendoffset", "logstartoffset", "numlogsegments")
        }
        assert sizes["logendoffset"] == 51 and sizes["logstartoffset"] == 0 and sizes["numlogsegments"] == 1
    for broker_id in (1, 2):
        segments = told("loaded", broker_id).of_partition("kafka_log_log_numlogsegments", "clicks")
        assert segments is not None and segments > 4, "of a thousand bytes each"


def test_records_that_were_deleted_move_the_log_start_on_every_replica() -> None:
    def starts(moment: str) -> list[float | None]:
        return [told(moment, each).of_partition("kafka_log_log_logstartoffset", "clicks") for each in (1, 2)]

    assert starts("short") == [0, 0] and starts("deleting") == [25, 0] and starts("deleted") == [25, 25]
    assert told("short", 1).of_partition(f"{EXPORTER}_oldest_offset", "clicks") == 0
    assert told("deleted", 1).of_partition(f"{EXPORTER}_oldest_offset", "clicks") == 25
    assert told("deleted", 1).of_partition(f"{EXPORTER}_current_offset", "clicks") == 40


@pytest.mark.parametrize(
    ("moment", "name", "expected"),
    [
        ("loaded", "current_offset", [51, 30, 400, 40, 3]),
        ("loaded", "oldest_offset", [0, 0, 0, 0, 0]),
        ("loaded", "leader", [1, 2, 3, 1, 3]),
        ("loaded", "replicas", [3, 3, 3, 2, 2]),
        ("loaded", "in_sync_replica", [3, 3, 3, 2, 2]),
        ("loaded", "leader_is_preferred", [1, 1, 1, 1, 1]),
        ("loaded", "under_replicated_partition", [0, 0, 0, 0, 0]),
        ("short", "leader", [1, 2, 1, 1, 2]),
        ("short", "in_sync_replica", [2, 2, 2, 2, 1]),
        ("short", "leader_is_preferred", [1, 1, 0, 1, 0]),
        ("short", "under_replicated_partition", [1, 1, 1, 0, 1]),
        ("led elsewhere", "leader_is_preferred", [1, 1, 0, 1, 0]),
        ("back", "leader_is_preferred", [1, 1, 1, 1, 1]),
        ("moved", "replicas", [3, 3, 3, 3, 2]),
        ("moved", "in_sync_replica", [3, 3, 3, 3, 2]),
        ("after", "current_offset", [61, 70, 400, 40]),
    ],
)
def test_a_partition_is_told_once_by_the_names_of_the_exporter(moment: str, name: str, expected: list[float]) -> None:
    """orders-0, orders-1, keys, clicks, narrow."""
    places = [("0", "orders"), ("1", "orders"), ("0", "keys"), ("0", "clicks"), ("0", "narrow")]
    assert of_all(moment, f"{EXPORTER}_{name}") == dict(zip(places, expected, strict=False))


def test_who_is_behind_says_so_until_it_has_caught_up() -> None:
    most = "kafka_server_replicafetchermanager_maxlag"
    behind = told("catching up", 3)
    assert 0 < max(behind.rows(BEHIND).values()) <= behind.value(most, clientId="Replica") <= 40
    assert {labels[2] for labels in behind.rows(BEHIND)} <= {"orders"}
    assert not told("back", 3).rows(BEHIND) and told("back", 3).value(most, clientId="Replica") == 0


# --- the controller --------------------------------------------------------------------------------------------------


def test_one_broker_is_controller_and_tells_of_the_cluster() -> None:
    for moment, brokers in story().told.items():
        acting = [each for each in brokers if told(moment, each).value(f"{CONTROL}_activecontrollercount")]
        assert acting == ([CONTROLLER] if CONTROLLER in brokers else [])
    for name, idle, loaded, short, after in (
        ("activebrokercount", 3, 3, 2, 3),
        ("globaltopiccount", 0, 5, 5, 4),
        ("globalpartitioncount", 0, 6, 6, 5),
        ("offlinepartitionscount", 0, 0, 0, 0),
        ("preferredreplicaimbalancecount", 0, 0, 2, 0),
        ("topicstodeletecount", 0, 0, 0, 0),
        ("controllerstate", 0, 0, 0, 0),
    ):
        found = [told(moment, CONTROLLER).value(f"{CONTROL}_{name}") for moment in ("idle", "loaded", "short", "after")]
        assert found == [idle, loaded, short, after], name
        assert told("loaded", 2).value(f"{CONTROL}_{name}") == 0
    assert told("short", CONTROLLER).value("kafka_brokers") == 2
    assert told("short", CONTROLLER).rows("kafka_broker_info") == {(f"broker-{n}:9092", str(n)): 1 for n in (1, 2)}
    partitions = {"orders": 2, "keys": 1, "clicks": 1, "narrow": 1, "__consumer_offsets": 1}
    assert told("loaded", CONTROLLER).rows("kafka_topic_partitions") == {(k,): n for k, n in partitions.items()}


@pytest.mark.parametrize(
    ("name", "before", "then"),
    [
        ("leaderelection", "loaded", "short"),
        ("leaderelection", "deleted", "back"),
        ("manualleaderbalance", "led elsewhere", "back"),
        ("autoleaderbalance", "loaded", "back"),
        ("topicchange", "idle", "loaded"),
        ("topicdeletion", "moved", "after"),
        ("partitionreassignment", "back", "moving"),
        ("isrchange", "deleted", "led elsewhere"),
        ("leaderandisrresponsereceived", "loaded", "short"),
    ],
)
def test_what_the_controller_had_to_do_is_counted(name: str, before: str, then: str) -> None:
    count = f"kafka_controller_controllerstats_{name}rateandtimems_count"
    assert told(before, CONTROLLER).value(count) < told(then, CONTROLLER).value(count)
    assert told(then, 2).value(count) == 0


def test_nothing_was_elected_uncleanly_and_nobody_was_controller_twice() -> None:
    last = told("after", CONTROLLER)
    assert last.value("kafka_controller_controllerstats_uncleanleaderelections_total") == 0
    assert last.value("kafka_controller_controllerstats_controllerchangerateandtimems_count") == 1
    assert last.value("kafka_controller_controllerstats_controlledshutdownrateandtimems_count") == 0


def test_answers_to_the_controller_are_as_many_as_its_orders() -> None:
    orders = "kafka_network_requestmetrics_requests_total"
    sent = sum(told("loaded", each).value(orders, request="LeaderAndIsr") for each in BROKERS)
    answered = "kafka_controller_controllerstats_leaderandisrresponsereceivedrateandtimems_count"
    assert told("loaded", CONTROLLER).value(answered) == sent
    waited = "kafka_controller_controllerchannelmanager_requestrateandqueuetimems_count"
    assert told("loaded", CONTROLLER).rows(waited).keys() == {("1",), ("2",), ("3",)}
    assert told("short", CONTROLLER).rows(waited).keys() == {("1",), ("2",)}
    assert told("loaded", CONTROLLER).value("kafka_controller_controllerchannelmanager_totalqueuesize") == 0


def test_events_wait_for_each_other_and_all_had_their_turn() -> None:
    manager = "kafka_controller_controllereventmanager"
    loaded, after = told("loaded", CONTROLLER), told("after", CONTROLLER)
    assert 0 < loaded.value(f"{manager}_eventqueuetimems_count") < after.value(f"{manager}_eventqueuetimems_count")
    assert 0 < loaded.value(f"{manager}_eventqueuetimems", quantile="0.999") < 1000
    assert loaded.value(f"{manager}_eventqueuesize") == 0


@pytest.mark.parametrize(
    ("moment", "leaderless", "under_replicated", "down"),
    [("idle", 0, 0, 0), ("loaded", 0, 0, 0), ("short", 0, 5, 1), ("back", 0, 0, 0), ("moving", 0, 0, 0)],
)
def test_the_controller_tells_what_is_wrong_with_the_cluster(
    moment: str, leaderless: int, under_replicated: int, down: int
) -> None:
    health = "redpanda_cluster_health"
    scrape = told(moment, CONTROLLER)
    assert scrape.value(f"{health}_leaderless_partitions") == leaderless
    assert scrape.value(f"{health}_under_replicated_partitions") == under_replicated
    assert scrape.value(f"{health}_nodes_down") == down
    reasons = [reason for reason in (leaderless, under_replicated, down) if reason]
    assert scrape.value(f"{health}_unhealthy_reasons") == len(reasons)


# --- groups ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "state"),
    [
        ("loaded", "stable"),
        ("rebalancing", "preparingrebalance"),
        ("completing", "completingrebalance"),
        ("empty", "empty"),
        ("back", "empty"),
        ("after", None),
    ],
)
def test_a_group_is_in_one_state_which_its_coordinator_tells(moment: str, state: str | None) -> None:
    scrape = told(moment, COORDINATOR)
    assert [each for each in STATES if scrape.value(f"{GROUPS}_numgroups{each}")] == ([state] if state else [])
    assert scrape.value(f"{GROUPS}_numgroups") == bool(state)
    assert scrape.value(f"{GROUPS}_numoffsets") == (3 if state else 0)
    assert told(moment, CONTROLLER).value(f"{GROUPS}_numgroups") == 0


@pytest.mark.parametrize(
    ("moment", "members", "rebalance", "rebalances"),
    [("loaded", 1, 0, 1), ("rebalancing", 2, 1, 1), ("completing", 2, 0, 1), ("empty", 0, 0, 2)],
)
def test_members_and_rebalances_are_counted(moment: str, members: int, rebalance: int, rebalances: int) -> None:
    scrape = told(moment, COORDINATOR)
    assert scrape.value("kafka_consumergroup_members", consumergroup="g") == members
    assert scrape.value(PURGATORY, delayedOperation="Heartbeat") == members
    assert scrape.value(PURGATORY, delayedOperation="Rebalance") == rebalance
    completed = "kafka_server_group_coordinator_metrics_group_completed_rebalance_count"
    assert scrape.value(completed) == rebalances


def test_a_group_s_offsets_and_lag_are_told_by_its_coordinator() -> None:
    """Of what others lead once it has asked them, which the first scrape has it do."""

    def lags(moment: str) -> dict[tuple[str, ...], float]:
        return told(moment, COORDINATOR).rows("kafka_consumergroup_lag")

    assert lags("asked for") == {("g", "1", "orders"): 0}
    assert lags("loaded") == {("g", "0", "orders"): 11, ("g", "1", "orders"): 0, ("g", "0", "clicks"): 5}
    loaded = told("loaded", COORDINATOR)
    committed = {("g", "0", "orders"): 40, ("g", "1", "orders"): 30, ("g", "0", "clicks"): 35}
    assert loaded.rows("kafka_consumergroup_current_offset") == committed
    assert loaded.rows("kafka_consumergroup_current_offset_sum") == {("g", "orders"): 70, ("g", "clicks"): 35}
    assert loaded.rows("kafka_consumergroup_lag_sum") == {("g", "orders"): 11, ("g", "clicks"): 5}
    assert lags("deleted")["g", "1", "orders"] == 40
    counts = "kafka_server_group_coordinator_metrics"
    assert loaded.value(f"{counts}_offset_commit_count") == 3
    assert loaded.value(f"{counts}_offset_expiration_count") == 0
    assert not told("after", COORDINATOR).rows("kafka_consumergroup_members")


# --- what waits ------------------------------------------------------------------------------------------------------


def test_purgatories_hold_what_waits_for_a_follower() -> None:
    def waiting(moment: str, kind: str) -> list[float]:
        return [each.value(PURGATORY, delayedOperation=kind) for each in story().told[moment].values()]

    led = [each.rows("kafka_topic_partition_replicas").values() for each in story().told["loaded"].values()]
    followers = [sum(replicas - 1 for replicas in each) for each in led]
    assert waiting("loaded", "Fetch") == followers == [3, 4, 3], "of each follower of each partition"
    assert waiting("deleting", "DeleteRecords") == [1, 0] and waiting("deleted", "DeleteRecords") == [0, 0]
    assert waiting("loaded", "Produce") == [0, 0, 0]
