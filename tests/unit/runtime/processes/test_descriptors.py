"""The limit of open files."""

from __future__ import annotations

import subprocess
import sys


def test_the_soft_limit_becomes_the_hard_one() -> None:
    program = (
        "import resource; from strandline.runtime.processes.descriptors import raise_descriptor_limit as up;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 128)); print(up(), up());"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["128"] * 4
