"""One worker process: runs jobs that its parent names, one after another, until its standard input ends.

Format of both directions: frames of uint32 (big endian) length and so many bytes of msgpack.

    request   [job, [argument, …], remembers]   job: "module:function", a module-level function of this package;
                                                remembers: its first argument after the disk is this process's memory
    reply     [true, result]  or  [false, kind, text, errno or nil]

Rules: the process belongs to its parent. It ends at once, in the middle of a job too, when its standard input ends: so
a broker that was killed leaves nobody behind who writes to its folders. Ctrl-C of the terminal is the parent's
business. Nothing but frames goes to standard output. With the argument `gives-way` it runs at low priority, for what
can wait while event loops cannot (compaction); without, at that of its parent: a producer waits for a conversion, and
a start for its scans.
"""

from __future__ import annotations

import importlib
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import msgpack

from strandline.runtime.disk_posix import PosixDisk

MAX_FRAME_BYTES = 2**30
LENGTH = struct.Struct(">I")
GIVES_WAY = "gives-way"
NICENESS = 10
AUTOGROUP = "/proc/self/autogroup"
AUTOGROUP_ATTEMPTS, AUTOGROUP_PAUSE_S = 30, 0.1
"""The kernel takes one change every 0.1 s, of the whole machine."""
PACKAGE = "strandline."


def pack(value: object) -> bytes:
    """TypeError for what cannot travel."""
    packed: bytes = msgpack.packb(value)
    return packed


def unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False, use_list=True)


def frame(value: object) -> bytes:
    body = pack(value)
    if len(body) > MAX_FRAME_BYTES:
        raise ValueError(f"{len(body)} bytes are too much for one job: let it read them from the disk")
    return LENGTH.pack(len(body)) + body


def job_name(job: Callable[..., Any]) -> str:
    """How a worker finds the function. ValueError: it is not a module's own, or not of this package."""
    module, name = job.__module__, job.__qualname__
    if not module.startswith(PACKAGE) or not name.isidentifier():
        raise ValueError(f"{module}.{name} is no module-level function of {PACKAGE.rstrip('.')}")
    return f"{module}:{name}"


def find_job(text: str) -> Callable[..., Any]:
    """The function of that name. ValueError, ImportError, AttributeError."""
    module, _, name = text.partition(":")
    if not module.startswith(PACKAGE):
        raise ValueError(f"{text} is not of this package")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def describe(error: BaseException) -> tuple[str, str, int | None]:
    """(kind, text, errno) as `ComputingFailed` takes them."""
    if isinstance(error, OSError):
        return "OSError", str(error), error.errno
    return type(error).__name__, str(error), None


def _give_way() -> None:
    """To everybody on this machine, not only to this broker."""
    os.nice(NICENESS)
    if os.getsid(0) == os.getpid():
        threading.Thread(target=_lower_session, daemon=True).start()


def _lower_session() -> None:
    """Linux shares the CPU out among sessions first (autogroup), and niceness counts only within one: beside other
    brokers of the machine this worker's session would weigh as much as theirs (measured: compaction took p99 of
    Produce, three brokers on two cores, to 3.5 times what it was; so 1.6 times)."""
    for _ in range(AUTOGROUP_ATTEMPTS):
        try:
            with open(AUTOGROUP, "w", encoding="ascii") as file:
                file.write(str(NICENESS))
            return
        except BlockingIOError:
            time.sleep(AUTOGROUP_PAUSE_S)
        except OSError:  # not on this system
            return


def _read_requests(descriptor: int, requests: SimpleQueue[bytes]) -> None:
    """A thread of its own, so that the end of the input ends a job, too."""
    source = os.fdopen(descriptor, "rb")
    while True:
        prefix = source.read(LENGTH.size)
        body = source.read(LENGTH.unpack(prefix)[0]) if len(prefix) == LENGTH.size else b""
        if not body:
            os._exit(0)
        requests.put(body)


def _answer(disk: PosixDisk, memory: dict[str, Any], request: bytes) -> bytes:
    try:
        name, arguments, remembers = unpack(request)
        if remembers:
            arguments = [memory, *arguments]
        return frame([True, find_job(name)(disk, *arguments)])
    except Exception as error:
        return frame([False, *describe(error)])


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if GIVES_WAY in sys.argv[1:]:
        _give_way()
    output = os.dup(1)
    os.dup2(2, 1)  # a stray print must not become a frame
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read_requests, args=(os.dup(0), requests), daemon=True).start()
    disk = PosixDisk()
    memory: dict[str, Any] = {}
    while True:
        reply = memoryview(_answer(disk, memory, requests.get()))
        try:
            while reply:
                reply = reply[os.write(output, reply) :]
        except BrokenPipeError:
            return  # the parent was killed just now: as the end of the input, no error of ours


if __name__ == "__main__":
    main()
