"""What a finding of a run looks like: `name: where: text`, in one line, maybe with its time in front.

    12.3456 lost-write: all-0: b'all/1/producer-all/7' was acknowledged at 6: there is None

Two runs show the same thing where the names of their findings are equal. What ended a run has the name of its
exception, and its traceback in the lines that follow.
"""

from __future__ import annotations

import re
import traceback

_TIME = re.compile(r"\d+\.\d+ ")


def line_of(finding: str) -> str:
    return finding.partition("\n")[0]


def name_of(finding: str) -> str:
    """`lost-write`, `invariant 26`."""
    line = line_of(finding)
    time = _TIME.match(line)
    return line[time.end() if time else 0 :].partition(": ")[0]


def ended_by(failure: BaseException) -> str:
    """The finding that an exception is."""
    told = "".join(traceback.format_exception(failure)).rstrip()
    while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    frames = traceback.extract_tb(failure.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "somewhere"
    text = " ".join(str(failure).split())
    return f"{type(failure).__name__}: {where}: {text or 'no message'}\n{told}"
