"""The process around one broker: the production seams, its log files, signals, and the exit code."""

from __future__ import annotations

import signal
import sys

import trio

from strandline.broker.membership.cluster_identity import UnreadableCluster
from strandline.broker.membership.registration import BrokerIdTaken
from strandline.broker.server import Broker
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.values import unusable_folder
from strandline.runtime.coordination import CoordinationError
from strandline.runtime.exception_groups import first_cause
from strandline.runtime.logging import BrokerLogs, open_logs
from strandline.runtime.network import Address, CannotListen
from strandline.runtime.processes.descriptors import raise_descriptor_limit
from strandline.runtime.production import production_coordination, production_environment, tune_garbage_collection
from strandline.storage.errors import StorageError


def run_broker(config: BrokerConfig) -> int:
    """Run one broker with the production seams until SIGTERM or SIGINT; returns the exit code.

    0 after a clean stop, 1 when it could not start or a fault ended it. A second signal ends it at once."""
    try:
        logs = open_logs(directory=config.log_folder, broker_id=config.broker_id)
    except OSError as error:
        sys.stderr.write(f"strandline broker: {unusable_folder('log.folder', str(config.log_folder), error)}\n")
        return 1
    raise_descriptor_limit()
    try:
        return trio.run(_run_until_signalled, config, logs)
    finally:
        logs.close()


async def _run_until_signalled(config: BrokerConfig, logs: BrokerLogs) -> int:
    environment = production_environment()
    coordination = production_coordination(config, logs.main)
    broker = Broker(config, environment, coordination, logs)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(_watch_signals, broker, nursery.cancel_scope, logs)
            await broker.run(task_status=_Serving(logs))
            nursery.cancel_scope.cancel()
            return 0
    except* (StorageError, CannotListen, BrokerIdTaken, UnreadableCluster, CoordinationError) as failures:
        sys.stderr.write(f"strandline broker: {first_cause(failures)}\n")
    return 1


class _Serving(trio.TaskStatus[dict[str, Address]]):
    """Told by the broker that it serves."""

    def __init__(self, logs: BrokerLogs) -> None:
        self._logs = logs

    def started(self, value: dict[str, Address] | None = None) -> None:
        tune_garbage_collection()
        self._logs.main.info("serving")


async def _watch_signals(
    broker: Broker, scope: trio.CancelScope, logs: BrokerLogs, *, task_status: trio.TaskStatus[None]
) -> None:
    """SIGTERM or SIGINT: controlled shutdown; a second one: stop now, as unclean as it is. Started before anything that
    an unheard signal would leave half done."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        count = 0
        async for number in signals:
            count += 1
            if count > 1:
                logs.main.warning("stopping at once", signal=signal.Signals(number).name)
                scope.cancel()
                return
            logs.main.info("shutting down", signal=signal.Signals(number).name)
            broker.shut_down()
