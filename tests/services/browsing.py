"""What the browser tests share: a producer that writes all the time, the dashboard's server, and what a person does."""

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
"""Every page by its title, with its address."""

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
    *("undone", "group", "again", "cleared", "phone"),
)
HOSTILE = (
    '<img src="https://evil.example/x.png" onerror="window.pwned = 1"><script>window.pwned = 1</script>'
    " **bold** [link](https://evil.example/) $x^2$ :material/bolt: ![x](https://evil.example/y.png)"
)
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]


class Load:
    """A producer that sends while a page is looked at; `fail(topic)` sends what the broker refuses."""

    def __init__(self, broker, store):
        self.broker, self.store = broker, store
        self.producer = ReliableKafkaProducer(
            broker.bootstrap_servers, store=store, cluster_id=broker.cluster_id, retry_config=None
        )
        self.dead_letters = DeadLetters(Store.open(store))
        self._stop, self._looked_at = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        number = 0
        while not self._stop.wait(0.02):
            self._looked_at.wait()
            number += 1
            self.producer.send_message("orders", {"n": number}, key=str(number))

    @contextlib.contextmanager
    def going(self):
        """Only while somebody looks: the tests of other services should not share the machine with it."""
        self._looked_at.set()
        try:
            yield self
        finally:
            self._looked_at.clear()

    def fail(self, topic, count, value=None, **more):
        self.broker.reject(topic, "POLICY_VIOLATION")
        before = self.waiting(topic)
        for number in range(count):
            self.producer.send_message(
                topic, value or {"amount": number}, **{"key": f"{topic}-{number}", **more}
            )
        eventually(lambda: self.waiting(topic) >= before + count)  # the load itself may go there too

    def waiting(self, topic):
        return self.dead_letters.count(DeadLetterFilter(topic=topic))

    def on_topic(self, topic):
        """How many records are on the topic, whoever sent them."""
        from confluent_kafka import Consumer, TopicPartition

        reader = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "count"})
        try:
            return reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
        finally:
            reader.close()

    def close(self):
        self._stop.set()
        self._looked_at.set()
        self._thread.join()
        self.producer.close(10)


class Server:
    """The dashboard's server as a process; it can be killed and started again at the same address."""

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
        eventually(lambda: answers(self.port), timeout=90)

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self):
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()

    @property
    def said(self):
        return (self.folder / f"log-{self.port}").read_text()


@contextlib.contextmanager
def served(store, folder, **more):
    server = Server(store, folder, **more)
    try:
        server.start()
        yield server
    finally:
        server.end()


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


@contextlib.contextmanager
def window(browser, **look):
    """A browser window of its own; what it asked for and what went wrong in it."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 1000}, **look})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    opened.asked, opened.wrong, opened.refused = [], [], []
    opened.on("request", lambda request: opened.asked.append(request.url))
    opened.on("response", lambda said: opened.refused.append(said.url) if said.status >= 400 else None)
    opened.on("pageerror", lambda error: opened.wrong.append(str(error)))
    try:
        yield opened
    finally:
        context.close()


def go(page, address):
    """Open an address and wait until the page stands."""
    page.goto(address)
    stands(page)


def stands(page):
    """Drawn to its end: the script is idle, no placeholder is left, and every chart has its picture."""
    page.locator("h1.pc-title").first.wait_for()
    page.wait_for_function(
        """() => !document.querySelector('[data-testid="stSkeleton"]')
            && document.querySelector('[data-testid="stApp"]').dataset.testScriptState !== 'initial'
            && [...document.querySelectorAll('.live-plot')].every(plot => plot.querySelector('.main-svg'))"""
    )


def outside(page):
    """What was asked of anybody else."""
    return [url for url in page.asked if not url.startswith(("http://127.0.0.1", "data:", "blob:"))]


def says(page, words):
    page.locator(".pc-say").filter(has_text=re.compile(words)).first.wait_for()


def rows(page):
    return page.locator(".pc-letters tbody tr")


def listed(page, count):
    """The ids of the dead letters, once the page shows all that wait: until then a click may hit a row that moves."""
    eventually(lambda: rows(page).count() == count)
    return [row.get_attribute("data-id") for row in rows(page).all()]


def check(page, message_id):
    page.locator(f'.pc-letters tr[data-id="{message_id}"] input').check()


def button(page, name):
    """By its words; Streamlit puts the name of the icon before them."""
    return page.get_by_role("button", name=re.compile(rf"^(\w+\s)?{re.escape(name)}$"))


def replay(page, count):
    """Press Replay; where the dry run comes first, say yes to it."""
    at_once, first = button(page, f"Replay {count}"), button(page, f"Replay {count} …")
    at_once.or_(first).first.click()
    sure = button(page, f"Replay {count} now")
    over = page.locator(".pc-say").filter(has_text=re.compile(r"Replayed \d+ of"))
    sure.or_(over).first.wait_for()
    if sure.is_visible():
        eventually(sure.is_enabled)
        sure.click()
    over.first.wait_for()
