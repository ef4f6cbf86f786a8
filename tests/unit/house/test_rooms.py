"""The rooms of each package stand in an order, and no modules import each other in a circle.

So whoever reads a package from its lowest room on meets nothing that they have not read yet. Imports for type checking
count, too: who needs the type of another needs to know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

Graph = Mapping[str, Iterable[str]]

ROOMS: dict[str, tuple[str, ...]] = {
    "protocol": ("messages", "native", "kafka", "records", "znodes", "history"),
    "runtime": ("config", "processes", "zookeeper"),
    "storage": ("disk", "segments", "producers", "log", "recovery", "cleaning", "manager", "inspection"),
    "controller": ("planning", "orders", "liveness", "partitions", "topics", "reassignments", "brokers", "term"),
    "broker": ("network", "quotas", "replication", "upkeep", "membership", "admin", "groups", "handlers", "metrics"),
    "client": ("groups", "replicas", "balance"),
    "spark_connector": ("options", "reading", "streaming", "writing", "pipelines"),
    "testkit": ("zookeeper", "disk", "network", "simulation"),
}
"""The lowest first: a room imports only what stands before it. The packages that are not here have no rooms."""


def modules_imported_by(sources) -> dict[str, set[str]]:
    """Who imports whom, of our own modules."""
    known = {source.module for source in sources}

    def module_of(name: str) -> str | None:
        while name and name not in known:
            name = name.rpartition(".")[0]
        return name or None

    return {source.module: {found for each in source.imports if (found := module_of(each))} for source in sources}


def circles(graph: Graph) -> list[list[str]]:
    """The members of each circle, sorted: nodes that reach each other (Tarjan's strongly connected components)."""
    found: list[list[str]] = []
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        path.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
            if other in path:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == order[node]:
            members = path[path.index(node) :]
            del path[-len(members) :]
            if len(members) > 1:
                found.append(sorted(members))

    for node in graph:
        if node not in order:
            visit(node)
    return sorted(found)


def room_of(module: str) -> tuple[str, str]:
    """`strandline.storage.log.log` lies in ("storage", "log"), `strandline.broker.server` in ("broker", "server")."""
    _, package, room, *_ = (*module.split("."), "", "")
    return package, room


def reached_in_other_rooms(module: str, graph: Graph) -> set[str]:
    """What a module of a room imports of other rooms of its package, also by way of files that lie in no room."""
    package, room = room_of(module)
    found: set[str] = set()
    seen: set[str] = set()
    left = [module]
    while left:
        for other in graph[left.pop()]:
            if other not in seen and room_of(other)[0] == package and room_of(other)[1] != room:
                seen.add(other)
                (found.add if room_of(other)[1] in ROOMS[package] else left.append)(other)
    return found


def going_upwards(graph: Graph) -> set[tuple[str, str]]:
    places = {(package, room): place for package, rooms in ROOMS.items() for place, room in enumerate(rooms)}
    return {
        (module, other)
        for module in graph
        if room_of(module) in places
        for other in reached_in_other_rooms(module, graph)
        if places[room_of(other)] > places[room_of(module)]
    }


@pytest.fixture(scope="module")
def graph(sources, test_sources) -> Graph:
    return modules_imported_by([*sources, *(each for each in test_sources if each.module.startswith("support."))])


def test_every_room_has_its_place(root, packages) -> None:
    rooms = {package: {path.parent.name for path in (root / package).glob("*/__init__.py")} for package in packages}
    assert {package: set(order) for package, order in ROOMS.items()} == {
        package: found for package, found in rooms.items() if found
    }


def test_imports_between_rooms_go_one_way(graph) -> None:
    assert sorted(going_upwards(graph)) == [], "imports a room that comes later (ROOMS)"


def test_no_modules_import_each_other_in_a_circle(graph) -> None:
    assert circles(graph) == []


@pytest.mark.parametrize(
    ("edges", "members"),
    [
        ("ab bc cd", []),
        ("ab ba", ["ab"]),
        ("ab bc ca cd", ["abc"]),
        ("ab bc cb da", ["bc"]),
        ("ab bc ca de ed be", ["abc", "de"]),
        ("ab ac bd cd da", ["abcd"]),
    ],
)
def test_the_rule_sees_circles(edges: str, members: list[str]) -> None:
    graph: dict[str, list[str]] = {}
    for importing, imported in edges.split():
        graph.setdefault(importing, []).append(imported)
    assert ["".join(circle) for circle in circles(graph)] == members


def test_the_rule_sees_imports_by_way_of_a_file_that_lies_in_no_room() -> None:
    low, high, between = "strandline.storage.disk.x", "strandline.storage.log.y", "strandline.storage.errors"
    assert going_upwards({low: [between], between: [high], high: []}) == {(low, high)}
    assert going_upwards({low: [], between: [low], high: [between]}) == set()
