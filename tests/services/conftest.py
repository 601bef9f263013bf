"""What the browser tests share; each is started once, and rests while no page is open."""

from __future__ import annotations

import os

import pytest

from tests.services import browsing

# A cold JVM of Spark spends most of its minute compiling: for jobs of seconds its quick compiler alone is better.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark():
    """One Spark on this machine, in this process; a test never stops it."""
    from pyspark import SparkContext

    from producer_core.pipeline.session import open_session

    session = open_session(name="tests", master="local[2,4]", driver_memory="1g")
    gateway = SparkContext._gateway
    yield session
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # its JVM would outlive the tests
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def state_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dashboard")


@pytest.fixture(scope="session")
def load(state_folder):
    """A producer on an embedded broker, and its store."""
    from producer_core.brokers import embedded

    with embedded.start(brokers=1, topics=dict.fromkeys(browsing.TOPICS, 1)) as broker:
        running = browsing.Load(broker, state_folder / "store.duckdb")
        yield running
        running.close()


@pytest.fixture(scope="session")
def server(load, state_folder):
    """The dashboard over that store."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(state_folder / "state"))
        with browsing.served(load.store, state_folder) as started:
            yield started


@pytest.fixture(scope="session")
def address(server):
    return server.url


@pytest.fixture(scope="module")
def browser(chromium):
    """Of one module: Playwright allows one at a time, and other modules bring their own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=browsing.OPTIONS)
        yield started
        started.close()


@pytest.fixture
def page(browser, load):
    """A window of this test alone, while the producer writes."""
    with load.going(), browsing.window(browser) as opened:
        yield opened
