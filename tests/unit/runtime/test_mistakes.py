"""What a program's mistakes leave behind: a warning each, and little memory."""

from __future__ import annotations

import warnings

import pytest

from strandline.runtime import mistakes


def test_a_mistake_is_shown_once_and_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        monkeypatch.setattr("warnings.showwarning", lambda message, *_: shown.append(str(message)))
        for number in range(3 * mistakes.REMEMBERED_WARNINGS):
            for _ in range(2):
                mistakes.warn(f"mistake {number}")
    assert list(dict.fromkeys(shown)) == [f"mistake {number}" for number in range(3 * mistakes.REMEMBERED_WARNINGS)]
    assert len(shown) < 4 * mistakes.REMEMBERED_WARNINGS, "hardly one is shown again"
    assert len(mistakes._shown) <= mistakes.REMEMBERED_WARNINGS + 1
    assert "__warningregistry__" not in vars(mistakes)
