"""`strandline doctor --cluster`: each fault is named, with where it is and what to do; a healthy cluster has none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.cli.cluster_checks import CLUSTER_CHECKS
from strandline.cli.cluster_facts import MIN_ISR, UNCLEAN, ClusterFacts, GroupFacts, Look, Skew
from strandline.cli.doctor_cluster import Verdict, verdicts_on
from strandline.client.errors import AnsweredError
from strandline.client.log_dirs import LogDirView, LogSize
from strandline.client.metadata import BrokerView, PartitionView, TopicView
from strandline.client.reassignments import OngoingReassignment
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from strandline.runtime.network import Address
from unit.cli.conftest import NOW_MS

T0 = TopicPartition("t", 0)
GIB = 2**30
ORDERS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))


def topic(*views: PartitionView, name: str = "t", is_internal: bool = False) -> dict[str, TopicView]:
    return {name: TopicView(name, bytes(16), dict(enumerate(views)), is_internal=is_internal)}


def led(
    *replicas: int, in_sync: tuple[int, ...] | None = None, leader: int | None = None, **more: Any
) -> PartitionView:
    return PartitionView(replicas[0] if leader is None else leader, 1, replicas, in_sync or replicas, **more)


def disk(usable_bytes: int = 50 * GIB, error: AnsweredError | None = None) -> list[LogDirView]:
    return [LogDirView("/data", {}, 100 * GIB, usable_bytes, error)]


def on_each(value: Any) -> dict[int, Any]:
    return {1: value, 2: value, 3: value}


LOOK = Look(1, on_each(disk()), {"g": GroupFacts("Stable", 10)})
LATER = replace(LOOK, disks_at_s=10.0, groups_at_s=15.0)
HEALTHY = ClusterFacts(
    brokers={each: BrokerView(each, Address(f"host-{each}", 9092), f"rack-{each}") for each in (1, 2, 3)},
    topics=topic(*(led(*order) for order in ORDERS))
    | topic(*(led(*order) for order in ORDERS), name="__consumer_offsets", is_internal=True),
    before=LOOK,
    after=LOOK,
    topic_configs={"t": {MIN_ISR: "2", UNCLEAN: "false"}, "__consumer_offsets": {MIN_ISR: "2"}},
    broker_configs=on_each({"min.insync.replicas": "2"}),
    statuses=on_each({"controller_id": 1, "waits": [], "problems": [], "versions": {"strandline": "1.0"}}),
    skews=on_each(Skew(400)),
)


def with_brokers(**changes: Any) -> ClusterFacts:
    """Of broker 2."""
    return replace(HEALTHY, brokers={**HEALTHY.brokers, 2: replace(HEALTHY.brokers[2], **changes)})


def with_status(**changes: Any) -> ClusterFacts:
    """Of broker 2."""
    return replace(HEALTHY, statuses={**HEALTHY.statuses, 2: {**HEALTHY.statuses[2], **changes}})


def with_partitions(*views: PartitionView, **more: Any) -> ClusterFacts:
    return replace(HEALTHY, topics=dict(HEALTHY.topics) | topic(*views), **more)


def with_configs(**configs: str) -> ClusterFacts:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return replace(HEALTHY, topic_configs=dict(HEALTHY.topic_configs) | {"t": named})


def with_looks(before: Look, after: Look) -> ClusterFacts:
    return replace(HEALTHY, before=before, after=after)


def told(kind: str, where: str, level: str = "error", since_ms: int = NOW_MS - 300_000) -> dict[str, Any]:
    """A problem as `/status` tells it."""
    return {"level": level, "kind": kind, "what": "it broke", "where": where, "since_ms": since_ms, "remedy": "mend it"}


DEAD_DISK = AnsweredError(ErrorCode.KAFKA_STORAGE_ERROR, "log directory /data failed")
ADDING = OngoingReassignment((1, 2, 9), (9,), ())

FAULTS: list[tuple[str, ClusterFacts, str]] = [
    ("controller", with_looks(LOOK, replace(LOOK, controller=-1)), "there is none"),
    ("controller", with_looks(LOOK, replace(LOOK, controller=2)), "it changed from broker 1 to broker 2 within 5 s"),
    ("controller", with_status(controller_id=3), "it is broker 1, but broker 2 takes 3 for it"),
    ("controller", with_status(controller_id=-1), "it is broker 1, but broker 2 knows of none"),
    ("brokers answer", with_partitions(led(1, 7), led(7, 2)), "broker 7, which holds 2 replicas, does not run"),
    ("brokers answer", replace(HEALTHY, unheard={2: "timed out"}), "broker 2 at host-2:9092: timed out"),
    (
        "advertised addresses",
        with_brokers(address=Address("host-1", 9092)),
        "host-1:9092 is advertised by more than one broker",
    ),
    ("advertised addresses", with_brokers(address=Address("localhost", 9092)), "of broker 2 it is a loopback address"),
    ("brokers are ready", with_status(waits=["has not caught up yet: t-1"]), "broker 2: has not caught up yet: t-1"),
    (
        "log directories",
        with_looks(LOOK, replace(LOOK, directories={1: disk(), 2: disk(error=DEAD_DISK)})),
        "broker 2: log directory /data failed",
    ),
    (
        "disks",
        with_looks(LOOK, replace(LOOK, directories={3: disk(4 * GIB)})),
        "/data of broker 3 has 4.0 GiB left",
    ),
    ("disks", with_status(problems=[told("full", "/data")]), "/data of broker 2 has 50.0 GiB left"),
    ("disks", with_status(problems=[told("nearly full", "/data", "warning")]), "/data of broker 2 has 50.0 GiB left"),
    (
        "clocks",
        replace(HEALTHY, skews={1: Skew(400), 2: Skew(-900), 3: Skew(0)}),
        "broker 1 is 1.3 s ahead of broker 2",
    ),
    ("offline partitions", with_partitions(led(1, 2, 3, leader=-1), led(2, 3, 1), led(3, 1, 2)), "t-0"),
    (
        "under min.insync.replicas",
        with_partitions(led(1, 2, 3, in_sync=(1,)), led(2, 3, 1, in_sync=(2, 3)), led(3, 1, 2)),
        "t-0",
    ),
    (
        "under-replicated partitions",
        with_partitions(led(1, 2, 3, in_sync=(1, 2)), led(2, 3, 1, in_sync=(2, 1)), led(3, 1, 2)),
        "t-0, t-1; not in sync: broker 3 with 2",
    ),
    (
        "refused replicas",
        with_partitions(led(1, 2, 3, refused_replicas={3: "damaged"}), led(2, 3, 1), led(3, 1, 2)),
        "t-0 on broker 3: damaged",
    ),
    ("refused replicas", with_status(problems=[told("log", "t-0")]), "t-0 on broker 2: it broke"),
    ("ZooKeeper", with_status(problems=[told("zookeeper", "ZooKeeper")]), "broker 2: it broke"),
    ("told by brokers", with_status(problems=[told("cleaner", "t-0")]), "broker 2, t-0: it broke (mend"),
    ("reassignments", replace(HEALTHY, ongoing={T0: ADDING}), "t-0 waits for broker 9"),
    (
        "reassignments",
        replace(HEALTHY, ongoing={T0: OngoingReassignment((3, 9, 1), (3,), (1,))}),
        "t-0 waits for broker 9",
    ),
    (
        "internal topics",
        replace(HEALTHY, topics=dict(HEALTHY.topics) | topic(led(1), name="__consumer_offsets", is_internal=True)),
        "__consumer_offsets has 1 replica",
    ),
    ("versions", with_status(versions={"strandline": "0.9"}), "brokers 1, 3: 1.0, broker 2: 0.9"),
    (
        "configurations",
        replace(HEALTHY, broker_configs={1: {"min.insync.replicas": "2"}, 2: {"min.insync.replicas": "1"}}),
        "min.insync.replicas (2 on broker 1, 1 on broker 2)",
    ),
    (
        "leaders",
        with_partitions(led(1, 2, 3, leader=2), led(2, 3, 1), led(3, 1, 2)),
        "1 of 2 that prefer broker 1 are led by others",
    ),
    (
        "spread of replicas",
        with_partitions(*(led(1, 2, leader=1 + number % 2) for number in range(10))),
        "broker 1 has 13 replicas, broker 3 3",
    ),
    ("racks", with_brokers(rack=None), "no broker.rack for broker 2, others"),
    (
        "racks",
        replace(with_brokers(rack="rack-1"), topics=topic(led(1, 2), led(2, 3), led(3, 1))),
        "all replicas on one rack: t-0",
    ),
    ("replication factor 1", with_partitions(led(1), led(2), led(3)), "t"),
    ("min.insync.replicas = replicas", with_configs(min_insync_replicas="3"), "t"),
    ("min.insync.replicas 1", with_configs(min_insync_replicas="1"), "t"),
    ("unclean elections", with_configs(min_insync_replicas="2", unclean_leader_election_enable="true"), "t"),
    (
        "throttles",
        with_configs(min_insync_replicas="2", leader_replication_throttled_replicas="0:1"),
        "t (leader.replication.throttled.replicas)",
    ),
    (
        "growing lag",
        with_looks(LOOK, replace(LATER, groups={"g": GroupFacts("Stable", 2000)})),
        "g from 10 to 2000 records within 15 s",
    ),
    (
        "restless groups",
        with_looks(*[replace(LOOK, groups={"g": GroupFacts("PreparingRebalance")})] * 2),
        "g",
    ),
]


def by_name(facts: ClusterFacts) -> dict[str, Verdict]:
    return {each.check: each for each in verdicts_on(facts)}


def test_a_healthy_cluster_has_nothing() -> None:
    assert [each for each in verdicts_on(HEALTHY) if each.level != "ok"] == []


@pytest.mark.parametrize(("check", "facts", "text"), FAULTS, ids=[f"{each[0]}: {each[2]}" for each in FAULTS])
def test_each_fault_is_named_with_where_and_what_to_do(check: str, facts: ClusterFacts, text: str) -> None:
    found = by_name(facts)[check]
    assert text in found.text and found.remedy
    assert found.level == ("FAIL" if next(each.is_fault for each in CLUSTER_CHECKS if each.name == check) else "warn")


def test_every_check_has_a_fault_that_it_finds() -> None:
    assert {each.name for each in CLUSTER_CHECKS} == {check for check, _, _ in FAULTS}
    assert len({each.name for each in CLUSTER_CHECKS}) == len(CLUSTER_CHECKS) >= 20


@pytest.mark.parametrize(
    ("check", "facts"),
    [
        # Who leads asks for no more replicas than there are.
        ("under min.insync.replicas", with_partitions(led(1), led(2, 3), led(3, 1, 2), ongoing={})),
        (
            "under min.insync.replicas",
            with_partitions(led(1, 2, in_sync=(1,)), ongoing={T0: OngoingReassignment((1, 2), (2,), ())}),
        ),
        # What is filled for the first time lacks nothing that it had.
        (
            "under-replicated partitions",
            with_partitions(led(1, 2, 3, in_sync=(1, 2)), ongoing={T0: OngoingReassignment((1, 2, 3), (3,), ())}),
        ),
        # What nobody leads is offline, and who does not run cannot lead: no election mends either.
        ("leaders", with_partitions(led(1, leader=-1), led(2, leader=-1), led(3, leader=-1))),
        ("leaders", with_partitions(led(9, 1, leader=1), led(9, 2, leader=2), led(9, 3, leader=3))),
        ("throttles", replace(with_configs(leader_replication_throttled_replicas="0:1"), ongoing={T0: ADDING})),
        ("internal topics", replace(HEALTHY, brokers={}, topics=topic(led(1), name="__x", is_internal=True))),
        ("disks", with_looks(replace(LOOK, directories={3: disk(50 * GIB + 2**20)}), LATER)),
        ("growing lag", with_looks(LOOK, replace(LOOK, groups={"g": GroupFacts("Stable", 900)}))),
        ("growing lag", with_looks(LOOK, replace(LOOK, groups={"g": GroupFacts("Stable", None)}))),
        # It commits every few seconds, and keeps up.
        ("growing lag", with_looks(LOOK, replace(LOOK, groups={"g": GroupFacts("Stable", 5_000, end=10_100)}))),
        ("restless groups", with_looks(LOOK, replace(LOOK, groups={"g": GroupFacts("PreparingRebalance")}))),
        ("advertised addresses", replace(HEALTHY, brokers={1: BrokerView(1, Address("localhost", 1))})),
    ],
    ids=str,
)
def test_what_is_as_it_should_be_is_no_fault(check: str, facts: ClusterFacts) -> None:
    assert by_name(facts)[check].level == "ok"


def test_what_no_broker_tells_is_said_to_be_unknown_and_why() -> None:
    found = by_name(replace(HEALTHY, statuses={}, skews={}, untold=on_each("its port is off")))
    unknown = {each.check for each in found.values() if each.level == "?"}
    assert unknown == {"brokers are ready", "versions", "clocks", "told by brokers"}
    assert (
        found["clocks"].text
        == "no broker tells: broker 1: its port is off; broker 2: its port is off; broker 3: its port is off"
    )
    volumes = replace(LOOK, directories=on_each([LogDirView("/data", {})]))
    assert by_name(with_looks(volumes, volumes))["disks"].level == "?"


SEEN_OF_ONE = replace(
    HEALTHY,
    statuses={1: HEALTHY.statuses[1]},
    skews={1: Skew(400)},
    untold={2: "nobody answers", 3: "it is off"},
)


@pytest.mark.parametrize("check", ["brokers are ready", "versions", "clocks", "told by brokers"])
def test_what_was_seen_of_one_broker_is_not_said_of_all(check: str) -> None:
    found = by_name(SEEN_OF_ONE)[check]
    assert (found.level, found.text) == (
        "?",
        "not seen everywhere: broker 2: nobody answers; broker 3: it is off",
    )


@pytest.mark.parametrize("check", ["brokers are ready", "told by brokers", "versions"])
def test_a_port_that_is_asked_and_says_nothing_of_it_leaves_checks_open(check: str) -> None:
    found = by_name(replace(HEALTHY, statuses={**HEALTHY.statuses, 2: {}}))[check]
    assert (found.level, found.text) == ("?", "not seen everywhere: broker 2: its answer lacks it")


def test_a_fault_of_one_broker_is_one_though_others_do_not_tell() -> None:
    waits = replace(SEEN_OF_ONE, statuses={1: {**HEALTHY.statuses[1], "waits": ["a log is loaded"]}})
    assert by_name(waits)["brokers are ready"].level == "FAIL"


@pytest.mark.parametrize("check", ["configurations", "disks", "log directories"])
def test_brokers_that_do_not_answer_leave_checks_open(check: str) -> None:
    look = replace(LOOK, directories={1: disk(), 2: disk()})
    facts = replace(with_looks(look, look), unheard={3: "timed out"}, broker_configs={1: {}, 2: {}})
    assert (by_name(facts)[check].level, by_name(facts)[check].text) == (
        "?",
        "not seen everywhere: broker 3: timed out",
    )


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (replace(LOOK, groups={"g": GroupFacts("Stable", None, "nobody tells where t-0 ends")}), "g: nobody tells"),
        (replace(LOOK, groups_untold="broker 3: timed out"), "groups may be missing: broker 3: timed out"),
    ],
)
def test_lag_that_nobody_tells_is_not_called_steady(after: Look, text: str) -> None:
    found = by_name(with_looks(LOOK, after))["growing lag"]
    assert found.level == "?" and text in found.text


@pytest.mark.parametrize(
    "check",
    [
        "under min.insync.replicas",
        "min.insync.replicas = replicas",
        "min.insync.replicas 1",
        "unclean elections",
        "throttles",
    ],
)
def test_topics_whose_configuration_nobody_tells_leave_checks_open(check: str) -> None:
    untold = {"t": "describing a topic: TOPIC_AUTHORIZATION_FAILED"}
    facts = replace(HEALTHY, topic_configs={"__consumer_offsets": {MIN_ISR: "2"}}, topic_configs_untold=untold)
    found = by_name(facts)[check]
    assert (found.level, found.text) == ("?", f"nobody tells the configuration of t: {untold['t']}")


def test_why_a_broker_does_not_tell_its_configuration_is_said() -> None:
    facts = replace(HEALTHY, broker_configs={1: {}, 2: {}}, broker_configs_untold={3: "not authorized"})
    assert by_name(facts)["configurations"].text == "not seen everywhere: broker 3: not authorized"


def test_two_copies_of_internal_topics_are_advice() -> None:
    internal = topic(led(1, 2), led(2, 3), name="__consumer_offsets", is_internal=True)
    found = by_name(replace(HEALTHY, topics=dict(HEALTHY.topics) | internal))["internal topics"]
    assert (found.level, found.text) == ("warn", "__consumer_offsets has 2 replicas")


def test_without_a_controller_what_depends_on_what_is_under_way_is_unknown() -> None:
    lacking = with_partitions(led(1, 2, 3, in_sync=(1, 2)), led(2, 3, 1), led(3, 1, 2))
    throttled = {**HEALTHY.topic_configs, "t": {MIN_ISR: "2", "leader.replication.throttled.replicas": "0:1"}}
    found = by_name(replace(lacking, topic_configs=throttled, ongoing_untold="there is no controller"))
    unknown = {each.check: each.text for each in found.values() if each.level == "?"}
    assert set(unknown) == {"under-replicated partitions", "reassignments", "throttles"}
    assert all(text.endswith(": there is no controller") for text in unknown.values())
    assert unknown["under-replicated partitions"].startswith("t-0 may be so")


def test_a_fault_lasts_since_the_broker_that_knows_it_longest_has_seen_it() -> None:
    lacking = with_partitions(led(1, 2, 3, in_sync=(1, 2)), led(2, 3, 1), led(3, 1, 2))
    statuses = {
        1: {**HEALTHY.statuses[1], "problems": [told("under-replicated", "t-0", since_ms=7000)]},
        2: {**HEALTHY.statuses[2], "problems": [told("under-replicated", "t-1", since_ms=5000), told("log", "t-2")]},
    }
    found = by_name(replace(lacking, statuses=dict(HEALTHY.statuses) | statuses))
    assert (found["under-replicated partitions"].since_ms, found["offline partitions"].since_ms) == (5000, None)


def test_a_broker_is_gone_since_the_first_leader_has_missed_it() -> None:
    lacking = with_partitions(led(1, 7, in_sync=(1,)), led(2, 3, 1), led(3, 1, 2))
    missed = {**told("under-replicated", "t-0", since_ms=5000), "subject": "broker 7 is gone"}
    lags = {**told("under-replicated", "t-1", since_ms=3000), "subject": "broker 3 lags"}
    found = by_name(
        replace(lacking, statuses={**HEALTHY.statuses, 2: {**HEALTHY.statuses[2], "problems": [lags, missed]}})
    )
    assert found["brokers answer"].since_ms == 5000


def test_what_only_brokers_know_is_advice_while_all_is_served() -> None:
    found = by_name(with_status(problems=[told("cleaner", "t-0", "warning"), told("under-replicated", "t-1")]))
    assert (found["told by brokers"].level, found["told by brokers"].text) == (
        "warn",
        "broker 2, t-0: it broke (mend it)",
    )


@pytest.mark.parametrize("problem", ["disk full", {"kind": "log"}, {**told("log", "t-0"), "since_ms": "yesterday"}])
def test_problems_in_a_form_that_is_not_known_are_not_seen(problem: Any) -> None:
    found = by_name(with_status(problems=[problem]))
    assert (found["told by brokers"].level, found["refused replicas"].level) == ("?", "ok")
    assert "broker 2: it tells problems in another form" in found["told by brokers"].text


def test_a_clock_whose_broker_answered_late_is_not_called_well() -> None:
    """Though it seems to be ahead, and is the one that says least."""
    found = by_name(replace(HEALTHY, skews={1: Skew(0), 2: Skew(100, 2400), 3: Skew(0)}))["clocks"]
    late = "broker 2: its answer took 4.8 s, too long to compare"
    assert (found.level, found.text) == ("?", f"not seen everywhere: {late}")


def test_a_lone_broker_has_no_clock_to_compare_with() -> None:
    lone = replace(HEALTHY, brokers={1: HEALTHY.brokers[1]}, skews={}, untold={1: "nobody answers"})
    assert by_name(lone)["clocks"].level == "ok"


def growing(usable_bytes: int, logs_bytes: int = 0, **configs: str) -> ClusterFacts:
    """By 100 MiB within 10 s, by a log of so many bytes."""

    def look_at(usable_bytes: int, logs_bytes: int) -> dict[int, list[LogDirView]]:
        logs = {T0: LogSize(logs_bytes, 0)} if logs_bytes else {}
        return on_each(disk()) | {3: [LogDirView("/data", logs, 100 * GIB, usable_bytes)]}

    grown = 100 * 2**20
    before = replace(LOOK, directories=look_at(usable_bytes + grown, logs_bytes and logs_bytes - grown))
    after = replace(LATER, directories=look_at(usable_bytes, logs_bytes))
    return replace(with_configs(min_insync_replicas="2", **configs), before=before, after=after)


def test_a_disk_that_may_be_full_within_a_day_is_advice() -> None:
    """A few seconds are not enough to call it a fault; of an empty disk they say nothing."""
    found = by_name(growing(40 * GIB))["disks"]
    assert (found.level, found.text) == (
        "warn",
        "/data of broker 3 has 40.0 GiB left, full in 1 h 8 min should 10.0 MiB/s go on",
    )
    assert found.remedy
    assert by_name(growing(60 * GIB))["disks"].level == "ok"


@pytest.mark.parametrize(
    ("level", "configs"),
    [
        ("ok", {"cleanup.policy": "delete", "retention.bytes": str(20 * GIB), "segment.bytes": str(GIB)}),
        ("warn", {"cleanup.policy": "delete", "retention.bytes": str(80 * GIB), "segment.bytes": str(GIB)}),
        ("warn", {"cleanup.policy": "delete", "retention.bytes": "-1", "segment.bytes": str(GIB)}),
        ("warn", {"cleanup.policy": "compact", "retention.bytes": str(20 * GIB), "segment.bytes": str(GIB)}),
        ("warn", {}),
    ],
)
def test_logs_that_retention_holds_fill_no_disk(level: str, configs: dict[str, str]) -> None:
    named = {key.replace(".", "_"): value for key, value in configs.items()}
    assert by_name(growing(40 * GIB, 10 * GIB, **named))["disks"].level == level
