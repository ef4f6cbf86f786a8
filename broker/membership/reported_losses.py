"""What an earlier life of this broker left behind: data that it may have lost.

A loss is on the disk until ZooKeeper has all that there is to say of it (`loss_reports`): until then not even a crash,
or a stop in order, makes it forgotten.
"""

from __future__ import annotations

import trio

from strandline.broker.membership.registration import Registration
from strandline.runtime.environment import Blocking
from strandline.storage.manager.log_manager import LogManager

UNSAID_INTERVAL_S = 1.0
"""Between two looks at states that could not be understood."""


async def forget_reported_loss(logs: LogManager, registration: Registration, blocking: Blocking) -> None:
    """Call it once this broker is registered. Returns when ZooKeeper has it, and the disk need not keep it any more."""
    if not logs.may_have_lost_data:
        return
    while registration.unsaid:
        await trio.sleep(UNSAID_INTERVAL_S)
        await registration.renounce_rest()
    await blocking.run(logs.mark_loss_handled)
