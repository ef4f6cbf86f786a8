"""Every query, also the long ones, against Spark's Kafka connector and ours, and a table of where they differ.

    PYTHONPATH=tests python -m compat.spark_conformance [--case TEXT] [--reference]

`--case`: only those whose names have this text; may be repeated. `--reference`: write docs/spark-conformance.md to
standard output and run nothing. The exit code is 1 where the table of known differences is not right.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track

from compat.spark_conformance.report import CASES, line, page, table
from compat.spark_conformance.running import Runner, site

WIDTH = 200
"""Where no terminal says how wide it is."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--reference", action="store_true")
    given = parser.parse_args()
    if given.reference:
        sys.stdout.write(page())
        return 0
    cases = [case for case in CASES if not given.case or any(text in case.name for text in given.case)]
    with tempfile.TemporaryDirectory() as folder, site(Path(folder)) as where, Runner(where, cases) as runner:
        progress = track(cases, "queries", console=Console(stderr=True))
        lines = [line(case, *runner.outcomes(case)) for case in progress]
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table(lines))
    return int(any(each.wrong for each in lines))


if __name__ == "__main__":
    sys.exit(main())
