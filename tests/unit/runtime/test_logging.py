"""What a broker's logs promise: one line per event, nothing forged, nothing secret, nothing fatal."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

from strandline.runtime.logging import (
    FileSink,
    ForwardToStructlog,
    RateLimited,
    StreamSink,
    escape,
    make_logger,
    open_logs,
)


def json_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_json_line_carries_the_event_its_fields_and_the_context() -> None:
    stream = io.StringIO()
    log = make_logger(StreamSink(stream), form="json", level="info", broker_id=3)
    log.info("leader changed", topic="t", partition=0, isr=[1, 2])
    log.debug("not written")
    (line,) = json_lines(stream.getvalue())
    assert line.pop("timestamp")
    assert line == {
        "event": "leader changed",
        "level": "info",
        "broker_id": 3,
        "topic": "t",
        "partition": 0,
        "isr": [1, 2],
    }


@pytest.mark.parametrize("form", ["console", "json"])
@pytest.mark.parametrize("hostile", ["a\nb", "a\r\x1b[2Jb", "a\u2028b", "a\x85b", "a\u202eb", b"a\nb\xff"])
def test_text_from_outside_cannot_begin_a_line_or_move_the_cursor(form: str, hostile: str | bytes) -> None:
    stream = io.StringIO()
    log = make_logger(StreamSink(stream), form=form, level="info")
    log.warning(f"client {hostile!s}", client_id=hostile, nested={"k": [hostile]})
    written = stream.getvalue()
    assert written.endswith("\n")
    assert not any(not character.isprintable() for character in written[:-1])
    assert len(written.splitlines()) == 1


def test_escaping_leaves_ordinary_text_alone() -> None:
    assert escape("Größe 5 µs – «ok»") == "Größe 5 µs – «ok»"
    assert escape("\n") == "\\n" and escape("\x1b") == "\\x1b" and escape("\u2028") == "\\u2028"


def test_a_secret_is_not_written() -> None:
    stream = io.StringIO()
    make_logger(StreamSink(stream), form="json", level="info").info("login", sasl_password="hunter2", user="u")
    assert "hunter2" not in stream.getvalue() and '"user":"u"' in stream.getvalue()


@pytest.mark.parametrize("form", ["console", "json"])
def test_an_exception_brings_its_traceback(form: str) -> None:
    stream = io.StringIO()
    log = make_logger(StreamSink(stream), form=form, level="info")
    try:
        raise ValueError("broken\x1b[31m")
    except ValueError:
        log.exception("request failed", api="Fetch")
    assert "ValueError: broken" in stream.getvalue() and "test_logging.py" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_state_changes_and_the_controller_have_files_of_their_own(tmp_path: Path) -> None:
    stream = io.StringIO()
    logs = open_logs(directory=tmp_path / "logs", stream=stream, broker_id=1)
    logs.main.info("started")
    logs.state_change.info("became leader", topic="t", partition=3, leader_epoch=2)
    logs.controller.info("elected", controller_epoch=7)
    logs.close()
    (change,) = json_lines((tmp_path / "logs" / "state-change.log").read_text())
    (election,) = json_lines((tmp_path / "logs" / "controller.log").read_text())
    assert (change["event"], change["partition"], change["broker_id"]) == ("became leader", 3, 1)
    assert (election["event"], election["controller_epoch"]) == ("elected", 7)
    assert "started" in stream.getvalue() and "elected" not in stream.getvalue()


def test_without_a_directory_all_goes_to_the_main_log_by_name() -> None:
    stream = io.StringIO()
    logs = open_logs(stream=stream, form="json")
    logs.controller.info("elected")
    logs.state_change.info("became leader")
    assert [line["log"] for line in json_lines(stream.getvalue())] == ["controller", "state-change"]


def test_a_file_that_has_grown_is_rolled_and_few_are_kept(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "a.log", max_bytes=100, kept_files=2)
    for number in range(40):
        sink.write_line(f"line {number:02d} " + "x" * 20)
    sink.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2"]
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())
    assert (tmp_path / "a.log").read_text().splitlines()[-1].startswith("line 39")
    again = FileSink(tmp_path / "a.log", max_bytes=100)
    again.write_line("after a restart")
    again.close()
    assert "line 39" in (tmp_path / "a.log").read_text() + (tmp_path / "a.log.1").read_text()


@pytest.mark.parametrize("end", [b'{"event":"cu', b"\0\0\0"])
def test_a_line_that_was_cut_does_not_spoil_the_next_one(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"whole\n" + end)
    sink = FileSink(path)
    sink.write_line("after a restart")
    sink.write_line("and on")
    sink.close()
    assert path.read_bytes().split(b"\n") == [b"whole", end, b"after a restart", b"and on", b""]


def test_a_line_of_which_the_disk_takes_a_part_is_lost_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FileSink(tmp_path / "a.log")

    class FullDisk:
        def write(self, data: bytes) -> int:
            return file.write(data[:3])

        def close(self) -> None:
            file.close()

    file = sink._file
    monkeypatch.setattr(sink, "_file", FullDisk())
    sink.write_line("of this one a part is written")
    monkeypatch.undo()
    sink.write_line("when there is room again")
    sink.close()
    assert (tmp_path / "a.log").read_text() == "of \nwhen there is room again\n"
    assert sink.lost_lines == 1


def test_a_log_that_cannot_be_written_loses_lines_and_nothing_else(tmp_path: Path) -> None:
    class FullDisk(io.StringIO):
        def write(self, text: str, /) -> int:
            raise OSError(28, "No space left on device")

    sink = StreamSink(FullDisk())
    make_logger(sink, form="console", level="info").info("lost")
    assert sink.lost_lines == 1
    closed = FileSink(tmp_path / "a.log")
    closed.close()
    closed.write_line("lost")
    assert closed.lost_lines == 1


@pytest.mark.parametrize(("form", "level"), [("xml", "info"), ("json", "loud")])
def test_an_unknown_form_or_level_is_refused(form: str, level: str) -> None:
    with pytest.raises(ValueError, match="console, json"):
        make_logger(StreamSink(io.StringIO()), form=form, level=level)


def test_one_line_per_key_and_interval_and_the_next_counts_what_was_left_out() -> None:
    stream, now = io.StringIO(), 100.0
    limited = RateLimited(make_logger(StreamSink(stream), form="json", level="info"), now=lambda: now)
    for _ in range(5):
        limited.warning(("bad frame", "peer 1"), "bad frame", peer=1)
    limited.error("bad frame", "bad frame", peer=2)
    now = 101.0
    limited.warning(("bad frame", "peer 1"), "bad frame", peer=1)
    now = 102.5
    limited.info(("bad frame", "peer 1"), "bad frame", peer=1)
    lines = json_lines(stream.getvalue())
    assert [(line["peer"], line.get("left_out")) for line in lines] == [(1, None), (2, None), (1, 4), (1, None)]


def test_the_keys_of_a_rate_limit_are_bounded() -> None:
    stream = io.StringIO()
    limited = RateLimited(make_logger(StreamSink(stream), form="json", level="info"), max_keys=10, now=lambda: 0.0)
    for key in range(1000):
        limited.info(key, "hello")
    assert len(limited._last) == 10
    assert len(json_lines(stream.getvalue())) == 1000


def test_a_library_is_forwarded_once_per_message_and_second() -> None:
    stream = io.StringIO()
    now = 0.0
    library = logging.Logger("kazoo")
    library.addHandler(ForwardToStructlog(make_logger(StreamSink(stream), form="json", level="info"), now=lambda: now))
    for attempt in range(10):
        library.error("Broken: %s", f"attempt {attempt}\n")
    library.info("not forwarded")
    now = 2.0
    library.error("Broken: %s", "again")
    lines = json_lines(stream.getvalue())
    assert [(line["event"], line["level"], line.get("left_out")) for line in lines] == [
        ("Broken: attempt 0\\n", "error", None),
        ("Broken: again", "error", 9),
    ]


def test_a_library_that_warns_of_every_attempt_writes_nothing_and_keeps_the_last_reason() -> None:
    stream = io.StringIO()
    library = logging.Logger("kazoo")
    handler = ForwardToStructlog(make_logger(StreamSink(stream), form="json", level="info"))
    library.addHandler(handler)
    for attempt in range(100):
        library.warning("Connection dropped: %s", f"attempt {attempt}")
        library.warning("Transition to CONNECTING")
    assert (stream.getvalue(), handler.last_reason) == ("", "Connection dropped: attempt 99")
