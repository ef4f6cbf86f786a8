"""A process that is of no use without the one that started it, which may have been killed and could not tell."""

from __future__ import annotations

import os
import threading

STDIN = 0


def end_with_stdin(exit_code: int) -> None:
    """Have this process end, at once and without a word, when stdin does: who started it holds the other end of that
    pipe open for as long as it lives."""

    def wait() -> None:
        while os.read(STDIN, 1):  # not sys.stdin: its lock would be held while the interpreter ends
            pass
        os._exit(exit_code)

    threading.Thread(target=wait, name="ends with stdin", daemon=True).start()
