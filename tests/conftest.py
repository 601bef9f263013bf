"""Fixtures for the services that the tests use, each started once, and a summary of the tests per service."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import eventually

# Property tests run without a deadline, because two busy cores are slow, and with the same examples in every run, so
# that a failure is caused by the change and not by chance. `--hypothesis-profile=explore` tries many other examples.
settings.register_profile(
    "ours", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("ours"), derandomize=False, max_examples=2000)
settings.load_profile("ours")

pytest_plugins = ["tests.fixtures.services", "tests.fixtures.monitoring", "tests.fixtures.registry_server"]

SERVICES = (
    "kafka", "kafka3", "redis", "schema_registry", "spark", "prometheus", "alertmanager", "browser", "jupyter",
)  # fmt: skip
REQUIRED = bool(os.environ.get("PRODUCER_CORE_REQUIRE_SERVICES"))
_FIRST_TO_LAST = (
    "kafka3", "spark", "kafka", None, "prometheus", "alertmanager", "redis", "schema_registry", "jupyter", "browser",
)  # fmt: skip
ORDER = {name: index for index, name in enumerate(_FIRST_TO_LAST)}
"""The slowest services start first, so that all workers end at about the same time."""


def pytest_configure():
    """Restore SIGINT: a shell ignores it for background jobs, and child processes of the tests would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


MARK = f"PRODUCER_CORE_TEST_RUN={os.getpid()}-{uuid.uuid4().hex}"
"""Environment variable of every process that a test starts, detached or not, to recognise them at the end."""

os.environ.update([MARK.split("=")])
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it in its workers, and tables would use it as their width


EMPTY_STORES = {}
"""The bytes of an empty store, by the code that created it."""


def service_of(item):
    return next((name for name in SERVICES if item.get_closest_marker(name)), None)


def group_of(item):
    """Return the group of a test: the tests that share a service, so that it starts once, or the tests of one module.

    Some modules start brokers of their own, and each module of browser tests starts a dashboard.
    """
    service = service_of(item)
    starts_its_own = service == "browser" or (
        service in ("kafka", "kafka3") and service not in item.fixturenames
    )
    return item.path.stem if service is None or starts_its_own else service


def pytest_collection_modifyitems(config, items):
    """Run the tests of a group in sequence in one worker, long tests first."""
    grouped = config.getoption("loadgroup", default=False)  # in a worker of `--dist loadgroup`
    items.sort(key=lambda item: (ORDER[service_of(item)], item.get_closest_marker("slow") is None))
    for item in items:
        service = service_of(item)
        item.user_properties.append(("service", service or "none"))
        if grouped:
            # What the marker xdist_group does. pytest-xdist 3.8 sets an attribute that pytest 9.2 no longer reads.
            item._id = type(item._id).parse(f"{item.nodeid}@{group_of(item)}")
        if item.get_closest_marker("spark"):  # py4j leaves its sockets to the garbage collector
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture
def store(tmp_path):
    """An open store of the test's own."""
    from producer_core.store import Store

    opened = Store.open(tmp_path / "store.duckdb")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def log_queue():
    """The log queue, without the lines and causes of earlier tests: each cause is written at most once a minute."""
    from producer_core._internal.log_queue import QUEUE

    QUEUE.drain(5)
    with QUEUE._changed:
        QUEUE._causes.clear()
    return QUEUE


class WrittenLog:
    """pytest's caplog, read after the queued lines are written."""

    def __init__(self, caplog, queue):
        self._caplog, self._queue = caplog, queue

    def __getattr__(self, name):
        self._queue.drain(10)
        return getattr(self._caplog, name)


@pytest.fixture
def caplog(caplog, log_queue):
    return WrittenLog(caplog, log_queue)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    """Remove the group from the name of a test, so that `--last-failed` finds the test. A worker still needs it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    name, at, group = report.nodeid.rpartition("@")
    if at and "]" not in group:
        report.nodeid = name


def reported_service(report):
    return dict(getattr(report, "user_properties", [])).get("service", "none")


def pytest_terminal_summary(terminalreporter):
    counts = Counter()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            counts[reported_service(report), outcome] += 1
    terminalreporter.section("tests by service")
    for service in ("none", *SERVICES):
        row = {outcome: counts[service, outcome] for outcome in ("passed", "failed", "error", "skipped")}
        if any(row.values()):
            terminalreporter.line(
                f"{service:12} " + ", ".join(f"{count} {word}" for word, count in row.items() if count)
            )


@pytest.hookimpl(trylast=True)  # after the services have been stopped
def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if remaining := remaining_processes():
        print(f"\nprocesses that outlived the tests: {remaining}", file=sys.__stderr__)
    skipped = [] if reporter is None else reporter.stats.get("skipped", [])
    if REQUIRED and exitstatus == 0 and any(reported_service(report) != "none" for report in skipped):
        session.exitstatus = 1
        reporter.line("a skipped service test counts as a failure here", red=True)


def remaining_processes(timeout=10):
    """Return the processes of the tests that are still running after a grace period, by id. Linux only."""
    try:
        eventually(lambda: not marked_processes(), timeout)
    except AssertionError:
        return marked_processes()
    return {}


def marked_processes():
    """Return the processes whose environment has MARK, with their commands, by id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if int(folder.name) == os.getpid() or MARK.encode() not in (folder / "environ").read_bytes():
                continue
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "multiprocessing" not in command:  # Python's own helpers end with this process
                found[int(folder.name)] = command[:120]
    return found


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory, monkeypatch):
    """Keep tests away from the user's own store and broker state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    monkeypatch.delenv("PRODUCER_CORE_STORE", raising=False)


@pytest.fixture(autouse=True)
def patient_reads(monkeypatch):
    """Extend the 2 s limit of store reads, so that a loaded machine does not fail tests."""
    monkeypatch.setattr("producer_core.store.connection_pool.READ_LIMIT", 60.0)


@pytest.fixture(autouse=True)
def copied_stores(monkeypatch):
    """Copy new stores from one that the migrations created in this process; migrating takes 0.3 s on a loaded machine.

    A test that changes the migrations runs them.
    """
    from producer_core.store import migrate
    from producer_core.store import store as module

    known = module.migrate, migrate.migrations, module.duckdb
    fill = module.Store._fill

    def copy_or_fill(self, draft):
        if (module.migrate, migrate.migrations, module.duckdb) != known:
            fill(self, draft)
        elif known not in EMPTY_STORES:
            fill(self, draft)
            EMPTY_STORES[known] = draft.read_bytes()
        else:
            draft.write_bytes(EMPTY_STORES[known])
            with self._pool.attached(draft, write=True) as connection:
                connection.execute("UPDATE schema_migrations SET applied_at = ?", [self._clock()])

    monkeypatch.setattr(module.Store, "_fill", copy_or_fill)


@pytest.fixture(autouse=True, scope="session")
def components_read_once():
    """Cache the metadata of all installed packages, which Streamlit reads for each page that a test opens."""
    if not find_spec("streamlit"):
        return
    from streamlit.components.v2 import manifest_scanner

    manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


def needs(tool, package):
    path = shutil.which(tool) or shutil.which(tool, path="/usr/sbin")  # not in every user's PATH
    if path is None and REQUIRED:
        pytest.fail(f"{tool} is missing: apt-get install {package}")
    if path is None:
        pytest.skip(f"{tool} is missing: apt-get install {package}")
    return path


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """One node of the real Apache Kafka."""
    from producer_core.brokers import kafka as real

    needs("java", "openjdk-17-jre-headless")
    cleaner = {"log.cleaner.backoff.ms": "200"}  # a compacted topic is cleaned while a test waits
    with real.start(nodes=1, folder=tmp_path_factory.mktemp("kafka") / "one", properties=cleaner) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka3(tmp_path_factory):
    """Three nodes of the real Apache Kafka, with three replicas and a minimum of two in sync."""
    from producer_core.brokers import kafka as real

    needs("java", "openjdk-17-jre-headless")
    with real.start(nodes=3, folder=tmp_path_factory.mktemp("kafka") / "three") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def schema_registry():
    """A real schema registry. Tests share it, so each uses topics of its own."""
    from producer_core.brokers import schema_registry as real

    needs("java", "openjdk-17-jre-headless")
    with real.start() as registry:
        yield registry


@pytest.fixture(scope="session")
def kcat():
    return needs("kcat", "kcat")


@pytest.fixture(scope="session")
def redis_server():
    """The port of a real redis-server."""
    binary = needs("redis-server", "redis-server")
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: answers(port))
        yield port
    finally:
        process.terminate()
        process.wait(10)


def answers(port):
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def chromium():
    return needs("chromium", "chromium fonts-dejavu-core fonts-liberation")
