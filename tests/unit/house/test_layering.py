"""Who may import whom: the picture of ARCHITECTURE.md as a table."""

from __future__ import annotations

import ast

ALL = ("protocol", "runtime", "storage", "controller", "broker", "client", "spark_connector", "cli", "testkit")
CONNECTION = ("client.connection", "client.errors")
"""One connection to a broker and what can go wrong with it: all of the client that the brokers use."""

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "protocol": ("protocol",),
    "runtime": ("protocol", "runtime"),
    "storage": ("protocol", "runtime", "storage"),
    "client": ("protocol", "runtime", "client"),
    "controller": ("protocol", "runtime", "controller", *CONNECTION),
    "broker": ("protocol", "runtime", "storage", "broker", *CONNECTION),
    "spark_connector": ("protocol", "runtime", "client", "spark_connector"),
    "cli": ALL,
    "testkit": ALL,
}
ALSO: dict[str, tuple[str, ...]] = {
    "broker/server.py": ("controller",),
    "broker/metrics/of_controller.py": ("controller",),
}
"""The daemon puts the control plane beside the data plane, and one source of metrics reads it; nothing else does."""

SANS_IO = {
    "protocol": ("trio", "socket", "os", "time", "asyncio", "threading"),
    "storage": ("trio", "asyncio", "threading"),
}


def is_below(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def public_home(inner: str) -> str:
    """Where a public name of the package itself comes from: `from strandline import Producer`."""
    return "client" if inner in ("Producer", "Consumer", "Admin") else inner


def test_each_package_imports_only_what_lies_below_it(sources) -> None:
    wrong = []
    for source in sources:
        allowed = (*MAY_IMPORT[source.package], *ALSO.get(source.name, ()))
        for name in source.imports:
            inner = public_home(name.removeprefix("strandline."))
            if not name.startswith("strandline.") or inner in ("TopicPartition", "__version__"):
                continue
            if not any(is_below(inner, module) for module in allowed):
                wrong.append(f"{source.name} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_no_package_is_imported_by_its_bare_name(sources) -> None:
    wrong = [
        f"{source.name} imports {name}" for source in sources for name in source.imports if name.split(".")[0] in ALL
    ]
    assert not wrong, "\n".join(wrong)


def test_the_protocol_and_the_storage_never_wait(sources) -> None:
    wrong = []
    for source in sources:
        forbidden = SANS_IO.get(source.package, ())
        wrong += [
            f"{source.name} imports {name}"
            for name in source.imports
            if any(is_below(name, module) for module in forbidden)
        ]
        if forbidden:
            wrong += [
                f"{source.name}:{node.lineno} awaits"
                for node in ast.walk(source.tree)
                if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
            ]
    assert not wrong, "\n".join(wrong)
