"""Connections to brokers as they are needed: `Links` keeps one `Link` per broker, each link at most one connection.

A link connects when somebody wants it, remembers why it last failed, and waits between attempts; whatever changes is
told to `on_change`, a plain function.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from strandline.client.connection import Connection
from strandline.client.errors import CannotReachBroker, ClientError
from strandline.client.metadata import Metadata, backoff_ms
from strandline.client.pipelined import PipelinedConnection
from strandline.client.settings import ClientSettings
from strandline.client.timed import RequestTimes, TimedConnection
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.runtime.client_environment import ClientEnvironment

QUICK_FAILURES = 4
"""So often in a row a broker is out of reach for about a second and a half; the longer it lasts, the less is asked."""


class Link:
    """The way to one broker. `connection` is None while there is none."""

    def __init__(self, broker_id: int, links: Links) -> None:
        self.broker_id = broker_id
        self.connection: PipelinedConnection | None = None
        self.last_error: Exception | None = None
        self._links = links
        self._wanted = trio.Event()
        self._dropped = False

    def drop(self, why: str) -> None:
        """Close the connection and open another one at once: what is under way on it is not wanted any more and fails
        with ConnectionLost."""
        if self.connection is not None:
            self._dropped = True
            self.connection.close(f"the connection to {self.connection.name} was given up: {why}")
            self._wanted.set()

    def want(self) -> PipelinedConnection | None:
        """The connection, if it is open; otherwise it will be tried, and `on_change` called when that ended."""
        connection = self.connection
        if connection is None or connection.closed:
            self._wanted.set()
            return None
        return connection

    async def run(self) -> None:
        failures = 0
        links = self._links
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            try:
                await self._serve()
                failures = 0
            except ClientError as error:
                self.last_error = error
                failures += 1
            if self._dropped:
                self._dropped = False
                continue
            links.metadata.request_update()
            links.on_change()
            await self._back_off(max(1, failures))
            links.on_change()

    async def _back_off(self, failures: int) -> None:
        """Before this broker is tried again. Another one may come to lead what it led any moment: who leads is asked as
        often as at first, until the broker has been away for a second or two."""
        links = self._links
        until = trio.current_time() + backoff_ms(links.settings, failures, links.environment) / 1000
        while failures <= QUICK_FAILURES and trio.current_time() < until:
            await trio.sleep_until(min(until, trio.current_time() + links.settings.retry_backoff_ms / 1000))
            links.metadata.request_update()
        await trio.sleep_until(until)

    async def _serve(self) -> None:
        """One connection from its beginning to its end."""
        links = self._links
        connection = TimedConnection(await links.open(self.broker_id), links.times)
        connection.on_drained = links.on_change
        self.connection = connection
        self.last_error = None
        links.on_change()
        try:
            self.last_error = await connection.run()
        finally:
            self.connection = None


class Links:
    """All links of one client; `run` owns their tasks."""

    def __init__(
        self,
        settings: ClientSettings,
        environment: ClientEnvironment,
        metadata: Metadata,
        on_change: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.environment = environment
        self.metadata = metadata
        self.on_change = on_change
        self.times = RequestTimes()
        self._links: dict[int, Link] = {}
        self._nursery: trio.Nursery | None = None

    def to(self, broker_id: int) -> Link:
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = Link(broker_id, self)
            if self._nursery is not None:
                self._nursery.start_soon(link.run)
        return link

    def connections(self) -> list[PipelinedConnection]:
        """Those that are open."""
        return [link.connection for link in list(self._links.values()) if link.connection is not None]

    def known(self, broker_id: int) -> Link | None:
        """The link to a broker that was wanted before."""
        return self._links.get(broker_id)

    def hindrance(self, topic_partition: TopicPartition) -> Exception | None:
        """Why the partition's leader cannot be asked now, of several causes the one nearest to the cluster; None where
        nothing is known to be wrong."""
        metadata = self.metadata
        known = metadata.view.partition(topic_partition)
        if known is None or known.leader == NO_BROKER:
            return metadata.last_error or metadata.view.no_leader(topic_partition)
        link = self._links.get(known.leader)
        if link is None or link.connection is not None:
            return None
        return metadata.last_error or link.last_error

    def last_error(self) -> Exception | None:
        """Why a broker could not be used, for messages; None while none failed."""
        return next((link.last_error for link in self._links.values() if link.last_error is not None), None)

    async def open(self, broker_id: int) -> Connection:
        """A new connection to where the broker is advertised now. CannotReachBroker and what `Connection.open` says."""
        broker = self.metadata.view.brokers.get(broker_id)
        if broker is None:
            raise CannotReachBroker(f"broker {broker_id} is not among the cluster's live brokers; is it running?")
        return await Connection.open(
            self.environment.network,
            broker.address,
            client_id=self.settings.client_id,
            timeout_ms=self.settings.request_timeout_ms,
            connect_timeout_ms=self.settings.socket_connection_setup_timeout_ms,
            max_frame_bytes=self.settings.max_frame_bytes,
            broker_id=broker_id,
        )

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for link in self._links.values():
                nursery.start_soon(link.run)
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None  # who closes may still ask for a link: it takes no more tasks
