"""The version that a soak rolls back to is the sources of an earlier commit, or it is told why there is none."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from soak import history_versions
from soak.history_versions import SPOKEN, CannotUnpack, older_version


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One commit, in which nothing is spoken yet."""
    root = tmp_path / "repository"
    monkeypatch.setattr(history_versions, "ROOT", root)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (root / "src").mkdir(parents=True)
    git(root, "init", "--quiet")
    commit(root, "src/module.py", "older")
    return root


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(root), *who, *arguments], check=True, capture_output=True)


def commit(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", text)


def test_it_is_the_last_commit_before_what_is_spoken_changed(repository: Path, tmp_path: Path) -> None:
    commit(repository, SPOKEN[-1], "spoken")
    commit(repository, "src/module.py", "newer")
    older = older_version(tmp_path / "older")
    assert older is not None
    assert (older.sources / "module.py").read_text() == "older"
    assert not (tmp_path / "older" / SPOKEN[-1]).exists()


def test_there_is_none_without_an_earlier_commit(repository: Path, tmp_path: Path) -> None:
    assert older_version(tmp_path / "older") is None


def test_there_is_none_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_versions, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert older_version(tmp_path / "older") is None


def test_a_failed_unpacking_is_told_as_one(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise tarfile.FilterError("a link leads outside")

    commit(repository, SPOKEN[-1], "spoken")
    monkeypatch.setattr(tarfile.TarFile, "extractall", fail)
    with pytest.raises(CannotUnpack, match=r"cannot be put into .*: a link leads outside"):
        older_version(tmp_path / "older")


def test_a_repository_that_does_not_answer_is_told_as_that(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_versions, "GIT_TIMEOUT_S", 0.0)
    with pytest.raises(CannotUnpack, match="no answer within"):
        older_version(tmp_path / "older")
