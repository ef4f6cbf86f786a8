"""Several simulated runs side by side: a run computes on one core, so there is a process for each.

    python -m strandline.cli.simulate_processes     what each of them is; it reads its order in one line of stdin

Seed after seed goes to the next process in turn. Done twice, a seed goes to two of them, which have different hash
seeds, so that equal digests say that nothing hangs on what a process is. Results come in the order of the seeds. On
Ctrl-C the processes are killed; they end by themselves with the one that started them.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import click
import msgspec

from strandline.cli.simulate_run import Plan, Result, result_of
from strandline.cli.wording import printable
from strandline.runtime.processes.interrupts import held_back
from strandline.runtime.processes.parent import end_with_stdin

COMMAND = (sys.executable, "-m", "strandline.cli.simulate_processes")


class _Order(msgspec.Struct):
    """seeds: in the order in which their results are told."""

    plan: Plan
    seeds: list[int]


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(plan: Plan, seeds: Sequence[int], processes: int, *, twice: bool) -> Iterator[Result]:
    """One after the other as `seeds` has them; a second run that is not as the first is a finding. ClickException: a
    process ended without a result."""
    processes = min(processes, len(seeds) * (2 if twice else 1))
    places = list(_places(len(seeds), processes, twice=twice))
    orders: list[list[int]] = [[] for _ in range(processes)]
    for seed, own in zip(seeds, places, strict=True):
        for place in own:
            orders[place].append(seed)
    started: list[subprocess.Popen[bytes]] = []
    try:
        with held_back():  # a process that was started is known when it is interrupted
            for number, own_seeds in enumerate(orders):
                started.append(_start(_Order(plan, own_seeds), hash_seed=number))
        for own in places:
            result, *others = [_next(started[place]) for place in own]
            for other in others:
                compare(result, other)
            yield result
    finally:
        for process in started:
            process.kill()  # nothing, where it has ended
            process.communicate()


def compare(result: Result, again: Result) -> None:
    """The same seed once more: another digest becomes a finding."""
    if again.digest != result.digest:
        where = f"seed {result.seed}"
        result.findings.append(f"not-the-same-again: {where}: digest {result.digest}, then {again.digest}")


def _places(count: int, processes: int, *, twice: bool) -> Iterator[tuple[int, ...]]:
    """Who runs each of so many seeds."""
    for number in range(count):
        first, second = number % processes, (number + 1) % processes
        yield (first, second) if twice else (first,)


def _start(order: _Order, hash_seed: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended already: its result will be missed
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        process.stdin.flush()
    return process


def _next(process: subprocess.Popen[bytes]) -> Result:
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    if not line:
        said = process.stderr.read().decode(errors="replace").strip().splitlines()
        raise click.ClickException(f"a process of the simulation ended: {printable(said[-1]) if said else 'silently'}")
    return msgspec.json.decode(line, type=Result)


def main() -> None:
    """One of the processes."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=_Order)
    end_with_stdin(1)
    _tune_garbage_collection()
    for seed in order.seeds:
        began_s = time.monotonic()
        report = order.plan.run(seed)
        result = result_of(report, order.plan, time.monotonic() - began_s)
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
        sys.stdout.buffer.flush()


def _tune_garbage_collection() -> None:
    """What a run leaves is collected once, when it is over, and nothing is gone through then that lives for ever: the
    simulator among it, so it is imported before."""
    import strandline.testkit.simulation.driver  # noqa: F401
    from strandline.runtime.production import tune_garbage_collection

    tune_garbage_collection()


if __name__ == "__main__":
    main()
