"""Whether the topic that `strandline produce` writes to is there: brokers create one for who asks for it, also for who
has mistyped its name. So it is told, once, and before anything is sent.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from strandline.cli.options import LOOK_TIMEOUT_MS, common_settings
from strandline.cli.session import Session
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline import Admin, Producer

NEAR_NAMES = 3


class TopicCheck:
    """Of one command line."""

    def __init__(
        self,
        session: Session,
        servers: str,
        settings: Iterable[str],
        topic: str,
        *,
        may_create: bool,
    ) -> None:
        self._session = session
        self._servers = servers
        self._settings = {"default_api_timeout_ms": LOOK_TIMEOUT_MS, **common_settings(settings)}
        self._topic = topic
        self._may_create = may_create
        self._is_done = False

    def before_first(self, producer: Producer) -> None:
        """Have the topic created if it is not there, and say so on stderr. ClickException where that is not wanted, or
        brokers do not do it. Asks the first time only."""
        if self._is_done:
            return
        from strandline.client.errors import UnknownTopic

        with self._session.admin(self._servers, **self._settings) as admin:
            try:
                admin.describe_topics([self._topic])
            except UnknownTopic:
                self._create(admin, producer)
        self._is_done = True

    def _create(self, admin: Admin, producer: Producer) -> None:
        from strandline.client.errors import UnknownTopic

        near = near_names(self._topic, admin.list_topics())
        if not self._may_create:
            raise click.ClickException(
                f"topic '{self._topic}' does not exist{near}; without --no-create (or "
                f"-X allow.auto.create.topics=false) it is created, "
                f"'strandline topics create {self._topic}' does it with partitions and replicas of your choice"
            )
        try:
            partitions = len(producer.partitions_for(self._topic))
        except UnknownTopic:
            raise click.ClickException(
                f"topic '{self._topic}' does not exist{near}, and brokers do not create it by themselves "
                f"(auto.create.topics.enable); 'strandline topics create {self._topic}' does"
            ) from None
        replicas = ""
        with contextlib.suppress(UnknownTopic):  # of a broker that has not heard of it yet
            [view] = admin.describe_topics([self._topic]).values()
            factor = max((len(each.replicas) for each in view.partitions.values()), default=0)
            replicas = f" of {counted(factor, 'replica')}" if factor else ""
        click.echo(
            f"strandline: created topic {self._topic} with {counted(partitions, 'partition')}{replicas}{near}", err=True
        )


def near_names(topic: str, known: Iterable[str]) -> str:
    """`; did you mean clicks?`, or nothing."""
    known = [name for name in known if name != topic]
    lowered = {name.lower(): name for name in known}
    near = [lowered[name] for name in difflib.get_close_matches(topic.lower(), lowered, n=NEAR_NAMES, cutoff=0.6)]
    return f" (did you mean {' or '.join(near)}?)" if near else ""
