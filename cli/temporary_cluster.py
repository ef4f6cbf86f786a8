"""An embedded cluster that goes, with its folder, when the command that started it ends, however that ends.

Nobody needs its data afterwards, so its members are killed: that takes no time, and Ctrl-C waits for it. A command that
is killed itself can end nothing. A process beside it, the keeper, reads a pipe whose other end the command holds open
for as long as it lives, and then clears up what is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.runtime.processes.interrupts import held_back
from strandline.runtime.processes.parent import STDIN

if TYPE_CHECKING:
    from strandline.cli.cluster import EmbeddedCluster

CLUSTER_FOLDER = "cluster"
"""Below the one that is made for it."""


@contextmanager
def temporary_cluster(brokers: int) -> Iterator[EmbeddedCluster]:
    """One that serves, in a folder of its own; nothing is left of it. What EmbeddedCluster raises."""
    from strandline.cli.cluster import EmbeddedCluster

    with held_back():
        folder = Path(tempfile.mkdtemp(prefix="strandline-"))
        keeper = _start_keeper(folder)
    # Deleted topics go at once: by default those of a minute would stay, and fill the folder.
    properties = {"log.segment.delete.delay.ms": "0"}
    cluster = EmbeddedCluster(folder / CLUSTER_FOLDER, brokers, properties=properties)
    try:
        cluster.start()
        yield cluster
    finally:
        with held_back() as came:
            _remove(cluster, folder)
            keeper.communicate()  # its pipe ends, and with it the keeper
            came.clear()  # what was interrupted has ended


def _start_keeper(folder: Path) -> subprocess.Popen[bytes]:
    """In a session of its own: what a terminal sends to the command does not reach it."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _remove(cluster: EmbeddedCluster, folder: Path) -> None:
    cluster.kill()
    shutil.rmtree(folder)


def _keep(folder: Path) -> None:
    """Wait for the command's end, and do what it could not."""
    while os.read(STDIN, 1):
        pass
    if not folder.exists():
        return
    from strandline.cli.cluster import ClusterNotUp, EmbeddedCluster

    with suppress(ClusterNotUp):
        EmbeddedCluster.recorded(folder / CLUSTER_FOLDER).kill()
    shutil.rmtree(folder)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
