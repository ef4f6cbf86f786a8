"""Which seed catches which mutant: `python -m simulation.search_mutants 1-200 [part of a name]`, some hours for all.

Prints for each mutant the first seed that has a finding, and the finding, as `mutants.CAUGHT` wants them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scenarios.mutants.mutant import Mutant
from simulation.mutants import LENGTH_S, MUTANTS
from strandline.testkit.simulation.findings import name_of
from support.mutated_sources import ROOT, copy_of_the_sources


def first_finding(mutant: Mutant, first: int, last: int) -> tuple[int, str] | None:
    """Of a run on the broken sources, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        source_path = copy_of_the_sources(Path(folder), mutant)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{source_path}:{ROOT / 'tests'}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-m", "simulation.first_finding", str(first), str(last), str(LENGTH_S)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return (found[0], found[1]) if found is not None else None


def line_of(mutant: Mutant, first: int, last: int) -> str:
    found = first_finding(mutant, first, last)
    told = "None" if found is None else f"({found[0]}, {name_of(found[1])!r}),  # {found[1]:.200}"
    return f"{mutant.name!r}: {told}"


if __name__ == "__main__":
    first, _, last = sys.argv[1].partition("-")
    part = sys.argv[2] if len(sys.argv) > 2 else ""
    mutants = [mutant for mutant in MUTANTS if part in mutant.name]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for line in pool.map(lambda mutant: line_of(mutant, int(first), int(last)), mutants):
            print(line, flush=True)
