"""`strandline doctor --cluster`: one line for each thing that may be wrong, with where it is and what to do.

    ok    offline partitions
    FAIL  under-replicated partitions: t-0, t-1; not in sync: broker 3 with 2; since 2026-11-26 12:00:00 UTC (5 min);
          start those brokers, or see what slows them down                                  (a single line)
    warn  replication factor 1: scratch; strandline reassign generate -t TOPIC --replication-factor 3
    ?     clocks: not seen everywhere: broker 2: nobody answers …

The facts are `cluster_facts`, the checks `cluster_checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import click

from strandline.cli.admin_ports import check_named, named_ports
from strandline.cli.check_findings import Advice, Unknown
from strandline.cli.cluster_checks import CLUSTER_CHECKS, Check, found_by
from strandline.cli.cluster_facts import ClusterFacts, cluster_facts, problems_told
from strandline.cli.cluster_problems import since_text
from strandline.cli.options import show_json
from strandline.cli.session import Session
from strandline.cli.wording import printable

TIMEOUT_MS = 30_000
COLOURS = {"ok": "green", "FAIL": "red", "warn": "yellow", "?": "yellow"}


class Verdict(NamedTuple):
    """`level`: ok, FAIL, warn, or ? where the facts are not known. `text`: what, and where; `remedy`: what to do.
    `since_ms`: by the broker that knows it longest; None where none tells."""

    check: str
    level: str
    text: str = ""
    remedy: str = ""
    since_ms: int | None = None


def examine_cluster(session: Session, servers: str, told: tuple[str, ...], output: str) -> int:
    """Exit code 1 where something fails. UsageError for --admin of a broker that does not run; NoBrokerReachable."""
    ports = named_ports(told)
    limits = {"default_api_timeout_ms": TIMEOUT_MS}
    with session.admin(servers, **limits) as admin, session.consumer(servers, **limits) as consumer:
        facts = cluster_facts(session, admin, consumer, ports)
    check_named(ports, facts.brokers)
    verdicts = verdicts_on(facts)
    is_well = all(each.level != "FAIL" for each in verdicts)
    if output == "json":
        checks = [
            {"check": each.check, "ok": None if each.level == "?" else each.level != "FAIL", "level": each.level,
             "text": each.text, "since_ms": each.since_ms, "remedy": each.remedy} for each in verdicts
        ]  # fmt: skip
        show_json("doctor", checks=checks)
        return 0 if is_well else 1
    now_ms = session.now_ms()
    for each in said_once(verdicts):
        line = each.check + "".join(f"{mark}{text}" for mark, text in _marked(each, now_ms))
        click.echo(f"{click.style(each.level.ljust(4), fg=COLOURS[each.level])}  {printable(line)}")
    return 0 if is_well else 1


def _marked(verdict: Verdict, now_ms: int) -> list[tuple[str, str]]:
    since = "" if verdict.since_ms is None else since_text(verdict.since_ms, now_ms)
    return [(mark, text) for mark, text in ((": ", verdict.text), ("; ", since), ("; ", verdict.remedy)) if text]


def verdicts_on(facts: ClusterFacts) -> list[Verdict]:
    """Of each check, in their order."""
    return [_verdict(check, facts) for check in CLUSTER_CHECKS]


def said_once(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """For people: why something is not known stands in the first line that it leaves open; the others say where."""
    said: dict[str, str] = {}
    for each in verdicts:
        first = said.setdefault(each.text, each.check) if each.level == "?" else each.check
        yield each if first == each.check else each._replace(text=f"see {first}")


def _verdict(check: Check, facts: ClusterFacts) -> Verdict:
    found = found_by(check, facts)
    if isinstance(found, Unknown):
        return Verdict(check.name, "?", found.why)
    if not found:
        return Verdict(check.name, "ok")
    is_fault, text = (False, found.text) if isinstance(found, Advice) else (check.is_fault, found)
    since_ms = min((each["since_ms"] for each in problems_told(facts) if check.is_told_by(each)), default=None)
    return Verdict(check.name, "FAIL" if is_fault else "warn", text, check.remedy, since_ms)
