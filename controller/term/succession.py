"""Who notices that the controller's process is gone: every other broker, by a watch on it (`liveness`).

What follows is an election (`controller_election`), which checks that `/controller` is still of that life.
"""

from __future__ import annotations

import random

import structlog
import trio

from strandline.controller.controller_context import LiveBroker
from strandline.controller.liveness.process_watch import ProcessWatch
from strandline.controller.liveness.refusals import FalseAlarms
from strandline.controller.liveness.witnesses import does_anybody_answer
from strandline.controller.orders.channel import ConnectToBroker
from strandline.controller.registrations import read_registrations
from strandline.protocol import znodes
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.coordination import Coordination, CoordinationError, NoNode

JITTER_S = 0.05
"""Brokers notice at one time: who draws the least is elected, and most of the others hear of it before they try."""
RETRY_S = 1.0


class Succession:
    """Of one broker that is not controller."""

    def __init__(
        self,
        config: BrokerConfig,
        coordination: Coordination,
        connect: ConnectToBroker,
        false_alarms: FalseAlarms,
        rng: random.Random,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._config = config
        self._coordination = coordination
        self._connect = connect
        self._false_alarms = false_alarms
        self._random = rng
        self._log = log

    async def until_gone(self) -> LiveBroker:
        """Wait until the process of the broker that is controller now is gone: its life. Another controller is not
        watched for: who calls this has a watch on `/controller`."""
        gone: list[LiveBroker] = []
        while not gone:
            controller = await self._controller()
            if controller is None:
                await trio.sleep_forever()
            else:
                self._note_that_it_lives(controller)
                await self._watch(controller, gone)
        await trio.sleep(self._random.random() * JITTER_S)
        return gone[0]

    def _note_that_it_lives(self, controller: LiveBroker) -> None:
        """Who was taken for gone in a term of this broker, and is controller now, was elected since."""
        if self._false_alarms.is_suspected(controller):
            times = self._false_alarms.note(controller)
            self._log.warning(
                "broker that was suspected was elected controller",
                broker=controller.broker_id,
                broker_epoch=controller.epoch,
                false_alarms_of_this_life=times,
            )

    async def _watch(self, controller: LiveBroker, gone: list[LiveBroker]) -> None:
        def on_gone(broker: LiveBroker) -> None:
            gone.append(broker)
            watch.close()

        watch = ProcessWatch(
            controller,
            refused_ms=self._config.failure_detection_refused_ms,
            connect=self._connect,
            false_alarms=self._false_alarms,
            find_witness=self._find_witness,
            on_gone=on_gone,
            on_reached=gone.remove,
            log=self._log,
        )
        await watch.run()

    async def _controller(self) -> LiveBroker | None:
        """Who is controller, by its registration; None where it has none, or nobody is to be watched."""
        path = znodes.CONTROLLER_PATH
        while self._config.failure_detection_refused_ms:
            try:
                holder = znodes.ControllerZnode.decode(path, (await self._coordination.get(path)).data).broker_id
                if holder == self._config.broker_id:
                    return None
                return (await self._registered([str(holder)])).get(holder)
            except (NoNode, znodes.InvalidZnode):
                return None
            except CoordinationError as error:
                self._log.info("who is controller cannot be read", error=str(error))
                await trio.sleep(RETRY_S)
        return None

    async def _registered(self, names: list[str]) -> dict[int, LiveBroker]:
        listener = self._config.inter_broker_listener_name
        return await read_registrations(self._coordination, names, listener, self._log)

    async def _find_witness(self, suspect: LiveBroker) -> bool:
        try:
            names = await self._coordination.children(znodes.BROKER_IDS_PATH)
            known = (await self._registered(names)).values()
        except CoordinationError:
            return False  # then nobody could be elected, either
        others = [each for each in known if each.broker_id not in (self._config.broker_id, suspect.broker_id)]
        return await does_anybody_answer(self._connect, others)
