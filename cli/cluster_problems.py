"""What brokers say that somebody must act on: each is asked at its admin port, and `strandline status` shows a line for
each answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.broker.admin.problems import moment
from strandline.cli.admin_ports import NotTold, admin_port, status_of
from strandline.cli.wording import lasting, printable

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.client.metadata import BrokerView


def problems_of(
    admin: Admin, brokers: Mapping[int, BrokerView], cluster_id: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What each broker tells, with its id as `broker`, errors first; and which do not tell, and why."""
    found: list[dict[str, Any]] = []
    untold: list[dict[str, Any]] = []
    for broker_id, broker in sorted(brokers.items()):
        try:
            status = status_of(admin_port(admin, broker), broker_id, cluster_id, named=False)
        except NotTold as error:
            # What it advises are options of other commands.
            untold.append({"broker": broker_id, "why": str(error).partition("; ")[0]})
            continue
        found += problems_in(broker_id, status)
    return sorted(found, key=lambda each: (each["level"] != "error", each["since_ms"])), untold


def problems_in(broker_id: int, status: Mapping[str, object]) -> list[dict[str, Any]]:
    """What the broker's `/status` tells, with its id as `broker`."""
    problems = status.get("problems")
    return [{"broker": broker_id, **problem} for problem in problems] if isinstance(problems, list) else []


def problem_lines(report: Mapping[str, Any], now_ms: int) -> list[str]:
    """One for each, in the words of the broker's log."""
    lines = [problem_line(each, now_ms) for each in report.get("problems") or ()]
    untold: Sequence[Mapping[str, Any]] = report.get("problems_untold") or ()
    return lines + [
        printable(f"broker {each['broker']} does not tell what is wrong with it: {each['why']}") for each in untold
    ]


def problem_line(problem: Mapping[str, Any], now_ms: int) -> str:
    return printable(
        f"{problem['level']}: broker {problem['broker']}, {problem['where']}: {problem['what']}; "
        f"{since_text(problem['since_ms'], now_ms)}; {problem['remedy']}"
    )


def since_text(since_ms: int, now_ms: int) -> str:
    """`since 2026-11-26 12:00:00 UTC (3 min)`."""
    return f"since {moment(since_ms)} ({lasting(max(now_ms - since_ms, 0) / 1000)})"
