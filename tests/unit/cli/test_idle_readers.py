"""A command whose reader stands still ends when it is told to, with exit code 130, and commits only what is out."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import NamedTuple

import pytest

from strandline.cli.idle_readers import bring_out
from strandline.runtime.processes.interrupts import interrupted_after

PIPE_BYTES = 4096
LINE_BYTES = 40
PATIENCE_S = 60
TESTS = Path(__file__).parents[2]

PROGRAM = """
import json, os, sys
from strandline.cli import main
from unit.cli.conftest import FakeCluster, FakeSession

cluster = FakeCluster()
main.Session = lambda: FakeSession(cluster)
{prepare}
try:
    main.main(sys.argv[1:])
finally:
    os.write({report}, json.dumps({{
        "committed": [each.offset for offsets in cluster.committed.values() for each in offsets.values()],
    }}).encode())
"""


class Ended(NamedTuple):
    code: int
    errors: str
    committed: list[int]


class Pipe:
    """A small one that nobody reads until the command has ended."""

    def __init__(self, taken_bytes: int = 0) -> None:
        self.reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.write(self.writing, b"x" * taken_bytes)

    @property
    def is_full(self) -> bool:
        """Whoever writes on is blocked: a longer write is cut at the end of it, a shorter one does not begin there."""
        count = fcntl.ioctl(self.reading, termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(count, sys.byteorder) > PIPE_BYTES - LINE_BYTES

    def rest(self) -> bytes:
        os.close(self.writing)
        with open(self.reading, "rb") as reader:
            return reader.read()


class Command:
    """A process that writes into the pipe. is_all_one: its errors go there, too."""

    def __init__(self, pipe: Pipe, prepare: str, *command_line: str, is_all_one: bool = False) -> None:
        self.pipe = pipe
        self.told_reading, told_writing = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(prepare=prepare, report=told_writing), *command_line],
            stdin=subprocess.DEVNULL,
            stdout=pipe.writing,
            stderr=pipe.writing if is_all_one else subprocess.PIPE,
            pass_fds=[told_writing],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        )
        os.close(told_writing)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.told_reading)

    def send(self, *signals: signal.Signals) -> None:
        """Once it writes and nobody reads."""
        while not self.pipe.is_full:
            assert self.process.poll() is None, self.process.communicate()
        self.send_asleep(*signals)

    def send_asleep(self, *signals: signal.Signals) -> None:
        """Once it stands still. A signal that comes between Python's last look for one and the beginning of a write
        does not end that write: of 1,500 that were sent as soon as a pipe was full, one was lost so."""
        while not self.is_asleep:
            assert self.process.poll() is None, self.process.communicate()
        for number in signals:
            self.process.send_signal(number)

    @property
    def is_asleep(self) -> bool:
        """In a call of the system that has nothing to do yet; proc(5), the field behind the name."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "S"

    def ended(self) -> Ended:
        errors = self.process.communicate(timeout=PATIENCE_S)[1]
        told = os.read(self.told_reading, PIPE_BYTES)
        return Ended(self.process.returncode, (errors or b"").decode(), json.loads(told or b"{}").get("committed", []))


def end_while_nobody_reads(
    prepare: str, *command_line: str, signals: list[signal.Signals], is_all_one: bool = False
) -> Ended:
    pipe = Pipe()
    with Command(pipe, prepare, *command_line, is_all_one=is_all_one) as command:
        command.send(*signals)
        ended = command.ended()
    pipe.rest()
    return ended


FILL = 'cluster.fill("t", 0, [b"%05d" % n for n in range({count})])'
GROUP = ["consume", "-t", "t", "--group", "g"]


@pytest.mark.parametrize("count", [1_300, 20_000])
@pytest.mark.parametrize(
    "signals", [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, *[signal.SIGINT] * 5], [signal.SIGHUP] * 3]
)
def test_consume_ends_and_commits_nothing_that_nobody_took(count: int, signals: list[signal.Signals]) -> None:
    ended = end_while_nobody_reads(FILL.format(count=count), *GROUP, signals=signals)
    assert (ended.code, ended.committed) == (130, [])
    assert "Traceback" not in ended.errors
    assert ended.errors.startswith("Processed a total of ")


@pytest.mark.parametrize("command_line", [GROUP, [*GROUP, "-J"], ["consume", "-t", "t", "--from-beginning"]])
def test_one_signal_is_enough_where_errors_go_the_same_way(command_line: list[str]) -> None:
    prepare = FILL.format(count=20_000)
    ended = end_while_nobody_reads(prepare, *command_line, signals=[signal.SIGTERM], is_all_one=True)
    assert (ended.code, ended.committed) == (130, [])


def test_what_a_slow_reader_has_taken_is_committed() -> None:
    """But for the piece that it was at when the command was told to end."""
    pipe = Pipe()
    with Command(pipe, FILL.format(count=20_000), *GROUP) as command:
        taken = b""
        while taken.count(b"\n") < 10_500:
            taken += os.read(pipe.reading, PIPE_BYTES)
        command.send_asleep(signal.SIGTERM)
        ended = command.ended()
    assert ended.code == 130
    assert 9_000 < ended.committed[-1] <= (taken + pipe.rest()).count(b"\n")


def test_the_object_that_tells_of_the_interrupt_has_a_line_of_its_own() -> None:
    """Whoever reads has only paused; the line that was being written is cut."""
    pipe = Pipe()
    with Command(pipe, FILL.format(count=20_000), *GROUP, "-J") as command:
        command.send(signal.SIGTERM)
        *_, last = pipe.rest().splitlines()
        assert command.ended().code == 130
    assert json.loads(last)["error"]["name"] == "Interrupted"


def test_an_alarm_raises_once_however_often_it_comes() -> None:
    """Another one would cut what is done after the first: a commit, for instance."""
    alarms = 0

    def count(*_: object) -> None:
        nonlocal alarms
        alarms += 1

    with pytest.raises(KeyboardInterrupt), interrupted_after(0.01):
        raises = signal.getsignal(signal.SIGALRM)
        assert callable(raises)
        try:
            while True:
                pass
        except KeyboardInterrupt:
            raises(signal.SIGALRM, None)
            signal.signal(signal.SIGALRM, count)
            while not alarms:
                pass
            raise
    assert (alarms, signal.getitimer(signal.ITIMER_REAL)) == (1, (0.0, 0.0))


def test_an_interrupt_between_two_pieces_does_not_wait_for_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.cli.idle_readers.GIVE_UP_S", 0.01)
    pipe = Pipe(taken_bytes=PIPE_BYTES)
    out = open(pipe.writing, "wb", closefd=False)  # noqa: SIM115  (what is in its buffer does not get out)
    printed = []
    with pytest.raises(KeyboardInterrupt):
        try:
            out.write(b"a line")
            raise KeyboardInterrupt
        finally:
            bring_out(out, lambda: printed.append("a line"))
    assert (printed, os.read(pipe.reading, 2 * PIPE_BYTES)) == ([], b"x" * PIPE_BYTES)
    out.close()
    assert os.read(pipe.reading, 10) == b"a line"
    os.close(pipe.reading)
    os.close(pipe.writing)


def test_any_command_ends_that_stands_still_with_what_it_shows() -> None:
    prepare = '[cluster.add_topic("topic-%05d" % n, {}) for n in range(1000)]'
    ended = end_while_nobody_reads(prepare, "topics", "--list", signals=[signal.SIGTERM])
    assert (ended.code, ended.errors.lstrip()) == (130, "strandline: interrupted\n")


@pytest.mark.parametrize("option", ["-v", "--output=json"])
def test_produce_counts_what_was_acknowledged_though_nobody_reads_where(option: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"a\n" * 3_000)
    command_line = ["produce", "-t", "t", "-l", str(tmp_path / "lines"), option]
    ended = end_while_nobody_reads("", *command_line, signals=[signal.SIGTERM])
    assert ended.code == 130 and "Traceback" not in ended.errors
    assert "\n3000 records produced to t in 1 partition (3000 bytes)\n" in ended.errors


def test_what_is_in_a_buffer_stays_there_when_its_writing_took_too_long() -> None:
    pipe = Pipe()
    with open(pipe.writing, "wb", 2 * PIPE_BYTES, closefd=False) as out:
        out.write(b"a" * (PIPE_BYTES + 10))
        with pytest.raises(KeyboardInterrupt), interrupted_after(0.01):
            out.flush()
        assert os.read(pipe.reading, PIPE_BYTES) == b"a" * PIPE_BYTES
        with interrupted_after(PATIENCE_S):
            out.flush()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert pipe.rest() == b"a" * 10
