"""`strandline simulate`: whole clusters on virtual time, from a seed, with faults, and what they must not have done.

The simulator is `testkit.simulation`; nothing of it is imported before the command line is understood.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from strandline.cli.bar import Bar
from strandline.cli.options import output_option, page_option, partition_numbers, show_json
from strandline.cli.progress import EVERY_S, NOT_BEFORE_S
from strandline.cli.session import Session, session_of
from strandline.cli.simulate_run import DEFAULT_BROKERS, Plan, Result, result_of, seconds_text
from strandline.cli.spark_session import warn
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline.testkit.simulation.driver import Report
    from strandline.testkit.simulation.minimise import Case

EXIT_FAILED = 1
MOST_BROKERS = 15
SHORTEST_S, LONGEST_S = 0.1, 86_400.0
OF_ONE_RUN = ("trace", "minimise", "page")


class Asked(NamedTuple):
    """What is to be shown of one run, beside the rest."""

    trace: bool
    minimise: bool
    twice: bool
    page: Path | None
    as_json: bool


@click.command(
    epilog="Examples: strandline simulate --seed 7 --trace; "
    "strandline simulate --seed 7 --faults kill,power,'zookeeper cut' --brokers 5 --page run.html; "
    "strandline simulate --seed 7 --minimise; strandline simulate --seeds 1-50 --twice; "
    "strandline simulate --seed 7 --until 20s --script faults.txt"
)
@click.option("--seed", type=click.IntRange(0, 999_999_999), help="Of one run.")
@click.option("--seeds", default="", metavar="1-50,77", help="Several runs, on all cores.")
@click.option("--until", default="120s", show_default=True, metavar="TIME", help="Virtual time with faults: 600s, 2m.")
@click.option("--brokers", type=click.IntRange(2, MOST_BROKERS), default=DEFAULT_BROKERS, show_default=True)
@click.option("--faults", metavar="KIND,…", help="No others than these, '' for none.")
@click.option("--list-faults", is_flag=True, help="Tell which kinds of faults there are, and what each does.")
@click.option("--script", type=click.File("rb"), metavar="FILE", help="These faults, one a line; - for stdin.")
@click.option(
    "--trace", is_flag=True, help="Tell the run: faults, elections, ISRs, lives of brokers, what clients were refused."
)
@click.option("--minimise", is_flag=True, help="Cut the script to what still shows the first finding.")
@click.option("--twice", is_flag=True, help="Each seed twice; another digest is a finding.")
@click.option("--processes", type=click.IntRange(1, 1024), help="So many for --seeds.  [default: one for each core]")
@page_option
@output_option
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    seed: int | None,
    seeds: str,
    processes: int | None,
    output: str,
    list_faults: bool,
    **given: Any,
) -> None:
    """Run a whole cluster in a deterministic simulator, and look for what must not be.

    Brokers, controller, clients, ZooKeeper, disks and network run in one event loop on virtual time. The seed decides
    everything: what it draws is shown first. Faults are done to the cluster, then all is healed, and what clients were
    told is held against every disk. The same seed has the same digest on any machine. What does not hold is a finding,
    a line each, and exit code 1.

    A script has when, what, to whom, for how long, and how where there is a choice: `1.5 kill 2 for 4`, `3 cut 1>3 for
    12`, `9.4 kill at disk 2 for 8: roll`. What was struck already is passed over, so any part of a script is one."""
    if list_faults:
        return _list_faults(as_json=output == "json")
    numbers = _seeds(seed, seeds, given)
    _check_simulator()
    plan = _plan(**{name: given.pop(name) for name in ("until", "brokers", "faults", "script")})
    asked = Asked(**given, as_json=output == "json")
    session = session_of(ctx)
    if seeds:
        results = _show_several(session, plan, numbers, processes, asked)
    else:
        results = [_OneRun(session, plan, numbers[0], asked).show()]
    if any(result.findings for result in results):
        ctx.exit(EXIT_FAILED)


def _seeds(seed: int | None, seeds: str, given: dict[str, Any]) -> list[int]:
    """UsageError."""
    if (seed is None) == (not seeds):
        raise click.UsageError("give --seed, of one run, or --seeds, of several: for example --seed 7, --seeds 1-50")
    if seed is not None:
        return [seed]
    if wrong := [f"--{name}" for name in OF_ONE_RUN if given[name]]:
        raise click.UsageError(f"{wrong[0]} is for one run: give --seed in place of --seeds")
    return sorted(partition_numbers("--seeds", seeds))


def _check_simulator() -> None:
    """What is private in trio may be elsewhere in another version. ClickException where the simulator finds nothing."""
    from strandline.testkit.simulation import TRIED_TRIO

    installed = version("trio")
    untried = f"the simulator was tried with trio {TRIED_TRIO} only, and {installed} is installed"
    if installed != TRIED_TRIO:
        warn(f"{untried}: a run may fail, or not be the same again")
    try:
        import strandline.testkit.simulation.driver  # noqa: F401
    except ImportError as error:
        if not (error.name or "").startswith("trio"):
            raise
        raise click.ClickException(f"{untried}: {error}; pip install trio=={TRIED_TRIO}") from None


def _plan(until: str, brokers: int, faults: str | None, script: IO[bytes] | None) -> Plan:
    """UsageError."""
    from strandline.cli.offset_range import InvalidOffset, duration_ms
    from strandline.testkit.simulation.faults.table import KINDS, check_script
    from strandline.testkit.simulation.script import NotAFault, read_script, text_of

    try:
        length_s = duration_ms(until) / 1000
    except InvalidOffset as error:
        raise click.UsageError(f"--until: {error}") from None
    if not SHORTEST_S <= length_s <= LONGEST_S:
        raise click.UsageError(f"--until {until} is not between {SHORTEST_S:g}s and {seconds_text(LONGEST_S)}s")
    if faults is not None and script is not None:
        raise click.UsageError("--faults is for what is drawn, --script in place of that; give one of them")
    kinds = None if faults is None else tuple(dict.fromkeys(each.strip() for each in faults.split(",") if each.strip()))
    for kind in kinds or ():
        if kind not in KINDS:
            raise click.UsageError(
                f"--faults: there is no fault '{kind}'; those are {', '.join(KINDS)} (see --list-faults)"
            )
    if script is None:
        return Plan(brokers, length_s, kinds)
    try:
        read = read_script(script.read().decode())
        check_script(read, brokers)
    except (NotAFault, UnicodeDecodeError) as error:
        raise click.UsageError(f"--script {script.name}: {error}") from None
    return Plan(brokers, length_s, script=text_of(read))


def _list_faults(*, as_json: bool) -> None:
    from strandline.cli.tables import show_table
    from strandline.testkit.simulation.faults.table import KINDS, targets_text

    if as_json:
        kinds = {
            name: {"targets": targets_text(kind), "about": kind.about, "ways": kind.ways}
            for name, kind in KINDS.items()
        }
        return show_json("simulate", faults=kinds)
    rows = [(name, targets_text(kind), kind.about, ", ".join(kind.ways)) for name, kind in KINDS.items()]
    show_table(("fault", "done to", "what it does", "one of"), rows)


# --- One run ---------------------------------------------------------------------------------------------------


class _OneRun:
    """A run that is shown while it goes on, once more or shortened where that is asked for."""

    def __init__(self, session: Session, plan: Plan, seed: int, asked: Asked) -> None:
        self._session = session
        self._plan = plan
        self._seed = seed
        self._asked = asked
        self._runs = 0
        self._real_s = 0.0

    def show(self) -> Result:
        from strandline.cli.simulate_text import head_lines, versions_line

        self._say(versions_line(), *head_lines(self._plan.options(self._seed), self._plan.case(self._seed)))
        report = self._run(self._plan, "")
        result = result_of(report, self._plan, self._real_s)
        if self._asked.twice:
            self._compare(result)
        if self._asked.minimise:
            report, result = self._minimised(report, result)
        self._show(report, result)
        return result

    def _run(self, plan: Plan, what: str) -> Report:
        began_s = self._session.monotonic()
        bar = Bar()
        watch = _watch(bar, what, plan.length_s, self._session.monotonic) if sys.stderr.isatty() else None
        try:
            report = plan.run(self._seed, watch)
        finally:
            bar.stop()
        self._runs += 1
        self._real_s = self._session.monotonic() - began_s
        return report

    def _compare(self, result: Result) -> None:
        from strandline.cli.simulate_processes import compare

        compare(result, result_of(self._run(self._plan, "once more: "), self._plan, self._real_s))

    def _minimised(self, report: Report, result: Result) -> tuple[Report, Result]:
        """The shortest run that shows the first finding, and what is told of it."""
        from strandline.testkit.simulation.findings import name_of
        from strandline.testkit.simulation.minimise import minimised

        if not report.findings:
            self._say("there is no finding, and so nothing to cut")
            return report, result
        name = name_of(report.findings[0])
        last = report, result

        def shows(case: Case) -> bool:
            nonlocal last
            shorter = self._plan.replaced_by(case)
            told = f"{counted(len(case.script), 'fault')} in {seconds_text(case.length_s)} s"
            found = self._run(shorter, f"run {self._runs + 1}, {told}: ")
            if name not in map(name_of, found.findings):
                return False
            self._say(f"run {self._runs}: {told} show {name}")
            last = found, result_of(found, shorter, self._real_s)
            return True

        self._say(f"run 1: {counted(len(report.script), 'fault')} show {name}")
        minimised(self._plan.case(self._seed), shows)
        self._say(f"the shortest of {counted(self._runs, 'run')}, which is told below:", last[1].replay)
        return last

    def _show(self, report: Report, result: Result) -> None:
        from strandline.cli.simulate_text import show_outcome
        from strandline.cli.simulate_transcript import transcript

        told = transcript(report) if self._asked.trace else []
        if self._asked.page is not None:
            from strandline.cli.simulate_page import simulate_page

            self._asked.page.write_text(simulate_page(report), encoding="utf-8")
        if self._asked.as_json:
            _show_fields([result], **{"trace": told} if self._asked.trace else {})
            return
        self._say(*told)
        show_outcome(result)
        if self._asked.trace:
            self._say(*(finding for finding in result.findings if "\n" in finding))
        if self._asked.page is not None:
            self._say(f"page: {self._asked.page}")

    def _say(self, *lines: str) -> None:
        if lines and not self._asked.as_json:
            click.echo("\n".join(lines))


def _watch(bar: Bar, what: str, length_s: float, monotonic: Callable[[], float]) -> Callable[[float], None]:
    """Draws how far a run is, now and then."""
    due_s = monotonic() + NOT_BEFORE_S

    def draw(virtual_s: float) -> None:
        nonlocal due_s
        if monotonic() >= due_s:
            due_s = monotonic() + EVERY_S
            bar.draw(f"{what}{virtual_s:.0f} s of {length_s:.0f} s and the healing", min(1.0, virtual_s / length_s))

    return draw


# --- Several ---------------------------------------------------------------------------------------------------


def _show_several(
    session: Session, plan: Plan, seeds: Sequence[int], processes: int | None, asked: Asked
) -> list[Result]:
    from strandline.cli.simulate_processes import cores, run_all
    from strandline.cli.simulate_text import seed_line, show_batch, versions_line
    from strandline.testkit.simulation.faults.table import KINDS

    began_s = session.monotonic()
    if not asked.as_json:
        click.echo(versions_line())
    results: list[Result] = []
    for result in run_all(plan, seeds, processes or cores(), twice=asked.twice):
        results.append(result)
        if not asked.as_json:
            click.echo(seed_line(result))
    if asked.as_json:
        _show_fields(results)
    else:
        show_batch(results, KINDS if plan.kinds is None else plan.kinds, session.monotonic() - began_s)
    return results


def _show_fields(results: Sequence[Result], **more: object) -> None:
    from strandline.cli.simulate_text import fault_rows, never_reached, sum_of_sometimes
    from strandline.testkit.simulation.faults.table import KINDS

    names = ("kind", "struck", "runs", "without_findings", "with_findings")
    show_json(
        "simulate",
        runs=msgspec.to_builtins(results),
        faults=[dict(zip(names, row, strict=True)) for row in fault_rows(results, KINDS)],
        sometimes=sum_of_sometimes(results),
        never_reached=never_reached(results),
        **more,
    )
