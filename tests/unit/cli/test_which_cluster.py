"""Which cluster a command reaches: the one that was named, or none."""

from __future__ import annotations

from typing import Any

import pytest

COMMANDS = [
    ("produce", "-t", "t", "-l", "lines"),
    ("consume", "-t", "t", "-o", ":end"),
    ("topics", "list"),
    ("topics", "delete", "t", "--yes"),
    ("configs", "describe", "-t", "t"),
    ("groups", "list"),
    ("groups", "describe", "--all-groups"),
    ("groups", "reset", "g", "-t", "t", "--to-latest", "--execute"),
    ("groups", "delete", "g", "--yes"),
    ("delete-records", "t", "--all", "--yes"),
    ("elect-leaders", "--all"),
    ("reassign", "verify"),
    ("broker-decommission", "1"),
    ("recover", "t"),
    ("audit",),
    ("archive", "t", "--to", "a"),
]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text("a\n")


def named_by_option(shell: Any, monkeypatch: pytest.MonkeyPatch, folder: str, args: tuple[str, ...]) -> Any:
    return shell(*args, "--data", folder)


def named_by_variable(shell: Any, monkeypatch: pytest.MonkeyPatch, folder: str, args: tuple[str, ...]) -> Any:
    monkeypatch.setenv("STRANDLINE_DATA", folder)
    return shell(*args)


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("name", [named_by_option, named_by_variable])
@pytest.mark.parametrize("state", ["is down", "there is no cluster"])
def test_a_named_cluster_that_is_down_is_an_error_and_nobody_else_is_reached(
    shell: Any, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], name: Any, state: str
) -> None:
    """The default folder's cluster is up, and localhost:9092 may belong to anybody."""
    if state == "is down":
        shell.cluster.folders["my data"] = None
    ran = name(shell, monkeypatch, "my data", args)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert "my data" in ran.err and state in ran.err and "strandline up --data 'my data'" in ran.err
    assert shell.cluster.bootstrap == ""


@pytest.mark.parametrize("name", [named_by_option, named_by_variable])
def test_a_named_cluster_that_is_up_is_reached(shell: Any, monkeypatch: pytest.MonkeyPatch, name: Any) -> None:
    shell.cluster.folders["mine"] = "127.0.0.1:1234"
    assert name(shell, monkeypatch, "mine", ("topics", "list")).code == 0
    assert shell.cluster.bootstrap == "127.0.0.1:1234"


def test_options_win_over_variables_and_an_address_over_a_folder(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.cluster.folders["down"] = None
    shell.cluster.folders["up"] = "127.0.0.1:1234"
    monkeypatch.setenv("STRANDLINE_DATA", "down")
    assert shell("topics", "list", "-b", "a:1").code == 0
    assert shell.cluster.bootstrap == "a:1"
    monkeypatch.setenv("STRANDLINE_BOOTSTRAP", "env:1")
    assert shell("topics", "list").code == 0
    assert shell.cluster.bootstrap == "env:1"
    assert shell("topics", "list", "--data", "up").code == 0
    assert shell.cluster.bootstrap == "127.0.0.1:1234"


@pytest.mark.parametrize("address", ["a:1", ""])
def test_two_options_that_each_name_a_cluster_are_a_wrong_command_line(shell: Any, address: str) -> None:
    ran = shell("topics", "list", "-b", address, "--data", "strandline-data")
    assert (ran.code, ran.out, shell.cluster.bootstrap) == (2, "", "")
    assert "give one of them" in ran.err


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_an_empty_address_reaches_no_cluster(
    shell: Any, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    """A script whose variable is unset says -b ''; what it would delete is not to be looked for elsewhere."""
    monkeypatch.setenv("STRANDLINE_BOOTSTRAP", "env:1")
    ran = shell(*args, "-b", "")
    assert (ran.code, ran.out, shell.cluster.bootstrap) == (2, "", "")
    assert "--bootstrap '' is not host:port" in ran.err


def test_empty_variables_name_nothing(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_BOOTSTRAP", "")
    monkeypatch.setenv("STRANDLINE_DATA", "")
    assert shell("topics", "list").code == 0
    assert shell.cluster.bootstrap == "127.0.0.1:19092"


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("key", ["bootstrap.servers", "bootstrap_servers"])
def test_a_setting_does_not_name_the_cluster(shell: Any, args: tuple[str, ...], key: str) -> None:
    """It would win over -b in silence."""
    ran = shell(*args, "-b", "a:1", "-X", f"{key}=other:1")
    assert (ran.code, ran.out, shell.cluster.bootstrap) == (2, "", "")
    assert f"-X {key}" in ran.err and "-b/--bootstrap" in ran.err


def test_the_help_tells_the_order_in_which_a_cluster_is_looked_for(shell: Any) -> None:
    text = " ".join(shell("topics", "list", "--help").out.split())
    assert "Without it and --data: $STRANDLINE_BOOTSTRAP, else $STRANDLINE_DATA, else" in text


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        ({"strandline-data": None}, "the one in strandline-data is down: strandline up starts it"),
        ({}, "strandline up starts one here"),
    ],
)
def test_where_nothing_is_named_and_nobody_answers_it_is_said_how_to_name_one(
    shell: Any, folders: dict[str, str | None], said: str
) -> None:
    shell.cluster.folders = folders
    shell.cluster.is_reachable = False
    ran = shell("broker-decommission", "1")
    assert ran.code == 1
    assert ran.err == f"strandline: no broker answers; no cluster was named (--bootstrap, --data), and {said}\n"
    assert shell.cluster.bootstrap == "localhost:9092"
    assert shell("broker-decommission", "1", "-b", "a:1").err == "strandline: no broker answers\n"


def test_doctor_says_that_the_named_cluster_is_down_and_checks_the_rest(shell: Any) -> None:
    ran = shell("doctor", "--data", "gone")
    assert ran.code == 1
    assert "FAIL  cluster: --data is gone, and there is no cluster: strandline up --data gone starts it\n" in ran.out
    assert "record codec" in ran.out
    assert shell.cluster.bootstrap == ""


def test_doctor_says_how_to_name_a_cluster_where_nobody_has(shell: Any) -> None:
    shell.cluster.folders = {}
    shell.cluster.is_reachable = False
    ran = shell("doctor")
    assert "FAIL  cluster: no broker answers; no cluster was named (--bootstrap, --data), and strandline up" in ran.out
