"""Bytes as they come, and a pulse while none come."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from strandline.runtime import input_chunks as module
from strandline.runtime.input_chunks import input_chunks


def never() -> None:
    pytest.fail("nobody waits for a file")


@pytest.mark.parametrize("chunk_bytes", [1, 7, 65_536])
def test_a_file_is_read_as_it_stands(chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", chunk_bytes)
    content = b"one\r\n\n\xff\x00last"
    path = tmp_path / "input"
    path.write_bytes(content)
    with path.open("rb") as source:
        chunks = list(input_chunks(source, never))
    assert (b"".join(chunks), max(map(len, chunks))) == (content, min(chunk_bytes, len(content)))
    assert b"".join(input_chunks(io.BytesIO(content), never)) == content


def test_the_pulse_comes_while_nothing_is_there_and_may_end_the_wait() -> None:
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
        for chunk in input_chunks(source, pulse, pulse_s=0):
            got.append((chunk, len(pulses)))
    os.close(writing)
    assert got == [(b"one\ntw", 0), (b"o\n", 2)]


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(reading, "rb") as source:
        chunks = input_chunks(source, lambda: os.write(writing, b"late\n"), pulse_s=0)
        assert next(chunks) == b"late\n"
    os.close(writing)
