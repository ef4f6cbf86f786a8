"""What `strandline` offers: names, types, docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import strandline
import strandline.aio
import strandline.client
from strandline.client import errors

CLIENTS = [
    *(strandline.Producer, strandline.Consumer, strandline.Admin),
    *(strandline.TrioProducer, strandline.TrioConsumer, strandline.TrioAdmin),
    *(strandline.aio.AioProducer, strandline.aio.AioConsumer, strandline.aio.AioAdmin),
]


def in_type_checking_block(module: Any) -> set[str]:
    tree = ast.parse(Path(module.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {alias.name for node in block.body for alias in node.names}  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", [strandline, strandline.client], ids=lambda each: each.__name__)
def test_type_checkers_see_the_names_that_programs_can_use(module: Any) -> None:
    assert in_type_checking_block(module) == set(module.__all__) - {"__version__"}


@pytest.mark.parametrize("module", [strandline, strandline.aio, strandline.client], ids=lambda each: each.__name__)
def test_every_name_can_be_imported_and_is_listed(module: Any) -> None:
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        module.Nothing  # noqa: B018


def test_every_error_and_everything_public_of_the_client_can_be_had_from_the_top() -> None:
    raised = {
        name for name, each in vars(errors).items() if inspect.isclass(each) and each.__module__ == errors.__name__
    }
    assert raised <= set(strandline.__all__)
    assert set(strandline.client.__all__) <= set(strandline.__all__)
    assert all(issubclass(getattr(strandline, name), strandline.ClientError) for name in raised)
    assert sorted(strandline.__all__) == strandline.__all__


def test_a_star_import_gives_them_all_and_a_plain_one_loads_nothing() -> None:
    program = (
        "import strandline, sys; assert 'trio' not in sys.modules; "
        "from strandline import *; assert issubclass(BufferFull, ClientError) and Producer and TopicPartition"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


ENDS = re.compile(
    r"[a-z]_ms|in time|`timeout`|\b(" + "|".join(name for name in vars(errors) if name[0].isupper()) + r")\b"
)
"""When a wait ends: a limit, or an error."""
WAITS_FOR_NOBODY = {"close", "finished", "run", "stop"}
"""Or for what they are there for."""


def public_members(client: type) -> list[tuple[str, object]]:
    return [(name, each) for name, each in inspect.getmembers_static(client) if not name.startswith("_")]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda each: each.__name__)
def test_every_public_method_and_property_of_a_client_says_what_it_does(client: type) -> None:
    assert (client.__doc__ or "").strip()
    silent = [name for name, each in public_members(client) if not (inspect.getdoc(each) or "").strip()]
    assert silent == []


@pytest.mark.parametrize(
    "client", [each for each in CLIENTS if "Trio" in each.__name__], ids=lambda each: each.__name__
)
def test_every_call_that_waits_says_when_it_stops_waiting(client: type) -> None:
    """The other clients' calls have the same words, or are the few that are written out there."""
    endless = [
        name
        for name, each in public_members(client)
        if inspect.iscoroutinefunction(each)
        and name not in WAITS_FOR_NOBODY
        and not ENDS.search(inspect.getdoc(each) or "")
    ]
    assert endless == []
