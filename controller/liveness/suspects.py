"""Which of the registered brokers the acting controller takes for dead: registered − suspected = live.

Rules (invariant 41):
* A suspicion is of one life of a broker at one address, and counts for as long as exactly that is registered. It ends
  with the registration, with another one (a bounce: failure and start), or when the broker is reached again.
* It is a hint: what follows from it is planned and written as after the end of a session, by the same events, under
  the same epochs, and a broker that lives and was suspected is fenced by these.
* It never costs more than the end of a session would: who waits for somebody who is only suspected is left as it is
  (`planner`).
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.controller.agenda import Event
from strandline.controller.controller_context import LiveBroker
from strandline.controller.liveness.process_watch import ProcessWatch
from strandline.controller.liveness.refusals import FalseAlarms
from strandline.controller.liveness.witnesses import does_anybody_answer
from strandline.controller.orders.channel import ConnectToBroker
from strandline.controller.tools import Tools


class Suspects:
    """One term's; `context.suspects` is what it came to at the last look. `look`: the event that looks at who lives."""

    def __init__(
        self,
        tools: Tools,
        broker_id: int,
        connect: ConnectToBroker,
        false_alarms: FalseAlarms,
        found_gone: LiveBroker | None,
    ) -> None:
        """broker_id: whose term it is. found_gone: the controller before, where its process was found to be gone."""
        self.look: Event | None = None
        self._broker_id = broker_id
        self._refused_ms = tools.config.failure_detection_refused_ms
        self._context, self._agenda, self._log = tools.context, tools.agenda, tools.log
        self._connect = connect
        self._false_alarms = false_alarms
        self._registered: dict[int, LiveBroker] = {}
        self._watches: dict[int, ProcessWatch] = {}
        self._gone: dict[int, LiveBroker] = {}
        if found_gone is not None:
            self._take_for_gone(found_gone)

    def live(self, registered: Mapping[int, LiveBroker]) -> dict[int, LiveBroker]:
        """Those of the registered brokers, as they were read a moment ago, that count as live. They are watched from
        now on, and nobody else is."""
        self._registered = dict(registered)
        self._gone = {broker_id: gone for broker_id, gone in self._gone.items() if registered.get(broker_id) == gone}
        self._watch(registered)
        for broker_id, gone in self._gone.items():
            if self._context.suspects.get(broker_id) != gone:
                self._log.warning(
                    "broker suspected",
                    broker=broker_id,
                    broker_epoch=gone.epoch,
                    refused_ms=self._refused_ms,
                    why="its process is gone, its session lives",
                )
        # Who was reached again stays among them until it has been taken in as live (`BrokerChanges`).
        suspects = {**self._context.suspects, **self._gone}
        self._context.suspects = {
            broker_id: suspect for broker_id, suspect in suspects.items() if registered.get(broker_id) == suspect
        }
        return {broker_id: broker for broker_id, broker in registered.items() if broker_id not in self._gone}

    def _watch(self, registered: Mapping[int, LiveBroker]) -> None:
        for broker_id, watch in list(self._watches.items()):
            if registered.get(broker_id) != watch.broker:
                self._watches.pop(broker_id).close()
        for broker_id, broker in registered.items():
            if self._refused_ms and broker_id not in self._watches and broker_id != self._broker_id:
                watch = self._watches[broker_id] = ProcessWatch(
                    broker,
                    refused_ms=self._refused_ms,
                    connect=self._connect,
                    false_alarms=self._false_alarms,
                    find_witness=self._find_witness,
                    on_gone=self._on_gone,
                    on_reached=self._on_reached,
                    log=self._log,
                    is_suspected=broker_id in self._gone,
                )
                self._agenda.start(watch.run)

    async def _find_witness(self, suspect: LiveBroker) -> bool:
        known = self._registered.values()
        others = [each for each in known if each.broker_id not in (self._broker_id, suspect.broker_id)]
        return await does_anybody_answer(self._connect, others)

    def _take_for_gone(self, broker: LiveBroker) -> None:
        self._gone[broker.broker_id] = broker
        self._false_alarms.suspect(broker)

    def _on_gone(self, broker: LiveBroker) -> None:
        self._take_for_gone(broker)
        self._look()

    def _on_reached(self, broker: LiveBroker) -> None:
        self._gone.pop(broker.broker_id, None)
        self._look()

    def _look(self) -> None:
        assert self.look is not None
        self._agenda.put(self.look)
