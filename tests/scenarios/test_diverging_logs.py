"""Any two logs that elections could leave come together where they part (KIP-279).

The follower must end at the last offset that both share: no higher, or the logs differ for ever, and no lower, or it
drops what may be committed. `r03_where_logs_part.txt` has the cases that have a name.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strandline.testkit.inspection import epochs
from support.parting_logs import FOLLOWER, LEADER, Epochs, a_partition, converge


def common_prefix(one: list[int], other: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@st.composite
def two_histories(draw: st.DrawFn) -> tuple[Epochs, Epochs]:
    """Two logs that elections could leave: each epoch has one leader, so it begins at the same offset wherever it
    stands, and its log up to there is that leader's."""
    logs: list[list[int]] = [[], []]
    for epoch in range(draw(st.integers(1, 6))):
        leads = draw(st.integers(0, 1))
        logs[leads].extend([epoch] * draw(st.integers(0, 4)))
        if draw(st.booleans()):  # the other one follows it for a while
            shared = common_prefix(*logs)
            end = draw(st.integers(shared, len(logs[leads])))
            logs[1 - leads] = logs[leads][:end]
    return as_epochs(logs[0]), as_epochs(logs[1])


def as_epochs(log: list[int]) -> Epochs:
    ends = {epoch: at + 1 for at, epoch in enumerate(log)}
    return tuple(ends.items())


@given(two_histories())
def test_r3_any_two_logs_that_elections_could_leave_end_where_they_part(
    histories: tuple[Epochs, Epochs],
) -> None:
    leader = a_partition(LEADER, histories[0], leader_epoch=10)
    follower = a_partition(FOLLOWER, histories[1], leader_epoch=10)
    expected = common_prefix(epochs(leader.log), epochs(follower.log))
    list(converge(leader, follower))
    assert follower.log.log_end_offset == expected
