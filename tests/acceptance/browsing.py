"""Provide the browser tests with a continuously writing producer, the dashboard's server, and common user actions."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import urllib.request
from pathlib import Path

from producer_core import ReliableKafkaProducer
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.support import eventually

PAGES = {
    "Overview": "",
    "Latency": "latency",
    "Errors": "errors",
    "Dead letters": "dead-letters",
    "Replays": "replays",
    "Alerts": "alerts",
    "Fleet": "fleet",
    "Settings": "settings",
}
"""The address of each page by its title."""

TOPICS = (
    *(
        "orders",
        "payments",
        "ledger",
        "hostile",
        "late",
        "shared",
        "pages",
        "linked",
        "slow",
        "keys",
        "killed",
    ),
    *("undone", "group", "again", "cleared", "phone", "keyboard", "oneclick", "edited", "copied"),
)
HOSTILE = (
    '<img src="https://evil.example/x.png" onerror="window.pwned = 1"><script>window.pwned = 1</script>'
    " **bold** [link](https://evil.example/) $x^2$ :material/bolt: ![x](https://evil.example/y.png)"
)
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


class Load:
    """Send messages while a page is open; `fail(topic)` sends messages that the broker rejects."""

    def __init__(self, broker, store):
        self.broker, self.store = broker, store
        self.producer = ReliableKafkaProducer(
            broker.bootstrap_servers, store=store, cluster_id=broker.cluster_id, retry_config=None
        )
        self.dead_letters = DeadLetters(Store.open(store))
        self._stop, self._page_open = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        number = 0
        while not self._stop.wait(0.02):
            self._page_open.wait()
            number += 1
            self.producer.send_message("orders", {"n": number}, key=str(number))

    @contextlib.contextmanager
    def running(self):
        """Send during the block. Otherwise the producer is idle, so that it does not slow down other tests."""
        self._page_open.set()
        try:
            yield self
        finally:
            self._page_open.clear()

    def fail(self, topic, count, value=None, **more):
        self.broker.reject(topic, "POLICY_VIOLATION")
        before = self.pending(topic)
        for number in range(count):
            self.producer.send_message(
                topic, value or {"amount": number}, **{"key": f"{topic}-{number}", **more}
            )
        eventually(lambda: self.pending(topic) >= before + count)  # the load may send to the topic as well

    def pending(self, topic):
        return self.dead_letters.count(DeadLetterFilter(topic=topic))

    def on_topic(self, topic):
        """Return the number of records on the topic, from any sender."""
        from confluent_kafka import Consumer, TopicPartition

        reader = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "count"})
        try:
            return reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
        finally:
            reader.close()

    def close(self):
        self._stop.set()
        self._page_open.set()
        self._thread.join()
        self.producer.close(10)


class Server:
    """Run the dashboard's server as a process that can be killed and restarted at the same address."""

    def __init__(self, store, folder, *, env=None):
        from producer_core.dashboard.server import command

        self.store, self.folder = store, Path(folder)
        self.port = command.free_port(8900)
        self.url = f"http://127.0.0.1:{self.port}/"
        self._env = {**os.environ, **(env or {})}
        self._process = None

    def start(self):
        from producer_core.dashboard.server import command

        with (self.folder / f"log-{self.port}").open("a") as log:
            self._process = subprocess.Popen(
                command.command(self.store, self.port),
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=self._env,
            )  # fmt: skip
        eventually(lambda: is_healthy(self.port), timeout=90)

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self):
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def served(store, folder, **more):
    server = Server(store, folder, **more)
    try:
        server.start()
        yield server
    finally:
        server.end()


def is_healthy(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2) as response:
            return response.status == 200
    except OSError:
        return False


@contextlib.contextmanager
def window(browser, **options):
    """Open a window in its own context and record its requests, failed responses and script errors."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 1000}, **options})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    opened.requested, opened.errors, opened.failed = [], [], []
    opened.on("request", lambda request: opened.requested.append(request.url))
    opened.on("response", lambda one: opened.failed.append(one.url) if one.status >= 400 else None)
    opened.on("pageerror", lambda error: opened.errors.append(str(error)))
    try:
        yield opened
    finally:
        context.close()


def go(page, address):
    """Open an address and wait until the page is drawn."""
    page.goto(address)
    drawn(page)


def drawn(page):
    """Wait until the page is complete: the script is idle, no placeholder is left, and every chart is drawn."""
    page.locator("h1.pc-title").first.wait_for()
    page.wait_for_function(
        """() => !document.querySelector('[data-testid="stSkeleton"]')
            && document.querySelector('[data-testid="stApp"]').dataset.testScriptState !== 'initial'
            && [...document.querySelectorAll('.live-plot')].every(plot => plot.querySelector('.main-svg'))"""
    )


def external_requests(page):
    """Return the requests to hosts other than this one."""
    return [url for url in page.requested if not url.startswith(("http://127.0.0.1", "data:", "blob:"))]


def violations(page, axe):
    """Return the accessibility violations of the page; `axe` is the fixture with axe's script."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [f"{one['id']}: {node['html'][:160]}" for one in found for node in one["nodes"]]


def message(page, words):
    """Wait until a message of the page contains the words."""
    from playwright.sync_api import TimeoutError

    try:
        page.locator(".pc-message").filter(has_text=re.compile(words)).first.wait_for()
    except TimeoutError as error:
        raise AssertionError(f"No message {words!r} on {page.url}:\n{page.inner_text('body')}") from error


def rows(page):
    return page.locator(".pc-dead-letters tbody tr")


def listed(page, count):
    """Return the ids of the dead letters once the page lists `count` of them; before that, rows can move."""
    eventually(lambda: rows(page).count() == count)
    return [row.get_attribute("data-key") for row in rows(page).all()]


def check(page, message_id):
    page.locator(f'.pc-dead-letters tr[data-key="{message_id}"] input').check()


def button(page, name):
    """Return the button with this label, which Streamlit prefixes with the name of the icon."""
    return page.get_by_role("button", name=re.compile(rf"^(\w+\s)?{re.escape(name)}$"))


def replay(page, count):
    """Press Replay, confirm the dry run if there is one, and wait for the result."""
    at_once, dry_run = button(page, f"Replay {count}"), button(page, f"Replay {count} …")
    at_once.or_(dry_run).first.click()
    confirm = button(page, f"Replay {count} now")
    result = page.locator(".pc-message").filter(has_text=re.compile(r"Replayed \d+ of"))
    confirm.or_(result).first.wait_for()
    if confirm.is_visible():
        eventually(confirm.is_enabled)
        confirm.click()
    result.first.wait_for()
