"""Imports go downward only: the order of the packages as a table, and every import of both packages against it."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PACKAGES = """
errors events
_internal
messages
config
kafka metrics
brokers delivery store
alerts testing
dlq
diagnostics replay
pipeline producer
simulate
cli
__main__
"""
"""The packages of producer_core, bottom up. A package imports only from the lines above its own in this table."""

DASHBOARD = """
html
queries
wording
theme
charts
auth
server
components
actions
notebook views
app
"""
"""The same for the dashboard, which imports all of producer_core but its commands."""

DASHBOARD_NAME = "producer_core.dashboard"
"""The folder `dashboard/`, which is linked into producer_core."""

LAZY_FACE = "producer_core"
"""Its imports are names resolved on first use, and the notebook extension, found through an entry point."""


def test_a_package_imports_only_from_packages_below_it():
    wrong = [
        f"{module} imports {target}"
        for module, target in imports("producer_core")
        if package_of(target) != package_of(module) and rank_of(target) >= rank_of(module)
    ]
    assert wrong == []


def test_the_core_reaches_the_dashboard_through_one_module():
    wrong = [
        (module, target)
        for module in modules("producer_core")
        for target in imported(module)
        if target == DASHBOARD_NAME or target.startswith(f"{DASHBOARD_NAME}.")
    ]
    assert wrong == []
    asking = {
        module
        for module in modules("producer_core")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ImportFrom) and any(alias.name == "entry_points" for alias in node.names)
    }
    assert asking == {"producer_core._internal.dashboard_entry"}


def test_an_entry_point_names_what_is_there():
    """The core finds the dashboard through these, so that no import shows it."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for name, target in groups["producer_core.dashboard"].items():
        module, _, attribute = target.partition(":")
        assert module in modules(DASHBOARD_NAME), name
        assert not attribute or hasattr(import_module(module), attribute)


@pytest.mark.parametrize("package", ["producer_core", DASHBOARD_NAME])
def test_imports_at_the_top_of_modules_make_no_circle(package):
    graph = {
        module: {target for target in imported(module, inside_functions=False) if target != module}
        for module in modules(package)
        if module != package
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("package", ["producer_core", DASHBOARD_NAME])
def test_imports_inside_functions_and_for_type_checking_make_no_circle(package):
    graph = {
        module: {target for target in imported_anywhere(module) if target != module}
        for module in modules(package)
        if module != package
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


def test_every_package_has_its_place_in_the_table():
    known = {name for line in PACKAGES.splitlines() for name in line.split()}
    there = {package_of(module) for module in modules("producer_core") if module != LAZY_FACE}
    assert there == known


def test_the_dashboard_is_read_draw_act():
    wrong = [
        f"{module} imports {target}"
        for module, target in imports(DASHBOARD_NAME)
        if target.startswith(f"{DASHBOARD_NAME}.") and dashboard_rank(target) > dashboard_rank(module)
    ]
    assert wrong == []


def test_only_the_transport_and_the_telemetry_publisher_produce_with_the_library():
    """Everybody else would answer for messages that nobody settles."""
    producing = {
        module
        for module in modules("producer_core")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ImportFrom)
        and node.module == "confluent_kafka"
        and any(alias.name == "Producer" for alias in node.names)
    }
    producing -= {"producer_core.kafka.cluster"}  # begins a transaction, to see whether it may; sends nothing
    assert producing <= {
        "producer_core.delivery.transport",
        "producer_core.metrics.telemetry.publisher",
        "producer_core.delivery.exactly_once.transactional_client",
    }


def test_clients_that_only_ask_are_made_in_one_place():
    """Made of a producer's settings they would ask for a producer id, and break where their user may not write."""
    making = {
        module
        for module in modules("producer_core")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("AdminClient", "Consumer")
    }
    making = {module for module in making if not module.startswith("producer_core.brokers.")}  # their own
    asks_nobody = {
        "producer_core._internal.librdkafka"
    }  # has no address: the library checks settings with it
    assert making - {"producer_core.simulate.target_cluster"} - asks_nobody == {"producer_core.kafka.clients"}


def test_nobody_sleeps():
    """Who waits waits on an event, which `stop()` can set, or takes a clock."""
    sleeping = {
        module
        for package in ("producer_core", DASHBOARD_NAME)
        for module in modules(package)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep")
    }
    assert sleeping == set()


# how imports are read


def package_of(module):
    return module.split(".")[1] if "." in module else ""


def rank_of(module):
    if module == LAZY_FACE:
        return -1  # `__version__` only: see `imported`
    return next(
        (rank for rank, line in enumerate(PACKAGES.splitlines()) if package_of(module) in line.split()), 99
    )


def dashboard_rank(module):
    name = [*module.split("."), "", ""][2]
    return next(
        (rank for rank, line in enumerate(DASHBOARD.splitlines()) if name in line.split()), 99 if name else 0
    )


def imports(package):
    return [
        (module, target)
        for module in modules(package)
        if module != LAZY_FACE
        for target in imported(module)
        if target in modules("producer_core") or target in modules(DASHBOARD_NAME)
        if target != module
    ]


@cache
def modules(package):
    """Module name to file."""
    found = {}
    for file in sorted(ROOT.joinpath(*package.split(".")).rglob("*.py")):  # follows no link below it
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@cache
def tree(module):
    package = DASHBOARD_NAME if f"{module}.".startswith(f"{DASHBOARD_NAME}.") else "producer_core"
    return ast.parse(modules(package)[module].read_text())


@cache
def imported(module, *, inside_functions=True):
    """The modules of both packages that a module imports when it runs."""
    return tuple(_imported(module, inside_functions))


def _imported(module, inside_functions):
    for node in nodes(tree(module), inside_functions):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            if ours(node.module or ""):
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found = is_module(inner)
                    assert found or node.module != LAZY_FACE or alias.name == "__version__", (
                        f"{module} imports {alias.name} from the public face"
                    )
                    yield inner if found else node.module
        elif inside_functions and isinstance(node, ast.Constant) and names_a_module(node.value):
            yield node.value  # import_module("…"), or `-m …` of a child process


def imported_anywhere(module):
    """The modules that the import statements of a module name, wherever they are."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_module(alias.name))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if is_module(inner) or is_module(node.module):
                    yield inner if is_module(inner) else node.module


def nodes(node, inside_functions):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from child.orelse
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not inside_functions:
            continue
        yield child
        yield from nodes(child, inside_functions)


def names_a_module(value):
    return value != DASHBOARD_NAME and is_module(value)  # which is also the name of a group of entry points


def is_module(value):
    return (
        isinstance(value, str)
        and (value in modules("producer_core") or value in modules(DASHBOARD_NAME))
        and value != LAZY_FACE
    )


def ours(name):
    return name.split(".")[0] == "producer_core"
