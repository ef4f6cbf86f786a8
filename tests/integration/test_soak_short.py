"""The soak of a cluster (`make soak-cluster`), short: that what it proves in the end holds, and that it can be run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).parents[1] / "soak" / "cluster_soak.py"
ARGUMENTS = ("--minutes", "0.45", "--kill-every", "8", "--lenient", "--output", "json")


def test_retention_and_compaction_under_load_keep_their_promises_while_brokers_are_killed(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    done = subprocess.run(
        [sys.executable, str(SOAK), *ARGUMENTS, "--keep", folder], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert [promise for promise in told["promises"] if not promise["holds"]] == []
    assert done.returncode == 0
    assert told["faults"] and all(told["acknowledged"].values())
