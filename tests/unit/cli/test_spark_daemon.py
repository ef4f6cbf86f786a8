"""Workers of Spark that Java leaves are not told of on stderr; what else goes wrong in their daemon is."""

from __future__ import annotations

import socket
import sys
from types import ModuleType

import pytest

from strandline.cli.spark_daemon import quieten


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from pyspark import daemon

    monkeypatch.setattr(daemon, "signal", type("Signals", (), {"signal": print, "default_int_handler": None}))
    monkeypatch.setattr(daemon, "traceback", daemon.traceback)
    monkeypatch.setattr(daemon, "print", print, raising=False)
    quieten(daemon)
    return daemon


@pytest.mark.parametrize(("is_gone", "told"), [(True, False), (False, True)])
def test_only_a_worker_whose_last_words_nobody_hears_is_silent(
    daemon: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_gone: bool,
    told: bool,
) -> None:
    ours, theirs = socket.socketpair()

    def speak(infile: object, outfile: object) -> None:
        outfile.write(b"last words")  # type: ignore[attr-defined]
        if is_gone:
            theirs.close()
        else:
            outfile.raw.close()  # type: ignore[attr-defined]

    module = ModuleType("pyspark_of_test")
    module.main = speak  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sys, "argv", ["daemon", module.__name__])
    with ours:
        assert daemon.worker(ours, True) == 0
    assert ("failed to flush" in capsys.readouterr().err) == told


def test_other_errors_of_the_daemon_are_printed(daemon: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    for error in (BrokenPipeError("gone"), ConnectionResetError("gone"), OSError("no memory")):
        try:
            raise error
        except OSError:
            daemon.traceback.print_exc()
    printed = capsys.readouterr().err
    assert "no memory" in printed and "gone" not in printed
