"""What a group's state machine asks its coordinator to do."""

from __future__ import annotations

from typing import NamedTuple

from strandline.broker.groups.members import Member
from strandline.protocol.messages import JoinGroupResponse, Message


class GroupSettings(NamedTuple):
    """`initial_delay_s`: how long an empty group waits for more members, anew each time that one comes."""

    max_size: int
    initial_delay_s: float


class Answer(NamedTuple):
    """The answer to a request that was handed in."""

    request: object
    message: Message


class Write(NamedTuple):
    """This state of the group is to be written to the log; `Group.written` is to be told how that went.

    `assignments`: member id → bytes; of a group that has become empty none. `rejoined`: a static member that came back
    under a new id, whose join waits for this."""

    generation: int
    assignments: dict[str, bytes]
    rejoined: Rejoined | None = None


class Rejoined(NamedTuple):
    member: Member
    request: object
    answer: JoinGroupResponse


Effect = Answer | Write
