"""The dashboard in a real Chromium, over a store that a real producer writes at the same time."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
import urllib.request

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.support import eventually

pytestmark = pytest.mark.browser

HOSTILE = '<img src="https://evil.example/x.png" onerror="window.pwned = 1"><script>window.pwned = 1</script> **bold** $x^2$'


class Load:
    """A producer that never rests; `fail(topic)` sends a message there that the broker refuses."""

    def __init__(self, broker, store):
        self.broker, self.store = broker, store
        self.producer = ReliableKafkaProducer(
            broker.bootstrap_servers, store=store, cluster_id=broker.cluster_id, retry_config=None
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.letters = DeadLetters(Store.open(store))

    def _run(self):
        number = 0
        while not self._stop.wait(0.02):
            number += 1
            self.producer.send_message("orders", {"n": number}, key=str(number))

    def fail(self, topic, count, value=None):
        self.broker.reject(topic, "POLICY_VIOLATION")
        before = self.waiting(topic)
        for number in range(count):
            self.producer.send_message(topic, value or {"amount": number}, key=f"{topic}-{number}")
        eventually(lambda: self.waiting(topic) == before + count, timeout=60)

    def waiting(self, topic):
        return self.letters.count(DeadLetterFilter(topic=topic))

    def close(self):
        self._stop.set()
        self._thread.join()
        self.producer.close(10)


@pytest.fixture(scope="module")
def state_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dashboard")


@pytest.fixture(scope="module")
def load(state_folder):
    topics = {"orders": 2, "payments": 2, "ledger": 2, "hostile": 1, "late": 1}
    with embedded.start(brokers=1, topics=topics) as broker:
        running = Load(broker, state_folder / "store.duckdb")
        yield running
        running.close()


@contextlib.contextmanager
def served(store, state_folder):
    serve = pytest.importorskip("dashboard.serve")
    port = serve.free_port(8900)
    log = (state_folder / f"log-{port}").open("w")
    server = subprocess.Popen(
        serve.command(store, port), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
    )
    try:
        eventually(lambda: answers(port), timeout=60)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(5)
        server.kill()
        server.wait()
        log.close()


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def started(store, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "producer_core.cli", "dashboard", "--store", str(store), *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_the_command_takes_the_next_port_says_so_and_ends_at_once(address, load, state_folder):
    taken = re.search(r":(\d+)/", address)[1]
    process = started(load.store, "--port", taken)
    try:
        assert process.stdout.readline().startswith(f"Port {taken} is taken; using ")
        url = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert answers(url[1])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not answers(url[1])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_command_does_not_listen_for_other_machines(state_folder):
    process = started(state_folder / "none.duckdb", "--address", "0.0.0.0")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "has no passwords yet, so it does not listen on 0.0.0.0" in said


@pytest.fixture(scope="module")
def address(load, state_folder):
    with served(load.store, state_folder) as url:
        yield url


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
        started = playwright.chromium.launch(executable_path=chromium, args=options)
        yield started
        started.close()


@pytest.fixture
def page(browser, address):
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    opened.asked = []
    opened.on("request", lambda request: opened.asked.append(request.url))
    opened.goto(address)
    opened.locator(".live-plot .main-svg").first.wait_for()
    yield opened
    context.close()


def tile(page, label):
    return (
        page.locator('[data-testid="stMetric"]')
        .filter(has_text=label)
        .locator('[data-testid="stMetricValue"]')
    )


def says(page, words):
    page.locator(".pc-say").filter(has_text=re.compile(words)).first.wait_for()


def choose(page, label, option):
    """Opened again where a topic that is new to the page has just redrawn the list of choices."""
    from playwright.sync_api import TimeoutError

    offered = page.get_by_role("option", name=option, exact=True)

    def opened():
        if not offered.is_visible():
            page.get_by_role("combobox", name=label).click()
        with contextlib.suppress(TimeoutError):
            offered.click(timeout=3_000)
            return True

    eventually(opened, timeout=60)
    row = page.locator(".pc-letters tbody tr")
    eventually(lambda: (texts := row.all_inner_texts()) and all(option in text for text in texts), timeout=60)


def listed(page, load, topic):
    """The ids of the letters, once the page shows all that wait: until then a click may hit a row that moves."""
    rows = page.locator(".pc-letters tbody tr")
    eventually(lambda: rows.count() == load.waiting(topic), timeout=60)
    return [row.get_attribute("data-id") for row in rows.all()]


def check(page, message_id):
    page.locator(f'.pc-letters tr[data-id="{message_id}"] input').check()


def button(page, name):
    return page.get_by_role("button", name=re.compile(f"^\\W*(replay|archive|undo)?\\W*{name}$"))


def test_numbers_move_by_themselves_and_nothing_is_asked_of_the_outside(page):
    says(page, "Delivering")
    page.get_by_text("Data is live").wait_for()
    first = tile(page, "Throughput").inner_text()
    eventually(lambda: tile(page, "Throughput").inner_text() != first, timeout=60)
    assert tile(page, "Connection").inner_text() == "connected"
    outside = [url for url in page.asked if not url.startswith(("http://127.0.0.1", "data:", "blob:"))]
    assert outside == []


def test_a_failing_topics_dead_letters_appear_within_seconds_and_the_sentence_names_it(load, page):
    load.fail("payments", 5)
    page.locator(".pc-letters tbody tr").filter(has_text="payments").first.wait_for()
    says(page, "failed in the last 15 min, all on payments: a policy of the broker forbids this")


def test_zoom_and_the_charts_themselves_survive_refreshes(page):
    chart = page.locator(".live-plot").nth(1)
    chart.evaluate("plot => { plot.marked = true }")
    shown = "plot => plot._fullLayout.xaxis.range.map(String)"
    whole = chart.evaluate(shown)
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] * 0.5, steps=8)
    page.mouse.up()
    since = "plot => new Date(plot._fullLayout.xaxis.range[0]).getTime()"
    zoomed = eventually(lambda: (now := chart.evaluate(shown)) != whole and now, timeout=60)
    since_zoomed = chart.evaluate(since)
    points = "plot => String(plot.data[0].y.at(-1)) + plot.data[0].x.at(-1)"
    for _ in range(2):
        before = chart.evaluate(points)
        eventually(lambda before=before: chart.evaluate(points) != before, timeout=60)
    assert chart.evaluate(shown) == zoomed
    assert chart.evaluate("plot => plot.marked")
    page.mouse.dblclick(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    eventually(lambda: chart.evaluate(since) < since_zoomed, timeout=60)


def test_nothing_fades_while_the_page_refreshes(page):
    page.evaluate(
        """() => { window.faintest = 1; const look = () => {
            for (const part of document.querySelectorAll('[data-stale="true"]'))
                window.faintest = Math.min(window.faintest, +getComputedStyle(part).opacity)
            requestAnimationFrame(look) }; look() }"""
    )
    for _ in range(3):
        before = tile(page, "Throughput").inner_text()
        eventually(lambda before=before: tile(page, "Throughput").inner_text() != before, timeout=60)
    assert page.evaluate("window.faintest") == 1


def test_two_dashboards_on_one_store_see_each_others_acts(load, page, browser, state_folder):
    load.fail("late", 2)
    choose(page, "Topic", "late")
    with served(load.store, state_folder) as second:
        context = browser.new_context()
        other = context.new_page()
        other.goto(f"{second}?topic=late")
        rows = other.locator(".pc-letters tbody tr")
        rows.first.wait_for(timeout=60_000)
        chosen = listed(page, load, "late")[0]
        check(page, chosen)
        button(page, "Clear 1").click()
        says(page, "Archived 1 ")
        other.locator(f'.pc-letters tr[data-id="{chosen}"]').wait_for(state="detached", timeout=60_000)
        context.close()


def test_replay_empties_a_topic_once_its_fault_is_over(load, page):
    load.fail("payments", 1)
    choose(page, "Topic", "payments")
    load.broker.accept("payments")
    count = load.waiting("payments")
    button(page, f"Replay {count}").click()
    sure = page.get_by_role("button", name=f"Replay {count} now")
    done = page.locator(".pc-say").filter(has_text=re.compile(rf"Replayed \d+ of {count}"))
    sure.or_(done).first.wait_for()
    if sure.is_visible():
        sure.click()
    done.wait_for()
    eventually(lambda: load.waiting("payments") == 0, timeout=60)
    page.get_by_text("None match").first.wait_for()


def test_a_topic_that_still_rejects_says_how_many_failed_again(load, page):
    load.fail("ledger", 3)
    choose(page, "Topic", "ledger")
    button(page, "Replay 3").click()
    sure = page.get_by_role("button", name="Replay 3 now")
    done = page.locator(".pc-say").filter(has_text="3 failed again: Broker: Policy violation")
    sure.or_(done).first.wait_for()
    if sure.is_visible():
        sure.click()
    done.wait_for()
    assert load.waiting("ledger") == 3


def test_clear_archives_what_is_selected_and_undo_brings_it_back(load, page):
    load.fail("ledger", 1)
    choose(page, "Topic", "ledger")
    count = load.waiting("ledger")
    check(page, listed(page, load, "ledger")[1])
    button(page, "Clear 1").click()
    says(page, "Archived 1 ")
    assert load.waiting("ledger") == count - 1
    page.get_by_role("button", name="Undo").click()
    eventually(lambda: load.waiting("ledger") == count, timeout=60)
    button(page, f"Clear {count}").wait_for()


def test_a_selection_means_the_same_letters_while_new_ones_arrive(load, page):
    load.fail("late", 2)
    choose(page, "Topic", "late")
    chosen = listed(page, load, "late")[1]
    check(page, chosen)
    button(page, "Clear 1").wait_for()
    load.fail("late", 3)
    assert chosen in listed(page, load, "late")[3:]
    button(page, "Clear 1").click()
    says(page, "Archived 1 ")
    assert load.letters.get(chosen).state == "archived"


def test_a_hostile_payload_is_text_and_secrets_are_masked(load, page):
    load.fail("hostile", 1, {"comment": HOSTILE, "password": "hunter2", "email": "ada@example.com"})
    choose(page, "Topic", "hostile")
    page.locator(".pc-letters .pc-look").first.click()
    page.get_by_text("Inside the letter").wait_for()
    code = page.locator('[data-testid="stCode"]').filter(has_text="comment").inner_text()
    assert "<script>" in code and "**bold**" in code
    assert "hunter2" not in page.content() and "ada@example.com" not in page.content()
    assert page.evaluate("window.pwned") is None
    assert not [url for url in page.asked if "evil.example" in url]


def test_the_time_range_is_in_the_address_and_the_address_opens_it(page):
    page.get_by_role("radio", name="1 hour").or_(page.get_by_text("1 hour", exact=True)).first.click()
    eventually(lambda: "range=1+hour" in page.url or "range=1%20hour" in page.url, timeout=60)
    says(page, "in the last 1 hour|of the last 1 hour")


def test_a_narrow_page_does_not_scroll_sideways(browser, address):
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    narrow = context.new_page()
    narrow.goto(address)
    narrow.locator(".live-plot .main-svg").first.wait_for()
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_a_missing_store_is_waited_for_and_the_page_opens_by_itself(browser, state_folder):
    store = state_folder / "later" / "store.duckdb"
    with served(store, state_folder) as url:
        context = browser.new_context()
        waiting = context.new_page()
        waiting.goto(url)
        waiting.get_by_text("This page waits for it").wait_for()
        assert not store.exists()
        Store.open(store)
        waiting.get_by_text("No producer has written here yet").wait_for(timeout=60_000)
        context.close()
