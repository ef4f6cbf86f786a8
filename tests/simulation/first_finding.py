"""Run seeds until one has a finding: `python -m simulation.first_finding FIRST LAST SECONDS`. It prints that seed and
the finding as JSON, `null` where there is none: for sources that are broken on purpose."""

from __future__ import annotations

import json
import sys

from strandline.testkit.simulation.driver import simulate_seed


def first_finding(first: int, last: int, length_s: float) -> tuple[int, str] | None:
    for seed in range(first, last + 1):
        report = simulate_seed(seed, length_s=length_s)
        if report.findings:
            return seed, report.findings[0]
    return None


if __name__ == "__main__":
    print(json.dumps(first_finding(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
