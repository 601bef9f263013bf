"""Provide the service tests with Spark, a producer, the dashboard's server and a browser, each started once."""

from __future__ import annotations

import os

import pytest

from tests.services import browsing

# Spark's JVM spends most of its first minute compiling; for jobs of seconds the C1 compiler alone is faster.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark():
    """Return one Spark session for all tests, which no test stops."""
    from pyspark import SparkContext

    from producer_core.pipeline.session import open_session

    session = open_session(name="tests", master="local[2,4]", driver_memory="1g")
    gateway = SparkContext._gateway
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # otherwise its JVM outlives the tests
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def state_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dashboard")


@pytest.fixture(scope="session")
def load(state_folder):
    """Return a producer on an embedded broker with its store."""
    from producer_core.brokers import embedded

    with embedded.start(brokers=1, topics=dict.fromkeys(browsing.TOPICS, 1)) as broker:
        running = browsing.Load(broker, state_folder / "store.duckdb")
        yield running
        running.close()


@pytest.fixture(scope="session")
def server(load, state_folder):
    """Return the dashboard's server for the store of `load`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(state_folder / "state"))
        with browsing.served(load.store, state_folder) as started:
            yield started


@pytest.fixture(scope="session")
def address(server):
    return server.url


@pytest.fixture(scope="module")
def browser(chromium):
    """Return a browser for one module. Playwright allows one at a time, and some modules start their own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=browsing.OPTIONS)
        yield started
        started.close()


@pytest.fixture
def page(browser, load):
    """Return a window for one test, during which the producer writes."""
    with load.running(), browsing.window(browser) as opened:
        yield opened
