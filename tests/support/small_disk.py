"""A small file system for one broker of an embedded cluster.

It is a tmpfs in a mount namespace of its own, which a sleeping process keeps, so that it outlives the broker; from
outside it is reached below /proc/<that process>/root.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from strandline.cli.process import Daemon, ProcessId

SMALL_DISK_BYTES = 4 * 2**20


class WrappedDaemon(Daemon):
    """Runs its command behind a prefix, which ends in replacing itself by the command."""

    prefix: Sequence[str] = ()

    def start(self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None) -> ProcessId:
        return super().start([*self.prefix, *command], folder=folder, environment=environment)


class SmallDisk:
    """A full-size mount point outside, a few megabytes inside."""

    def __init__(self, mount_point: Path, size_bytes: int = SMALL_DISK_BYTES) -> None:
        mount_point.mkdir(parents=True)
        self.mount_point = mount_point
        unshare, enter = _namespace_commands()
        mount = f"mount -t tmpfs -o size={size_bytes} small '{mount_point}' && echo ready && exec sleep 1000000"
        self._keeper = subprocess.Popen([*unshare, "sh", "-c", mount], stdout=subprocess.PIPE)
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == b"ready\n"
        self.enter = [*enter, "--target", str(self._keeper.pid), "--"]
        self.seen_from_outside = Path(f"/proc/{self._keeper.pid}/root{mount_point}")
        self._ballast = self.seen_from_outside / "ballast"

    def fill_but(self, free_bytes: int) -> None:
        """Leave so much room, or less: a broker that writes meanwhile may take it."""
        space = os.statvfs(self.seen_from_outside)
        try:
            self._ballast.write_bytes(bytes(max(0, space.f_bavail * space.f_frsize - free_bytes)))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def make_room(self) -> None:
        self._ballast.unlink()

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.wait()


def _namespace_commands() -> tuple[list[str], list[str]]:
    """(how to make a mount namespace, how to enter one): a user's own where the system allows that, else root's."""
    if subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True).returncode == 0:
        return ["unshare", "--map-root-user", "--mount"], ["nsenter", "--user", "--mount", "--preserve-credentials"]
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0:
        return ["unshare", "--mount"], ["nsenter", "--mount"]
    pytest.fail("no small disk can be mounted: allow user namespaces, or run as root with CAP_SYS_ADMIN")
