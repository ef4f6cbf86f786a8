"""Where the `strandline` command begins: the first 100 ms, in which the command is still being imported.

Rule: nothing is imported here but `signal`. Until there is somebody who can say "interrupted" in one line, Ctrl-C ends
the process at once, without a word: an import that is cut in two would show its traceback.
"""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Entry point: import the command, run it, exit."""
    answers = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where a shell has it ignored (`&`)
    if answers:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from strandline.cli import main as command

    command.main(answer_interrupts=answers)
