"""What brokers say that somebody must act on: each is asked at its admin port, and `strandline status` shows a line for
each answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from strandline.broker.admin.problems import moment, named, partitions_are
from strandline.cli.admin_ports import admin_ports, from_each, status_of
from strandline.cli.wording import lasting, printable

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.client.metadata import BrokerView
    from strandline.runtime.network import Address

LAST_MOMENT_MS = 253_402_300_799_000
"""The end of the year 9999, which is the last that can be written as a date."""


def problems_of(
    admin: Admin, brokers: Mapping[int, BrokerView], cluster_id: str, ports: Mapping[int, Address]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[int, Address]]:
    """What each broker tells, with its id as `broker`, errors first; which do not tell, and why; and where each was
    asked. ports: admin ports by the command line."""
    asked, untold = admin_ports(admin, brokers, ports)
    statuses, silent = from_each(asked, lambda each: status_of(asked[each], each, cluster_id, named=each in ports))
    untold |= silent
    found: list[dict[str, Any]] = []
    for broker_id, status in statuses.items():
        if "problems" not in status:
            untold[broker_id] = f"the /status of {asked[broker_id]} says nothing of problems"
        elif not is_understood(status):
            where = f"the /status of {asked[broker_id]}"
            untold[broker_id] = f"{where} tells problems in another form, of another version perhaps; see its log"
        found += problems_in(broker_id, status)
    return (
        sorted(found, key=lambda each: (each["level"] != "error", each["since_ms"])),
        [{"broker": broker_id, "why": why} for broker_id, why in sorted(untold.items())],
        asked,
    )


class _Led(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0)]
    first: list[str]


class _Told(msgspec.Struct):
    """What a problem has to have for a line of it, beside what may be missing; the rest of it is for programs."""

    level: str
    what: str
    where: str
    remedy: str
    since_ms: Annotated[int, msgspec.Meta(ge=0, le=LAST_MOMENT_MS)]
    kind: str
    subject: str
    led: _Led


def problems_in(broker_id: int, status: Mapping[str, object]) -> list[dict[str, Any]]:
    """What the broker's `/status` tells, with its id as `broker`. What cannot be understood is left out: see
    `is_understood`."""
    read = map(_read, _listed(status) or ())
    return [{"broker": broker_id} | each | {"broker": broker_id} for each in read if each is not None]


def is_understood(status: Mapping[str, object]) -> bool:
    """Whether `problems_in` leaves nothing out: another version, or what is no broker, may tell anything."""
    listed = _listed(status)
    return listed is not None and None not in map(_read, listed)


def _listed(status: Mapping[str, object]) -> list[object] | None:
    problems = status.get("problems")
    return problems if isinstance(problems, list) else None


def _read(problem: object) -> dict[str, Any] | None:
    """With all that `_Told` has; None where that cannot be."""
    if not isinstance(problem, dict):
        return None
    whole = {"kind": "", "subject": "", "led": {"count": 0, "first": []}, **problem}
    try:
        msgspec.convert(whole, _Told)
    except msgspec.ValidationError:
        return None
    return whole


def problem_lines(report: Mapping[str, Any], now_ms: int) -> list[str]:
    """One for each, in the words of the broker's log. What several brokers tell alike is one line, since the first of
    them saw it; so is what each leader tells of its own partitions, with all of these."""
    alike: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for each in report.get("problems") or ():
        parts = ("kind", "subject") if each["led"]["count"] else ("where", "what")
        alike.setdefault(tuple(each[part] for part in ("level", *parts, "remedy")), []).append(each)
    untold: Sequence[Mapping[str, Any]] = report.get("problems_untold") or ()
    return [_problem_line(tellers, now_ms) for tellers in alike.values()] + [
        printable(f"broker {each['broker']} does not tell what is wrong with it: {each['why']}") for each in untold
    ]


def _problem_line(tellers: Sequence[Mapping[str, Any]], now_ms: int) -> str:
    problem, since_ms = tellers[0], min(each["since_ms"] for each in tellers)
    what, where = problem["what"], problem["where"]
    if len(tellers) > 1 and (count := sum(each["led"]["count"] for each in tellers)):
        what = partitions_are(count) + what.removeprefix(partitions_are(problem["led"]["count"]))
        where = named([name for each in tellers for name in each["led"]["first"]], count)
    who = ", ".join(map(str, sorted(each["broker"] for each in tellers)))
    return printable(
        f"{problem['level']}: broker{'s' if len(tellers) > 1 else ''} {who}, {where}: {what}; "
        f"{since_text(since_ms, now_ms)}; {problem['remedy']}"
    )


def since_text(since_ms: int, now_ms: int) -> str:
    """`since 2026-11-26 12:00:00 UTC (3 min)`."""
    return f"since {moment(since_ms)} ({lasting(max(now_ms - since_ms, 0) / 1000)})"
