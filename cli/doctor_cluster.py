"""`strandline doctor --cluster`: one line for each thing that may be wrong, with where it is and what to do.

    ok    offline partitions
    FAIL  under-replicated partitions: t-0, t-1; not in sync is broker 3 in 2; start those brokers, or see …
    warn  replication factor 1: scratch; strandline reassign generate -t TOPIC --replication-factor 3
    ?     clocks: not seen everywhere: broker 2: nobody answers …

The facts are `cluster_facts`, the checks `cluster_checks`.
"""

from __future__ import annotations

from typing import NamedTuple

import click

from strandline.cli.admin_ports import named_ports
from strandline.cli.cluster_checks import CLUSTER_CHECKS, Advice, Check, Unknown
from strandline.cli.cluster_facts import ClusterFacts, cluster_facts
from strandline.cli.options import show_json
from strandline.cli.session import Session
from strandline.cli.wording import printable

TIMEOUT_MS = 30_000
COLOURS = {"ok": "green", "FAIL": "red", "warn": "yellow", "?": "yellow"}


class Verdict(NamedTuple):
    """`level`: ok, FAIL, warn, or ? where the facts are not known. `text`: what, and where; `remedy`: what to do."""

    check: str
    level: str
    text: str = ""
    remedy: str = ""


def examine_cluster(session: Session, servers: str, told: tuple[str, ...], output: str) -> int:
    """Exit code 1 where something fails. UsageError for --admin of a broker that does not run; NoBrokerReachable."""
    ports = named_ports(told)
    limits = {"default_api_timeout_ms": TIMEOUT_MS}
    with session.admin(servers, **limits) as admin, session.consumer(servers, **limits) as consumer:
        facts = cluster_facts(session, admin, consumer, ports)
    for broker_id in ports:
        if broker_id not in facts.brokers:
            known = ", ".join(map(str, facts.brokers))
            raise click.UsageError(f"--admin: there is no broker {broker_id} that runs; those are {known}")
    verdicts = verdicts_on(facts)
    is_well = all(each.level != "FAIL" for each in verdicts)
    if output == "json":
        checks = [
            {"check": each.check, "ok": None if each.level == "?" else each.level != "FAIL", "level": each.level,
             "text": each.text, "remedy": each.remedy} for each in verdicts
        ]  # fmt: skip
        show_json("doctor", checks=checks)
        return 0 if is_well else 1
    for each in verdicts:
        line = each.check + "".join(f"{mark}{text}" for mark, text in _marked(each))
        click.echo(f"{click.style(each.level.ljust(4), fg=COLOURS[each.level])}  {printable(line)}")
    return 0 if is_well else 1


def _marked(verdict: Verdict) -> list[tuple[str, str]]:
    return [(mark, text) for mark, text in ((": ", verdict.text), ("; ", verdict.remedy)) if text]


def verdicts_on(facts: ClusterFacts) -> list[Verdict]:
    """Of each check, in their order."""
    return [_verdict(check, facts) for check in CLUSTER_CHECKS]


def _verdict(check: Check, facts: ClusterFacts) -> Verdict:
    found = check.find(facts)
    if isinstance(found, Unknown):
        return Verdict(check.name, "?", found.why)
    if isinstance(found, Advice):
        return Verdict(check.name, "warn", found.text, check.remedy)
    if not found:
        return Verdict(check.name, "ok")
    return Verdict(check.name, "FAIL" if check.is_fault else "warn", found, check.remedy)
