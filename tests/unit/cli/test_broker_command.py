"""`strandline broker`: from a properties file to a running broker, or to one line that says why not."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROPERTIES = """
# a comment
broker.id=4
zookeeper.connect=localhost:2181
num.partition=3
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configurations that brokers were started with; they end at once with code 0."""
    configs: list[Any] = []
    process = ModuleType("strandline.broker.process")
    process.run_broker = lambda config: configs.append(config) or 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "strandline.broker.process", process)
    return configs


def properties(tmp_path: Path, text: str | bytes = PROPERTIES) -> str:
    path = tmp_path / "server.properties"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_the_file_is_read_and_overrides_win(shell: Any, started: list[Any], tmp_path: Path) -> None:
    ran = shell("broker", "--config", properties(tmp_path), "--override", "broker.id=7", "-o", f"log.dirs={tmp_path}")
    assert ran.code == 0
    (config,) = started
    assert (config.broker_id, config.zookeeper_connect) == (7, "localhost:2181")


def test_a_key_that_does_nothing_is_named_before_the_start(shell: Any, started: list[Any], tmp_path: Path) -> None:
    ran = shell("broker", "--config", properties(tmp_path), "-o", f"log.dirs={tmp_path}")
    assert "strandline broker: warning: unknown key num.partition is ignored; did you mean num.partitions?" in ran.err
    assert len(started) == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (PROPERTIES + "num.partitions=x\n", "num.partitions"),
        ("broker.id=1\n", "zookeeper.connect"),
        (b"broker.id=1\nname=\xff\n", "not UTF-8"),
        (PROPERTIES + "log.dirs=relative\n", "log.dirs"),
    ],
)
def test_a_wrong_configuration_starts_nothing(
    shell: Any, started: list[Any], tmp_path: Path, text: str | bytes, named: str
) -> None:
    ran = shell("broker", "--config", properties(tmp_path, text))
    assert ran.code == 2
    assert named in ran.err
    assert ran.err.count("\n") == 1
    assert not started


def test_variables_win_over_the_file_and_overrides_over_both(
    shell: Any, started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_BROKER_ID", "5")
    monkeypatch.setenv("KAFKA_LOG_DIRS", str(tmp_path / "variable"))
    ran = shell(
        "broker", "--from-environment", "--config", properties(tmp_path), "-o", f"log.dirs={tmp_path / 'override'}"
    )
    assert ran.code == 0
    (config,) = started
    assert (config.broker_id, config.log_dirs) == (5, (str(tmp_path / "override"),))


def test_the_defaults_of_an_image_give_way_to_variables_of_every_prefix(
    shell: Any, started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_DEFAULTS", properties(tmp_path, "log.dirs=/image\nadmin.listener=127.0.0.1:9644\n"))
    for name in ("BROKER_ID=1", "ZOOKEEPER_CONNECT=localhost:1"):
        monkeypatch.setenv("KAFKA_" + name.partition("=")[0], name.partition("=")[2])
    assert shell("broker", "--from-environment").code == 0
    monkeypatch.setenv("KAFKA_LOG_DIRS", "/kafka")
    monkeypatch.setenv("STRANDLINE_ADMIN_LISTENER", "")
    assert shell("broker", "--from-environment").code == 0
    assert [config.log_dirs for config in started] == [("/image",), ("/kafka",)]
    assert {config.admin_listener for config in started} == {("127.0.0.1", 9644)}


def test_a_variable_that_loses_is_named(
    shell: Any, started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_LOG_DIRS", str(tmp_path))
    monkeypatch.setenv("KAFKA_LOG_DIRS", "/kafka")
    ran = shell("broker", "--from-environment", "--config", properties(tmp_path))
    assert "strandline broker: warning: KAFKA_LOG_DIRS has no effect: STRANDLINE_LOG_DIRS, which has" in ran.err


def test_variables_are_left_alone_unless_asked_for(
    shell: Any, started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_BROKER_ID", "5")
    assert shell("broker", "--config", properties(tmp_path), "-o", f"log.dirs={tmp_path}").code == 0
    assert started[0].broker_id == 4


def test_the_reference_page_is_printed_and_nothing_is_started(shell: Any, started: list[Any]) -> None:
    from strandline.runtime.config.reference import reference

    assert shell("broker", "--reference") == (0, reference(), "")
    assert started == []


def test_a_log_folder_that_cannot_be_used_is_told_with_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from strandline.broker.process import run_broker
    from strandline.runtime.config.reading import load_broker_config

    file = tmp_path / "file"
    file.touch()
    keys = {"broker.id": "1", "zookeeper.connect": "localhost:1", "log.dirs": str(tmp_path), "log.folder": str(file)}
    assert run_broker(load_broker_config(keys)) == 1
    said = capsys.readouterr().err
    assert said == f"strandline broker: configuration log.folder='{file}': it is a file, not a folder; name a folder\n"
