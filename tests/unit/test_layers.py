"""Imports go downward only: the order of the packages as a table, and every import of both packages against it."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
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

DASHBOARD = {0: "data figures", 1: "actions", 2: "views notebook", 3: "app"}
"""The same for dashboard, which may import all of producer_core. What is not named may be used by everyone."""

LAZY_FACE = "producer_core"
"""Its imports are names resolved on first use, and the notebook extension, found through an entry point."""


def test_a_package_imports_only_from_packages_below_it():
    wrong = [
        f"{module} imports {target}"
        for module, target in imports("producer_core")
        if package_of(target) != package_of(module) and rank_of(target) >= rank_of(module)
    ]
    assert wrong == []


def test_no_module_of_the_core_imports_the_dashboard():
    wrong = [
        (module, target)
        for module in modules("producer_core")
        for target in imported(module)
        if target == "dashboard" or target.startswith("dashboard.")
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["producer_core", "dashboard"])
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


def test_every_package_has_its_place_in_the_table():
    known = {name for line in PACKAGES.splitlines() for name in line.split()}
    there = {package_of(module) for module in modules("producer_core") if module != LAZY_FACE}
    assert there == known


def test_the_dashboard_is_read_draw_act():
    wrong = [
        f"{module} imports {target}"
        for module, target in imports("dashboard")
        if target.startswith("dashboard.") and dashboard_layer(target) > dashboard_layer(module)
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
        for package in ("producer_core", "dashboard")
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


def dashboard_layer(module):
    name = [*module.split("."), ""][1]
    return next((layer for layer, names in DASHBOARD.items() if name in names.split()), 0)


def imports(package):
    return [
        (module, target)
        for module in modules(package)
        if module != LAZY_FACE
        for target in imported(module)
        if target in modules("producer_core") or target in modules("dashboard")
        if target != module
    ]


@cache
def modules(package):
    """Module name to file."""
    found = {}
    for file in sorted((ROOT / package).rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@cache
def tree(module):
    return ast.parse(modules(module.split(".")[0])[module].read_text())


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
                    is_module = inner in modules("producer_core") or inner in modules("dashboard")
                    assert is_module or node.module != LAZY_FACE or alias.name == "__version__", (
                        f"{module} imports {alias.name} from the public face"
                    )
                    yield inner if is_module else node.module
        elif inside_functions and isinstance(node, ast.Constant) and isinstance(node.value, str):
            # import_module("…"), `-m …` of a child process
            if "." in node.value and ours(node.value):
                if node.value in modules("producer_core") or node.value in modules("dashboard"):
                    yield node.value


def nodes(node, inside_functions):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from child.orelse
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not inside_functions:
            continue
        yield child
        yield from nodes(child, inside_functions)


def ours(name):
    return name.split(".")[0] in ("producer_core", "dashboard")
