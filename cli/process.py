"""Processes that outlive the command which started them: start, recognise, signal, wait.

A process is known by its pid *and* the moment it started: pids are used again, and a signal to a recycled one would
hit a stranger. A zombie counts as gone. Nothing here reads a process by name.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from strandline.runtime.processes.interrupts import held_back

_POLL_S = 0.02
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ProcessFailed(Exception):
    """A process that should run has ended, or did not do in time what it was started for; names its log."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """`started` is opaque: equal exactly if it is the same process of the same boot of the machine."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        return identify(self.pid) == self

    def send(self, signal_number: int) -> bool:
        """Signal exactly this process; False when it is gone."""
        try:
            descriptor = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
        except OSError:
            return False
        try:
            # With the descriptor open the pid cannot be given to another process between the look and the signal.
            if not self.is_alive:
                return False
            if descriptor is None:
                os.kill(self.pid, signal_number)
            else:
                signal.pidfd_send_signal(descriptor, signal_number)
        except ProcessLookupError:
            return False
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return True

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until it has ended; False when it still lives after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def resident_bytes(self) -> int | None:
        """Resident memory, None where the system does not tell."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return None


def identify(pid: int) -> ProcessId | None:
    """The process that has this pid now, None when there is none, or only a zombie of which no thread still ends."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _identify_by_ps(pid)
    except (ProcessLookupError, PermissionError):
        return None
    # The command's name stands in brackets and may hold anything; field 3 (state) follows it, field 22 is the start.
    state, *rest = stat.rpartition(")")[2].split()
    if state in "ZX" and not _other_threads(pid):
        return None
    return ProcessId(pid, f"{_boot_id()}:{rest[18]}")


def _stands_still(pid: int) -> bool:
    """Is every thread stopped? True where the system does not tell."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] not in "TtZX":
                return False
        except (FileNotFoundError, ProcessLookupError):
            continue  # this thread has ended
    return True


def _other_threads(pid: int) -> bool:
    """Whether more than its first one are there: while they end it is a zombie already, and has no exit code yet."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "boot"


def _identify_by_ps(pid: int) -> ProcessId | None:
    """Systems without /proc."""
    shown = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = shown.stdout.strip().partition(" ")
    return ProcessId(pid, started.strip()) if state and not state.startswith("Z") else None


class Daemon:
    """One background process with its log file. It runs in a session of its own: neither Ctrl-C nor a closed terminal
    reaches it. Started here (then its exit code is known) or found again by its id (`adopt`)."""

    def __init__(self, name: str, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self.id: ProcessId | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None) -> ProcessId:
        """Start `command` in `folder`, its output appended to the log. ProcessFailed when it cannot be started."""
        try:
            with self.log_path.open("ab") as log, held_back():  # one that was started is known, or nobody could end it
                self._child = subprocess.Popen(
                    list(command),
                    cwd=folder,
                    env={**os.environ, **(environment or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                # Already gone is possible; then an id that nothing matches keeps the rest simple.
                self.id = identify(self._child.pid) or ProcessId(self._child.pid, "gone")
        except OSError as error:
            raise ProcessFailed(f"{self.name} cannot be started ({command[0]}: {error.strerror})") from error
        return self.id

    def adopt(self, process: ProcessId) -> None:
        """Take charge of a process that an earlier command started."""
        self.id, self._child = process, None

    @property
    def is_alive(self) -> bool:
        self.exit_code  # noqa: B018  (reaps an ended child)
        return self.id is not None and self.id.is_alive

    @property
    def exit_code(self) -> int | None:
        """Of a child that has ended (negative: the signal); None while it runs and for adopted processes."""
        return self._child.poll() if self._child is not None else None

    def require_alive(self) -> None:
        """ProcessFailed, with the end of the log, when the process has ended."""
        if not self.is_alive:
            code = self.exit_code
            how = "ended" if code is None else f"ended with exit code {code}"
            raise ProcessFailed(f"{self.name} {how}: {self.last_log_line()} (log: {self.log_path})")

    def signal(self, signal_number: int) -> bool:
        """Send a signal; False when the process is gone."""
        return self.id is not None and self.id.send(signal_number)

    def pause(self, timeout_s: float = 60.0) -> None:
        """SIGSTOP, and wait until every thread stands still: one in the middle of a system call finishes that first,
        and what it sends would still go out. ProcessFailed when one does not within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        if self.id is None or not self.signal(signal.SIGSTOP):
            return
        while self.id.is_alive and not _stands_still(self.id.pid):
            if time.monotonic() >= deadline:
                raise ProcessFailed(f"{self.name} does not stand still {timeout_s:.0f} s after SIGSTOP")
            time.sleep(0.001)

    def stop(self, timeout_s: float) -> int | None:
        """SIGTERM, then SIGKILL after `timeout_s`. Returns the exit code where it is known. Idempotent."""
        if self.signal(signal.SIGTERM):
            self.signal(signal.SIGCONT)  # A paused process would never see the SIGTERM.
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end; SIGKILL after `timeout_s`."""
        if self._child is not None:
            try:
                return self._child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                return self._child.wait()
        if self.id is not None and not self.id.wait_gone(timeout_s):
            self.kill()
        return None

    def kill(self) -> None:
        """SIGKILL and wait until it is gone."""
        self.signal(signal.SIGKILL)
        if self._child is not None:
            self._child.wait()
        elif self.id is not None:
            self.id.wait_gone(10.0)

    def last_log_line(self) -> str:
        """The last line of the log that says something, for error messages."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, self.log_path.stat().st_size - 8192))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return "no log"
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "the log is empty")
