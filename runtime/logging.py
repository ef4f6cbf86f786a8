"""Logs of a broker: one structured stream for people (console) or programs (JSON), and two files of their own,
`state-change.log` (what happened to which partition) and `controller.log` (what the controller decided).

Rules: text from outside (client ids, topics, peers' errors) cannot forge a line, control characters are escaped;
values of fields named like secrets are not written; a log that cannot be written loses lines, never stops a broker;
what can happen a thousand times a second goes through `RateLimited`.
"""

from __future__ import annotations

import codecs
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

import structlog
import trio

Logger = structlog.typing.FilteringBoundLogger

MAX_FILE_BYTES = 64 * 1024 * 1024
KEPT_FILES = 3
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SECRET = re.compile(r"password|passwd|secret|token|credential|salt|private_key", re.IGNORECASE)


def escape(text: str) -> str:
    """Control characters, line separators and direction overrides as \\xNN or \\uNNNN, so that a value stays in its
    line and reads in its order. Nothing is imported for it: a broker has to say when it has no descriptor left."""
    return _UNSAFE.sub(lambda found: codecs.unicode_escape_encode(found[0])[0].decode(), text)


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, bytes | bytearray):
        return escape(bytes(value).decode("utf-8", "backslashreplace"))
    if isinstance(value, Mapping):
        return {_escaped(str(key)): _escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else escape(str(value))


def clean_values(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Processor: escape every value, hide secrets. A traceback is added after it and keeps its lines."""
    for key, value in event.items():
        if key == "exc_info":
            continue
        event[key] = "(hidden)" if _SECRET.search(key) else _escaped(value)
    return event


def _escape_traceback(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if isinstance(trace := event.get("exception"), str):
        event["exception"] = "\n".join(escape(line) for line in trace.split("\n"))
    return event


class _Sink(Protocol):
    def write_line(self, line: str) -> None: ...

    def close(self) -> None: ...


class StreamSink:
    """Lines to an open text stream (stderr), which it does not close."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.lost_lines = 0

    def write_line(self, line: str) -> None:
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                self.lost_lines += 1

    def close(self) -> None:
        """The stream belongs to who opened it."""


class FileSink:
    """Lines to a file, which is renamed to `.1` (`.2`, …) when it has grown to `max_bytes`. Thread-safe. A line that
    was cut (the disk was full, the power failed) spoils no other: the next one begins behind a line end."""

    def __init__(self, path: Path, max_bytes: int = MAX_FILE_BYTES, kept_files: int = KEPT_FILES) -> None:
        """OSError if the file cannot be opened."""
        self._path = path
        self._max_bytes = max_bytes
        self._kept_files = kept_files
        self._lock = threading.Lock()
        self._file = self._open()
        self.lost_lines = 0

    def _open(self) -> Any:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size_bytes = os.fstat(descriptor).st_size
        self._is_cut = self._size_bytes > 0 and os.pread(descriptor, 1, self._size_bytes - 1) != b"\n"
        return os.fdopen(descriptor, "ab", buffering=0)

    def write_line(self, line: str) -> None:
        data = (line + "\n").encode("utf-8", "backslashreplace")
        with self._lock:
            try:
                if self._size_bytes and self._size_bytes + len(data) > self._max_bytes:
                    self._roll()
                if self._is_cut:
                    data = b"\n" + data
                written = self._file.write(data)
                self._size_bytes += written
                self._is_cut = written < len(data)
                self.lost_lines += self._is_cut
            except (OSError, ValueError):
                self.lost_lines += 1

    def _roll(self) -> None:
        for number in range(self._kept_files - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                older.rename(self._path.with_name(f"{self._path.name}.{number + 1}"))
        self._path.rename(self._path.with_name(f"{self._path.name}.1"))
        self._file.close()
        self._file = self._open()

    def close(self) -> None:
        with self._lock:
            self._file.close()


class _SinkLogger:
    """What structlog calls with the rendered line."""

    def __init__(self, sink: _Sink) -> None:
        self.msg = self.debug = self.info = self.warning = self.error = self.critical = self.exception = sink.write_line


def make_logger(sink: _Sink, *, form: str, level: str, **context: Any) -> Logger:
    """form: "json" (one object per line) or "console"; level: least severe that is written ("info"); context: fields
    of every line. ValueError for another form or level."""
    if level not in LEVELS or form not in ("json", "console"):
        raise ValueError(f"log level {level!r} or form {form!r} unknown: {', '.join(LEVELS)}; console, json")
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    processors: list[Any] = [structlog.processors.add_log_level, stamp, clean_values]
    if form == "json":
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_to_json)]
    else:
        processors += [
            structlog.processors.format_exc_info,
            _escape_traceback,
            structlog.dev.ConsoleRenderer(
                colors=False, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    logger: Logger = structlog.wrap_logger(
        _SinkLogger(sink),
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        context_class=dict,
        cache_logger_on_first_use=True,
    ).bind(**context)
    return logger


def _to_json(event: Any, **_: Any) -> str:
    return json.dumps(event, default=str, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class BrokerLogs:
    """main: everything a person reads; state_change: leadership, ISR and replica changes of partitions; controller:
    elections, plans, failures. The two are JSON whatever the form of main."""

    main: Logger
    state_change: Logger
    controller: Logger
    sinks: tuple[_Sink, ...] = ()

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


def open_logs(
    *,
    directory: Path | None = None,
    main_file: Path | None = None,
    stream: TextIO | None = None,
    form: str = "console",
    level: str = "info",
    **context: Any,
) -> BrokerLogs:
    """The logs of one process. `directory` (created if absent) gets `state-change.log` and `controller.log`; without
    it these go to the main log, named by their field `log`. The main log goes to `main_file`, else to `stream`, else to
    stderr. `context` (such as broker_id=1) stands in every line. OSError if a file cannot be opened."""
    main_sink: _Sink = FileSink(main_file) if main_file is not None else StreamSink(stream or sys.stderr)
    main = make_logger(main_sink, form=form, level=level, **context)
    if directory is None:
        return BrokerLogs(main, main.bind(log="state-change"), main.bind(log="controller"), (main_sink,))
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    state_sink, controller_sink = FileSink(directory / "state-change.log"), FileSink(directory / "controller.log")
    return BrokerLogs(
        main,
        make_logger(state_sink, form="json", level=level, **context),
        make_logger(controller_sink, form="json", level=level, **context),
        (main_sink, state_sink, controller_sink),
    )


class RateLimited:
    """One line per key and interval: `limited.warning(("bad frame", peer), "bad frame", peer=peer)`. The next line of
    the key tells how many were left out. Not thread-safe (`now` is the event loop's clock by default)."""

    def __init__(
        self,
        log: Logger,
        *,
        interval_s: float = 1.0,
        max_keys: int = 1000,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        self._log = log
        self._interval_s = interval_s
        self._max_keys = max_keys
        self._now = now
        self._last: dict[object, tuple[float, int]] = {}

    def info(self, key: object, event: str, **fields: Any) -> None:
        self._emit(self._log.info, key, event, fields)

    def warning(self, key: object, event: str, **fields: Any) -> None:
        self._emit(self._log.warning, key, event, fields)

    def error(self, key: object, event: str, **fields: Any) -> None:
        self._emit(self._log.error, key, event, fields)

    def _emit(self, write: Callable[..., Any], key: object, event: str, fields: dict[str, Any]) -> None:
        now = self._now()
        written_at, left_out = self._last.get(key, (-self._interval_s, 0))
        if key in self._last and now - written_at < self._interval_s:
            self._last[key] = (written_at, left_out + 1)
            return
        self._last.pop(key, None)
        while len(self._last) >= self._max_keys:
            self._last.pop(next(iter(self._last)))  # the one written longest ago
        self._last[key] = (now, 0)
        if left_out:
            fields = {**fields, "left_out": left_out}
        write(event, **fields)


class ForwardToStructlog(logging.Handler):
    """Takes a library's standard logging (kazoo's) in. Its errors go into a structured log, at most one line per
    message template and second. Its warnings come with every attempt for as long as a server is away, so they are not
    written: the last one that names a reason is kept for whoever reports the change of state. May be called on the
    library's thread: the sinks are thread-safe, the rate limit is guarded by the handler's own lock."""

    def __init__(self, log: Logger, now: Callable[[], float] | None = None) -> None:
        super().__init__(level=logging.WARNING)
        self.last_reason = ""
        self._limited = RateLimited(log, now=now or time.monotonic)

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            fields: dict[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
            self._limited.error(record.msg, record.getMessage(), library=record.name, **fields)
        elif record.args:
            self.last_reason = record.getMessage()
