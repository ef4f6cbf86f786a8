"""Scripts of faults as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.testkit.simulation.script import Fault, NotAFault, read_script, text_of

FAULTS = st.builds(
    Fault,
    st.integers(0, 10**6).map(lambda number: number / 1000),
    st.sampled_from(["kill", "cut both", "slow-disk"]),
    st.sampled_from(["", "2", "1>3", "2-1", "controller", "all"]),
    st.integers(0, 10**5).map(lambda number: number / 100),
    st.sampled_from(["", "any", "rename *.swap", "7: once more"]),
)


@given(st.lists(FAULTS, max_size=10))
def test_what_is_written_is_read(faults: list[Fault]) -> None:
    assert read_script(text_of(faults)) == tuple(sorted(faults))


def test_comments_and_empty_lines_say_nothing() -> None:
    assert read_script("# all is well\n\n  1 kill 2 for 3 # at once\n") == (Fault(1.0, "kill", "2", 3.0),)


@pytest.mark.parametrize("line", ["kill 2", "1", "1 kill 2 for ever", "-1 kill 2", "1 Kill 2"])
def test_a_line_that_is_no_fault_is_named(line: str) -> None:
    with pytest.raises(NotAFault, match=r"^line 2 of the script is no fault: "):
        read_script(f"1 kill 2\n{line}\n")
