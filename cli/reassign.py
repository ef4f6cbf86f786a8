"""`strandline reassign`: move partitions to other brokers, with the files of Kafka's tool.

    strandline reassign generate --all --plan-file plan.json      what would be even, and moves little
    strandline reassign execute plan.json --dry-run               bytes to move, each broker before and after
    strandline reassign execute plan.json --throttle 50000000     begins; --wait looks until it is done
    strandline reassign verify plan.json                          how far it is; removes the throttle at the end
    strandline reassign cancel plan.json                          back to where it was

The controller carries a plan out, whoever looks: Ctrl-C ends the looking. Before it begins, what is there is written to
a roll-back file, which is a plan, too.
"""

from __future__ import annotations

import click

from strandline.cli.reassign_execute import execute
from strandline.cli.reassign_generate import generate
from strandline.cli.reassign_verify import cancel, verify


@click.group(
    no_args_is_help=False,
    epilog="Examples: strandline reassign generate --all --plan-file plan.json; "
    "strandline reassign execute plan.json --throttle 50000000 --wait; strandline reassign verify plan.json",
)
def reassign() -> None:
    """Move partitions to other brokers, change replication factors."""


for command in (generate, execute, verify, cancel):
    reassign.add_command(command)
