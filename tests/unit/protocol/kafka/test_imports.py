"""What importing the Kafka dialect brings along."""

from __future__ import annotations

import subprocess
import sys


def test_a_broker_loads_no_test_tools_though_they_are_installed() -> None:
    """kio looks for hypothesis and computes strategies for it: most of a broker's start, and 13 MB for good."""
    program = (
        "import sys, strandline.broker.process; "
        "print(*[name for name in ('hypothesis', 'pytest') if sys.modules.get(name)]); "
        "import hypothesis"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
