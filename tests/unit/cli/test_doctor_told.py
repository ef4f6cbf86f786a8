"""`strandline doctor --cluster` drops nothing that a broker tells: not where its own look sees no such fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.cli.cluster_checks import CLUSTER_CHECKS
from strandline.client.log_dirs import LogDirView
from unit.cli.test_doctor_cluster import HEALTHY, LOOK, by_name, disk, on_each, told, with_looks, with_status

KINDS = sorted({kind for check in CLUSTER_CHECKS for kind in check.kinds} | {"zookeeper", "what comes later"})


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_one_broker_alone_is_a_fault(kind: str) -> None:
    looked_for = [check.name for check in CLUSTER_CHECKS if kind in check.kinds] or ["told by brokers"]
    found = by_name(with_status(problems=[told(kind, "/data")]))
    assert [name for name, each in found.items() if each.level != "ok"] == looked_for
    assert {found[name].level for name in looked_for} == {"FAIL"}


@pytest.mark.parametrize(("kind", "check"), [("full", "disks"), ("directory", "log directories")])
@pytest.mark.parametrize(
    "of_second",
    [None, [LogDirView("/data", {})], [LogDirView("/other", {}, 100, 90)]],
    ids=["none", "no size", "other"],
)
def test_what_a_broker_tells_of_a_disk_counts_where_nobody_else_says_it(
    kind: str, check: str, of_second: list[LogDirView] | None
) -> None:
    """Also beside what is found of another broker."""
    directories = {1: disk(), 3: disk(4 * 2**30)} | ({} if of_second is None else {2: of_second})
    unheard = {} if of_second else {2: "timed out"}
    look = replace(LOOK, directories=directories)
    facts = replace(
        with_looks(look, look), unheard=unheard, statuses=with_status(problems=[told(kind, "/data")]).statuses
    )
    found = by_name(facts)[check]
    assert found.level == "FAIL" and "it broke" in found.text and "broker 2" in found.text


def test_a_warning_that_only_a_broker_sees_is_advice() -> None:
    found = by_name(with_status(problems=[told("under-replicated", "t-0", "warning")]))["under-replicated partitions"]
    assert (found.level, found.text) == ("warn", "broker 2, t-0: it broke (mend it)")


def test_what_is_unknown_otherwise_is_told_by_who_knows() -> None:
    statuses = with_status(problems=[told("under min ISR", "t-0")]).statuses
    found = by_name(replace(HEALTHY, statuses=statuses, topic_configs={}))["under min.insync.replicas"]
    assert (found.level, found.text) == ("FAIL", "broker 2, t-0: it broke (mend it)")


def test_logs_that_share_a_line_are_counted() -> None:
    more = {**told("more logs", "t-10 and 489 more"), "what": "490 partitions are not served by this broker either"}
    problems = [*(told("log", f"t-{number}") for number in range(10)), more]
    found = by_name(with_status(problems=problems))["refused replicas"]
    assert found.text.endswith(" and 7 more; broker 2: 490 partitions are not served by this broker either")


def test_a_directory_that_its_broker_names_as_well_is_named_once() -> None:
    look = replace(LOOK, directories=on_each(disk(4 * 2**30)))
    facts = replace(with_looks(look, look), statuses=with_status(problems=[told("full", "/data")]).statuses)
    assert by_name(facts)["disks"].text.count("of broker 2") == 1
