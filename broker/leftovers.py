"""What an earlier life of this broker left behind: data that it may have lost.

A loss is on the disk until ZooKeeper has all that there is to say of it (`claims`): until then not even a crash, or a
stop in order, makes it forgotten.
"""

from __future__ import annotations

from strandline.broker.registration import Registration
from strandline.broker.replica_manager import ReplicaManager
from strandline.storage.log_manager import LogManager


async def settle_loss(logs: LogManager, registration: Registration, replicas: ReplicaManager) -> None:
    """Call it once this broker is registered. What could not be said is said at the next start."""
    if logs.may_have_lost_data and registration.loss_is_noted:
        await replicas.run_blocking(logs.mark_loss_handled)
