"""The soak of a history (`make soak-history`), short: five faults on real processes, and nothing is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).parents[1] / "soak" / "history_soak.py"
SCRIPT = """\
    1.000 kill 1 for 1
    4.000 cut 2>3 for 3
    8.000 zookeeper reply 2 for 1
   10.000 isolate 3 for 4
   15.000 expire 2
"""
"""The broker that is killed is left alone afterwards, however long its return takes."""


def test_faults_on_real_processes_cost_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(SCRIPT)
    options = ("--records", "5000", "--brokers", "3", "--script", str(script), "--output", "json")
    folder = tmp_path / "data"
    done = subprocess.run(
        [sys.executable, str(SOAK), *options, "--keep", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert [promise for promise in told["promises"] if not promise["holds"]] == []
    assert told["anomalies"] == []
    assert told["script"] == SCRIPT.splitlines()
    assert told["records"] >= 5000
    assert done.returncode == 0
