"""Ctrl-C at any moment of a command's life: no traceback, and the exit code says what ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[0]:
            os.kill(os.getpid(), signal.SIGINT)

sys.argv = [{module!r}, "topics", "--help"]
sys.meta_path.insert(0, Interrupt())
from strandline.cli.entry import main
main()
"""


@pytest.mark.parametrize(
    ("module", "code", "said"),
    [
        ("strandline.cli.main", -signal.SIGINT, ""),
        ("click", -signal.SIGINT, ""),
        ("strandline.cli.topics", 130, "strandline: interrupted\n"),
    ],
)
def test_ctrl_c_while_a_module_is_imported_shows_no_traceback(module: str, code: int, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr.lstrip()) == (code, "", said)


def test_a_shell_that_ignores_interrupts_for_its_background_jobs_is_obeyed() -> None:
    ended = subprocess.run(
        ["sh", "-c", f"trap '' INT; exec {sys.executable} -c \"$0\"", PROGRAM.format(module="click")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Usage:")


LOST = """
import os, signal, sys, weakref

class Module:
    pass

def interrupt_in_a_callback(*_):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "strandline.cli.topics":
            dies = Module()
            kept.append(weakref.ref(dies, interrupt_in_a_callback))

kept = []
sys.argv = ["strandline", "topics", "--bootstrap", "127.0.0.1:1", "--list"]
sys.meta_path.insert(0, Interrupt())
from strandline.cli.entry import main
main()
"""


def test_ctrl_c_that_the_interpreter_throws_away_is_not_lost() -> None:
    """As where it arrives in a finalizer, or in the callback by which an import gives its lock up."""
    ended = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stderr.lstrip()) == (130, "strandline: interrupted\n")


ENDED = PROGRAM.replace("signal.SIGINT", "signal.{signal}")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_what_else_tells_a_command_to_end_is_as_ctrl_c(name: str) -> None:
    """`timeout 5 strandline consume --group …` commits, and leaves its group."""
    program = ENDED.format(module="strandline.cli.topics", signal=name)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.lstrip()) == (130, "", "strandline: interrupted\n")


IN_A_LOOP = """
import os, signal, trio
from strandline.runtime.processes.interrupts import end_as_interrupted

async def main():
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            trio.lowlevel.current_trio_token().run_sync_soon(os.kill, os.getpid(), signal.{signal})
    finally:
        print("tidied up", flush=True)

end_as_interrupted()
try:
    trio.run(main)
except* KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_within_an_event_loop_its_tasks_end_in_order(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IN_A_LOOP.format(signal=name)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "tidied up\ninterrupted\n", "")


def test_a_command_that_is_to_outlive_its_terminal_does() -> None:
    """`nohup` ignores SIGHUP."""
    program = ENDED.format(module="strandline.cli.topics", signal="SIGHUP")
    ended = subprocess.run(
        ["sh", "-c", f"trap '' HUP; exec {sys.executable} -c \"$0\"", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_is_printed_has_a_buffer_where_python_was_told_to_have_none() -> None:
    """Of a write that goes out by itself and is interrupted, nobody knows whether somebody has read it."""
    program = (
        "import io, sys; from strandline.cli.main import buffer_output; buffer_output(); "
        "assert type(sys.stdout.buffer) is io.BufferedWriter; print('a line'); "
        "sys.__stdout__.fileno()"  # is asked how wide the terminal is
    )
    for unbuffered in ("1", ""):
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        shown = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        assert (shown.stdout, shown.stderr) == (b"a line\n", b"")
