"""What the soaks of a cluster share: their command line, the brokers that run meanwhile, and how they end."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import trio
from rich.console import Console
from rich.markup import escape

from soak import soak_promises as promises
from soak.soak_promises import Verdict
from strandline.cli.cluster import EmbeddedCluster
from strandline.testkit.verification import PromiseBroken

PATIENCE_S = 120
WIDTH = 160
"""A file or a pipe has none."""


class Soak(Protocol):
    cluster: EmbeddedCluster

    async def run(self) -> None:
        """Load, faults, proofs, while the brokers run."""

    def holds(self) -> bool:
        """Every promise."""

    def as_json(self) -> dict[str, Any]: ...

    def show(self, console: Console) -> None: ...


def command_line(doc: str | None) -> argparse.ArgumentParser:
    """The options that every soak has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="DIR", help="put the data there and leave it")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    return parser


def soak_it(arguments: argparse.Namespace, name: str, prepare: Callable[[Path], Soak]) -> int:
    """`prepare` is given the folder for its data. Returns the exit code."""
    folder = Path(arguments.keep or tempfile.mkdtemp(prefix=f"strandline-{name}-"))
    soak, holds = prepare(folder), False
    try:
        trio.run(_run, soak)
        holds = soak.holds()
        if arguments.output == "json":
            json.dump(soak.as_json(), sys.stdout, indent=1)
            sys.stdout.write("\n")
        else:
            soak.show(Console() if sys.stdout.isatty() else Console(width=WIDTH))
        if not holds:
            sys.stderr.write(f"a promise is broken; the data and logs stay in {folder}\n")
    finally:
        if holds and not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if holds else 1


async def _run(soak: Soak) -> None:
    async with _running(soak.cluster):
        await soak.run()


@asynccontextmanager
async def _running(cluster: EmbeddedCluster) -> AsyncIterator[None]:
    try:
        await off_loop(cluster.start, PATIENCE_S)
        yield
    finally:
        with trio.CancelScope(shield=True):
            await off_loop(cluster.stop, 10.0)


async def off_loop(function: Any, *args: Any) -> Any:
    return await trio.to_thread.run_sync(partial(function, *args))


async def stopped(cluster: EmbeddedCluster) -> str:
    """The proof that no broker fails by itself. Brokers are stopped when it returns."""
    await off_loop(_stop_brokers, cluster)
    return await off_loop(promises.no_tracebacks, [daemon.log_path for daemon in cluster.brokers.values()])


def _stop_brokers(cluster: EmbeddedCluster) -> None:
    """SIGTERM to all, and each must end by itself."""
    for daemon in cluster.brokers.values():
        daemon.signal(signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_S
    for broker_id, daemon in cluster.brokers.items():
        code = daemon.wait(max(0.1, deadline - time.monotonic()))
        if code:
            raise PromiseBroken(f"broker {broker_id} ended with exit code {code} after SIGTERM")


def show_verdicts(console: Console, verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        word = "[green]holds [/]" if verdict.holds else "[red]BROKEN[/]"
        console.print(f"{word} {verdict.promise}: {escape(verdict.text)}")
