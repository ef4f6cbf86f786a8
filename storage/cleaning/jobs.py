"""The cleaner's doors for the computing seam: begin a cleaning, take steps, give it up.

`memory` is the dict that a computing session keeps for its jobs: the cleaning, with its offset map, lives there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from strandline.runtime.disk import Disk
from strandline.storage.cleaning.output import Unwritable
from strandline.storage.cleaning.plan import Plan, Step, Unreadable

_KEY = "cleaning"


def begin(disk: Disk, memory: dict[str, Any], plan: dict[str, Any]) -> None:
    """Forget the cleaning before, if there was one, and get ready for this one."""
    from strandline.storage.cleaning.cleaner import Cleaner  # only in a worker: it brings numpy

    give_up(disk, memory)
    memory[_KEY] = Cleaner(disk, msgspec.convert(plan, Plan)).run()


def advance(disk: Disk, memory: dict[str, Any], max_bytes: int) -> dict[str, Any]:
    """Go on until about `max_bytes` were read and written, a group is done, or all is. Returns a `Step`, with
    `failure` where the log cannot be cleaned: the offset and why."""
    read = written = 0
    try:
        while True:
            step: Step = next(memory[_KEY])
            read, written = read + step.bytes_read, written + step.bytes_written
            if step.result is not None or step.done is not None or read + written >= max_bytes:
                break
    except Unreadable as error:
        return _failed(read, written, error.offset, error.why)
    except Unwritable as error:
        return _failed(read, written, -1, str(error))
    if step.done is not None:
        give_up(disk, memory)
    answer: dict[str, Any] = msgspec.to_builtins(Step(read, written, step.result, step.done))
    return answer


def _failed(read: int, written: int, offset: int, why: str) -> dict[str, Any]:
    return {"bytes_read": read, "bytes_written": written, "failure": [offset, why]}


def give_up(disk: Disk, memory: dict[str, Any]) -> None:
    """The result is not wanted. What was written so far is removed by the next cleaning or start."""
    cleaning = memory.pop(_KEY, None)
    if cleaning is not None:
        cleaning.close()
