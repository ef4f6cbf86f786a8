"""What `strandline status` shows to people: a table of the members, and the verdict, which stands below the lines of
what brokers tell as problems and adds what none of these has said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.broker.admin import remedies
from strandline.broker.admin.problems import LEADERLESS, OF_MISSING_BROKERS, gone
from strandline.cli.cluster_problems import problem_lines
from strandline.cli.wording import counted
from strandline.protocol.types import NO_BROKER

_MEGABYTE = 1_000_000
MOST_LINES = 10
"""So many refused replicas, and deletions, are shown to people; JSON has all."""


def verdict(report: Mapping[str, Any]) -> str:
    """Fine, or what is wrong and what to do: a line about members, one about the controller, one about partitions, one
    for each replica that is refused and each deletion that is held up; of these only what brokers do not tell
    themselves as a problem."""
    amiss = _members_amiss(report), _controller_amiss(report), _partitions_amiss(report)
    lines = [line for line in amiss if line is not None]
    lines += _most(
        [
            f"broker {each['broker']} does not serve its replica of {each['topic']}-{each['partition']}: {each['why']}"
            for each in report["refused_replicas"] or ()
            if not any(_is_told(report, kind, broker=each["broker"]) for kind in ("log", "more logs", "directory"))
        ]
    )
    lines += _most(
        [
            f"topic {each['topic']} is being deleted and goes as soon as it can: {each['why']}"
            for each in report["unfinished_deletions"] or ()
            if not _is_told(report, "deletion", subject=each["topic"])
        ]
    )
    if lines:
        return "\n".join(lines)
    told = counted(len(problem_lines(report, 0)), "line")
    if not report["healthy"]:
        return f"not healthy: see the {told} above"
    but = f", but for the {told} above" if report.get("problems") or report.get("problems_untold") else ""
    return f"healthy{but}: {counted(report['topics'], 'topic')}, {counted(report['partitions'], 'partition')}"


def _is_told(report: Mapping[str, Any], kind: str, *, broker: int | None = None, subject: str | None = None) -> bool:
    """Whether a broker (any, of anything, where nothing is said) tells of such a problem."""
    return any(
        each["kind"] == kind and broker in (None, each["broker"]) and subject in (None, each["subject"])
        for each in report.get("problems") or ()
    )


def _members_amiss(report: Mapping[str, Any]) -> str | None:
    if report["zookeeper"] is None:
        return _brokers_amiss(report)
    amiss = [
        (f"broker {broker['id']}", broker["state"], broker["pid"])
        for broker in report["brokers"]
        if broker["state"] != "up"
    ]
    zookeeper = report["zookeeper"]
    if zookeeper["state"] != "up":
        amiss.append(("ZooKeeper", zookeeper["state"], zookeeper["pid"]))
    if not amiss:
        return None
    helps = []
    if any(state == "dead" for _, state, _ in amiss):
        helps.append("strandline up starts what is dead")
    if silent := [str(pid) for _, state, pid in amiss if state == "silent"]:
        # It runs, so `up` has nothing to start.
        helps.append(f"a silent one runs without answering: if it is paused, kill -CONT {' '.join(silent)}")
    members = ", ".join(f"{name} is {state}" for name, state, _ in amiss)
    return f"{members}; {'; '.join(helps)}; the logs say why"


def _brokers_amiss(report: Mapping[str, Any]) -> str | None:
    """Of a cluster that `up` did not start."""
    lines = [
        f"broker {each['id']} runs and does not answer at {each['address']}; mend advertised.listeners, or see its log"
        for each in report["brokers"]
        if each["state"] == "silent"
    ]
    lines += [
        f"broker {each['id']}, which holds replicas, does not run; {remedies.START} {each['id']}"
        for each in report["brokers"]
        if each["state"] == "gone"
        and not any(_is_told(report, kind, subject=gone(each["id"])) for kind in OF_MISSING_BROKERS)
    ]
    return "\n".join(lines) or None


def _controller_amiss(report: Mapping[str, Any]) -> str | None:
    is_told = any(_is_told(report, kind) for kind in ("controller", "zookeeper"))
    if report["controller_id"] != NO_BROKER or is_told:
        return None
    return f"no broker is the controller; {remedies.FIND_CONTROLLER}"


def _partitions_amiss(report: Mapping[str, Any]) -> str | None:
    if report["partitions"] is None:
        return "no broker answers: nobody knows how the partitions are"
    is_told = not report.get("problems_untold")
    leaderless_told = is_told and _is_told(report, LEADERLESS)
    lacking_told = leaderless_told or (is_told and any(_is_told(report, kind) for kind in OF_MISSING_BROKERS))
    if (leaderless_told or not report["without_leader"]) and (lacking_told or not report["under_replicated"]):
        return None
    return (
        f"{counted(report['without_leader'], 'partition')} without a leader, {report['under_replicated']} "
        f"under-replicated of {report['partitions']}; strandline topics describe shows them"
    )


def _most(lines: list[str]) -> list[str]:
    left_out = len(lines) - MOST_LINES
    more = [f"and {left_out} more; strandline status --output json shows them"] if left_out > 0 else []
    return lines[:MOST_LINES] + more


def show(report: Mapping[str, Any]) -> None:
    """A table of the members."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    is_here = report["data_dir"] is not None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("member", "state", "address", "admin port"):
        table.add_column(heading)
    for heading in ("pid", "memory") if is_here else ():
        table.add_column(heading, justify="right")
    members = [("zookeeper", report["zookeeper"])] if is_here else []
    members += [(f"broker {broker['id']}", broker) for broker in report["brokers"]]
    for name, member in members:
        colour = {"up": "green", "silent": "yellow"}.get(member["state"], "red")
        leads = " (controller)" if report["controller_id"] == member.get("id", object()) else ""
        resident = member["resident_bytes"]
        memory = f"{resident / _MEGABYTE:.0f} MB" if resident is not None else "-"
        state = f"[{colour}]{member['state']}[/]"
        pid = str(member["pid"]) if member["pid"] is not None else "-"
        addresses = (member["address"] or "-", member.get("admin_address") or "-")
        table.add_row(f"{name}{leads}", state, *addresses, *((pid, memory) if is_here else ()))
    console = Console(highlight=False)
    where = f"in {escape(report['data_dir'])} (logs: */*.log)" if is_here else f"at {report['bootstrap_servers']}"
    console.print(f"cluster {where}", soft_wrap=True)
    console.print(table)
