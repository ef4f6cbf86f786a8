"""Lines as they stand in the file, and a pulse while the next one is not there."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strandline.runtime.input_lines import input_lines

from strandline.runtime import input_lines as module


def never() -> None:
    pytest.fail("nobody waits for a file")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\xff" * 9, b"\x85"])).map(b"".join))
@pytest.mark.parametrize("chunk_bytes", [1, 7, 65_536])
def test_lines_are_those_of_readline_whatever_the_chunks(
    content: bytes, chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK_BYTES", chunk_bytes)
    expected = [line.removesuffix(b"\n") for line in io.BytesIO(content)]
    path = tmp_path / "input"
    path.write_bytes(content)
    with path.open("rb") as source:
        assert list(input_lines(source, never)) == expected
    assert list(input_lines(io.BytesIO(content), never)) == expected


def test_the_pulse_comes_while_a_line_is_not_whole_and_may_end_the_wait() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\ntw")
    pulses = []

    def pulse() -> None:
        pulses.append(1)
        if len(pulses) == 2:
            os.write(writing, b"o\n")
        if len(pulses) == 4:
            raise KeyboardInterrupt

    got = []
    with os.fdopen(reading, "rb") as source, pytest.raises(KeyboardInterrupt):
        for line in input_lines(source, pulse, pulse_s=0):
            got.append((line, len(pulses)))
    os.close(writing)
    assert got == [(b"one", 0), (b"two", 2)]


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(reading, "rb") as source:
        lines = input_lines(source, lambda: os.write(writing, b"late\n"), pulse_s=0)
        assert next(lines) == b"late"
    os.close(writing)
