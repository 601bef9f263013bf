"""Provide the operator tasks with a shop whose messages fail on a real Kafka, and count what an operator does on a page."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
import uuid

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from producer_core import ReliableKafkaProducer
from producer_core.config import RetryConfig
from producer_core.dashboard.auth.password import hashed
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.acceptance.browsing import button, drawn
from tests.acceptance.dashboard.test_sign_in import SECRET, command, sign_in
from tests.support import eventually

POLICY = """
[roles]
operator = ["ada"]
approver = ["grace"]

[second_person]
replays_above = 200
"""
LIMIT = 400
"""Bytes of a record batch that the topics of the shop accept at first."""
_TIMEOUT_S = 60


class Shop:
    """A producer on a real broker, with its store. Each failure has a cause that an operator can find and fix."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder, self.path = cluster, folder, folder / "store.duckdb"
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        cluster.create_topic("telemetry", 1)
        self.producer = ReliableKafkaProducer(
            cluster.bootstrap_servers,
            {"delivery.timeout.ms": 15_000, "request.timeout.ms": 10_000, "linger.ms": 0},
            RetryConfig(max_retries=0),
            store=self.path, telemetry_topic="telemetry", ledger=True, application="shop", application_version="1.4.0",
        )  # fmt: skip
        self.dead_letters = DeadLetters(Store.open(self.path))

    def topic(self, name, **config):
        """Create a topic with this start of its name and return the name."""
        topic = f"{name}-{uuid.uuid4().hex[:4]}"
        self.cluster.create_topic(topic, 1, config)
        return topic

    def limit(self, topic, size):
        """Change the largest batch that the topic accepts."""
        entry = ConfigEntry(
            "max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET
        )  # fmt: skip
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for answer in self._admin.incremental_alter_configs([resource]).values():
            answer.result(_TIMEOUT_S)

    def send(self, topic, numbers, *, size=0):
        """Send orders, each of at least `size` bytes, without waiting for them."""
        for number in numbers:
            signature = (
                random.Random(number).randbytes(size // 2).hex()
            )  # random, so that it stays large compressed
            self.producer.send_message(
                topic, {"order": number, "amount": 12.5, "signature": signature}, key=f"order-{number}"
            )

    def settle(self):
        self.producer.flush(_TIMEOUT_S)

    def fail(self, topic, numbers):
        """Send orders that are larger than the topic accepts, and wait until they are dead letters."""
        before = self.pending(topic)
        self.send(topic, numbers, size=4 * LIMIT)
        eventually(lambda: self.pending(topic) == before + len(numbers))

    def hang(self, topic, numbers):
        """Send orders one by one while the broker does not respond, and wait until they are dead letters."""
        before = self.pending(topic)
        self.cluster.pause(1)
        try:
            for number in numbers:
                self.send(topic, [number])
            eventually(lambda: self.pending(topic) == before + len(numbers), timeout=3 * _TIMEOUT_S)
        finally:
            self.cluster.resume(1)
            self.cluster.wait_ready(_TIMEOUT_S)

    def pending(self, topic):
        return self.dead_letters.count(DeadLetterFilter(topic=topic))

    def close(self):
        self.producer.close(10)


def kcat(cluster, topic):
    """Return the values on a topic as kcat reads them with read_committed, in order."""
    words = [
        "kcat",
        "-C",
        "-q",
        "-e",
        "-b",
        cluster.bootstrap_servers,
        "-t",
        topic,
        "-o",
        "beginning",
        "-f",
        "%s\\n",
    ]
    done = subprocess.run(
        [*words, "-X", "isolation.level=read_committed"], capture_output=True, text=True, timeout=120, check=True
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextlib.contextmanager
def dashboard(folder):
    """Run the dashboard with sign-in for ada and grace, and return its address."""
    (folder / ".streamlit").mkdir()
    users = "".join(f'{name} = "{hashed(SECRET)}"\n' for name in ("ada", "grace"))
    (folder / ".streamlit" / "secrets.toml").write_text(f"[dashboard.passwords]\n{users}")
    with command(folder, "--port", "8960") as process:
        yield address_of(process)


@contextlib.contextmanager
def bundle(file, folder):
    """Open an incident bundle with a dashboard of its own, in an empty folder, and return its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "producer_core.cli", "dashboard", "--bundle", str(file), "--port", "8965"],
        cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield address_of(process)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()
        process.stdout.close()


def address_of(process):
    """Return the address that a dashboard command prints."""
    output = []
    while not (found := re.search(r"http://127\.0\.0\.1:\d+", " ".join(output))):
        line = process.stdout.readline()
        assert line, "".join(output)
        output.append(line)
    return f"{found[0]}/"


class Operator:
    """A signed-in user of a page. Counts the clicks, the texts and the seconds of a task."""

    def __init__(self, page, address, name="ada"):
        self.page, self.name = page, name
        page.goto(address)
        sign_in(page, name)
        drawn(page)
        self.begin()

    def begin(self):
        """Start to count and to measure the time."""
        self.clicks = self.texts = 0
        self._seconds, self._resumed = 0.0, time.monotonic()

    def end(self, task):
        """Print what the task took."""
        self.pause()
        print(
            f"TASK {task}, {self.page.viewport_size['width']} px: {self.clicks} clicks, {self.texts} texts, "
            f"{self._seconds:.1f} s",
            file=sys.__stderr__,
        )

    def pause(self):
        """Stop the time, as while a picture is taken."""
        self._seconds += time.monotonic() - self._resumed
        self._resumed = time.monotonic()

    def resume(self):
        self._resumed = time.monotonic()

    def click(self, target):
        """Click an element; a text means the button with this label."""
        self.clicks += 1
        target = button(self.page, target) if isinstance(target, str) else target
        target.first.wait_for()
        eventually(target.first.is_enabled)
        target.first.click()

    def type(self, target, text):
        self.texts += 1
        target.first.fill(text)

    def menu(self, title):
        """Open a page by the menu, which a phone folds."""
        link = self.page.get_by_test_id("stSidebarNavLink" if self.is_on_phone else "stTopNavLink")
        if self.is_on_phone:
            self.click(self.page.get_by_test_id("stExpandSidebarButton"))
        self.click(link.filter(has_text=re.compile(rf"^\s*{title}\s*$")))
        self.page.locator("h1.pc-title", has_text=title).wait_for()
        drawn(self.page)

    def choose(self, label, option):
        """Choose an option of a list."""
        self.click(self.page.get_by_role("combobox", name=re.compile(label)))
        self.click(self.page.get_by_role("option", name=option, exact=True))

    @property
    def is_on_phone(self):
        return self.page.viewport_size["width"] < 600


def pictures(operator, name, *, narrow=False):
    """Save the page, light and dark, if $PRODUCER_CORE_PICTURES names a folder; with `narrow`, also at 390 px."""
    folder = os.environ.get("PRODUCER_CORE_PICTURES")
    if not folder:
        return
    operator.pause()
    page = operator.page
    size = page.viewport_size
    for each in [size, *([{"width": 390, "height": 844}] if narrow else [])]:
        page.set_viewport_size(each)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(1_000)
            page.screenshot(path=f"{folder}/{name}-{each['width']}-{scheme}.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(size)
    operator.resume()
