"""Imports go only downward: a table with the order of the packages, and a check of every import against it."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module

import pytest

from tests.support import ROOT

PACKAGES = """
errors events
_internal
messages native
config
kafka metrics
brokers delivery store
roles
alerts testing
dlq
diagnostics replay
pipeline producer
prometheus
simulate
cli
__main__
"""
"""The packages of producer_core, bottom up. A package may import only from the lines above its own in this table."""

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
"""The packages of the dashboard, which may import all of producer_core except its commands."""

DASHBOARD_NAME = "producer_core.dashboard"
"""The directory `dashboard/`, which is linked into producer_core."""

LAZY_MODULE = "producer_core"
"""Modules whose imports are resolved on first use; the notebook extension is found through an entry point."""


@pytest.mark.slow
def test_a_package_imports_only_from_packages_below_it():
    violations = [
        f"{module} imports {target}"
        for module, target in imports("producer_core")
        if package_of(target) != package_of(module) and rank_of(target) >= rank_of(module)
    ]
    assert violations == []


@pytest.mark.slow
def test_the_core_reaches_the_dashboard_through_one_module():
    violations = [
        (module, target)
        for module in modules("producer_core")
        for target in imported(module)
        if target == DASHBOARD_NAME or target.startswith(f"{DASHBOARD_NAME}.")
    ]
    assert violations == []
    asking = {
        module
        for module in modules("producer_core")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ImportFrom) and any(alias.name == "entry_points" for alias in node.names)
    }
    exporters = "producer_core.producer.environment_tracing"  # asks for OpenTelemetry's exporters only
    assert asking == {"producer_core._internal.dashboard_entry", exporters}


def test_every_entry_point_names_an_existing_object():
    """The core loads the dashboard through entry points, which no import shows."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for name, target in groups["producer_core.dashboard"].items():
        module, _, attribute = target.partition(":")
        assert module in modules(DASHBOARD_NAME), name
        assert not attribute or hasattr(import_module(module), attribute)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["producer_core", DASHBOARD_NAME])
def test_module_level_imports_have_no_cycle(package):
    graph = {
        module: {target for target in imported(module, inside_functions=False) if target != module}
        for module in modules(package)
        if module != package
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


@pytest.mark.slow
@pytest.mark.parametrize("package", ["producer_core", DASHBOARD_NAME])
def test_function_level_and_type_checking_imports_have_no_cycle(package):
    graph = {
        module: {target for target in imported_anywhere(module) if target != module}
        for module in modules(package)
        if module != package
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


def test_every_package_is_in_the_table():
    known = {name for line in PACKAGES.splitlines() for name in line.split()}
    present = {package_of(module) for module in modules("producer_core") if module != LAZY_MODULE}
    assert present == known


@pytest.mark.slow
def test_a_dashboard_package_imports_only_from_packages_below_it():
    violations = [
        f"{module} imports {target}"
        for module, target in imports(DASHBOARD_NAME)
        if target.startswith(f"{DASHBOARD_NAME}.") and dashboard_rank(target) > dashboard_rank(module)
    ]
    assert violations == []


@pytest.mark.slow
def test_only_the_transport_and_the_telemetry_publisher_produce():
    """Messages produced elsewhere would not be settled."""
    producing = {
        module
        for module in modules("producer_core")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ImportFrom)
        and node.module in ("confluent_kafka", "producer_core._internal.librdkafka")
        and any(alias.name == "Producer" for alias in node.names)
    }
    # begins a transaction to check the permission; sends nothing
    producing -= {"producer_core.kafka.cluster"}
    assert producing == {
        "producer_core.delivery.sending_client",  # creates the clients of the next three
        "producer_core.delivery.transport",
        "producer_core.delivery.exactly_once.native_client",
        "producer_core.delivery.exactly_once.transactional_client",
        "producer_core.metrics.telemetry.publisher",
    }


@pytest.mark.slow
def test_admin_and_consumer_clients_are_created_in_one_module():
    """With a producer's settings they would request a producer id, and fail without the WRITE permission."""
    creating = {
        module
        for module in modules("producer_core")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call)
        for created in (node.func, *node.args)  # new_client(Consumer, settings) creates one too
        if isinstance(created, ast.Name) and created.id in ("AdminClient", "Consumer")
    }
    # test brokers
    creating = {module for module in creating if not module.startswith("producer_core.brokers.")}
    # has no address: librdkafka validates settings with it
    without_address = {"producer_core._internal.librdkafka"}
    assert creating - {"producer_core.simulate.target_cluster"} - without_address == {
        "producer_core.kafka.clients"
    }


@pytest.mark.slow
def test_no_module_sleeps():
    """A wait must be on an event, which `stop()` can set, or take a clock."""
    sleeping = {
        module
        for package in ("producer_core", DASHBOARD_NAME)
        for module in modules(package)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep")
    }
    assert sleeping == set()


@pytest.mark.slow
def test_files_are_locked_in_one_module():
    """A lock taken elsewhere would be kept by a forked child."""
    locking = {
        module
        for package in ("producer_core", DASHBOARD_NAME)
        for module in modules(package)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Import) and any(alias.name == "fcntl" for alias in node.names)
    }
    assert locking == {"producer_core._internal.file_lock"}


# reading imports


def package_of(module):
    return module.split(".")[1] if "." in module else ""


def rank_of(module):
    if module == LAZY_MODULE:
        return -1  # only `__version__`: see `imported`
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
        if module != LAZY_MODULE
        for target in imported(module)
        if target in modules("producer_core") or target in modules(DASHBOARD_NAME)
        if target != module
    ]


@cache
def modules(package):
    """Return a dict of module names and files."""
    found = {}
    for file in sorted(ROOT.joinpath(*package.split(".")).rglob("*.py")):  # does not follow links
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@cache
def tree(module):
    package = DASHBOARD_NAME if f"{module}.".startswith(f"{DASHBOARD_NAME}.") else "producer_core"
    return ast.parse(modules(package)[module].read_text())


@cache
def imported(module, *, inside_functions=True):
    """Return the modules of both packages that a module imports when it runs."""
    return tuple(_imported(module, inside_functions))


def _imported(module, inside_functions):
    for node in nodes(tree(module), inside_functions):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if in_project(alias.name))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            if in_project(node.module or ""):
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found = is_module(inner)
                    assert found or node.module != LAZY_MODULE or alias.name == "__version__", (
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
    return value != DASHBOARD_NAME and is_module(value)  # the name of an entry point group as well


def is_module(value):
    return (
        isinstance(value, str)
        and (value in modules("producer_core") or value in modules(DASHBOARD_NAME))
        and value != LAZY_MODULE
    )


def in_project(name):
    return name.split(".")[0] == "producer_core"
