"""Test the six tasks of an operator in Chromium, on a real Kafka whose failures have real causes; kcat reads the topics.

Each test prints the clicks, texts and seconds of its task, and saves pictures if $PRODUCER_CORE_PICTURES names a folder.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from producer_core.alerts import AlertLog
from producer_core.brokers import kafka as real
from producer_core.dlq import DeadLetterFilter
from producer_core.store import Store
from tests.acceptance import browsing
from tests.acceptance.browsing import button, go, listed, message
from tests.acceptance.dashboard.test_pages import axe, violations  # noqa: F401  a fixture
from tests.acceptance.operator import LIMIT, POLICY, Operator, Shop, bundle, dashboard, kcat, pictures
from tests.conftest import needs
from tests.integration.delivery.loss_detection.test_monitor_kafka import keep_batches
from tests.support import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.browser]

DESKTOP = {"viewport": {"width": 1440, "height": 900}}
PHONE = {
    "viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True,
    "user_agent": "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 "
    "Mobile Safari/537.36",
}  # fmt: skip
SMALL_TOPIC = {"max.message.bytes": str(LIMIT)}
FIXED = 100 * LIMIT
SMALL = ("spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN")
"""Settings for a small audit: compiling its plan takes longer than running it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("operator")


@pytest.fixture(scope="module")
def policy(folder):
    """A policy that requires a second person, for the producer and the dashboard."""
    file = folder / "policy.toml"
    file.write_text(POLICY)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PRODUCER_CORE_POLICY", str(file))
        patched.setenv("XDG_STATE_HOME", str(folder / "state"))
        yield file


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A broker for this module only, because its tests stop it and damage its log."""
    needs("java", "openjdk-17-jre-headless")
    with real.start(nodes=1, folder=tmp_path_factory.mktemp("operator-kafka") / "one") as running:
        yield running


@pytest.fixture(scope="module")
def shop(cluster, folder, policy):
    needs("kcat", "kcat")
    running = Shop(cluster, folder)
    yield running
    running.close()


@pytest.fixture(scope="module")
def address(shop, folder):
    with dashboard(folder) as started:
        yield started


@pytest.fixture(params=["desktop", "phone"])
def ada(request, browser, address):
    """An operator on each device, signed in."""
    with browsing.window(browser, **(DESKTOP if request.param == "desktop" else PHONE)) as page:
        yield Operator(page, address)


def orders(records):
    return [one["order"] for one in records]


def assert_accessible(page, axe):  # noqa: F811
    assert violations(page, axe) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def open_topic(operator, topic, count):
    """Open the dead letters of one topic by the menu and the filter, as a user does."""
    operator.menu("Dead letters")
    operator.choose("Topic", topic)
    operator.page.wait_for_url(re.compile(f"topic={topic}"), wait_until="commit")
    return listed(operator.page, count)


def test_find_the_cause(shop, cluster, ada, axe):  # noqa: F811
    topic = shop.topic("payments", **SMALL_TOPIC)
    shop.send(topic, range(5))
    shop.fail(topic, range(100, 112))

    ada.begin()
    ada.menu("Errors")
    issue = ada.page.locator("tr", has_text=topic).filter(has_text="MSG_SIZE_TOO_LARGE")
    issue.get_by_text("larger than the topic or the client allows").first.wait_for()
    issue.get_by_text(re.compile("Raise max.message.bytes of the topic")).first.wait_for()
    ada.end("find the cause")

    pictures(ada, "1-errors")
    assert_accessible(ada.page, axe)
    assert orders(kcat(cluster, topic)) == list(range(5))


def test_replay_what_is_safe(shop, cluster, ada, axe):  # noqa: F811
    """The broker rejected 8 orders, and hung while 6 were sent: some of these are on the topic without a response."""
    topic = shop.topic("orders", **SMALL_TOPIC)
    shop.fail(topic, range(100, 108))
    shop.hang(topic, range(6))
    before = orders(kcat(cluster, topic))
    assert before
    doubtful = 6 - len(before)
    shop.limit(topic, FIXED)

    ada.begin()
    open_topic(ada, topic, 14)
    ada.click("Replay 14 …")
    ada.page.get_by_text("If the replay does not find them").wait_for()
    pictures(ada, "2-dry-run")
    ada.click("Replay 14 now")
    message(ada.page, f"Replayed 8 of 14; {len(before)} were already on the topic and not sent again")
    ada.end("replay what is safe")

    pictures(ada, "2-replayed")
    if doubtful:
        message(ada.page, "replay with “Send anyway”")
    assert_accessible(ada.page, axe)
    after = orders(kcat(cluster, topic))
    assert after[: len(before)] == before
    assert sorted(after[len(before) :]) == list(range(100, 108))
    assert shop.pending(topic) == doubtful


def test_edit_one_broken_record_and_send_it(shop, cluster, ada, folder, axe):  # noqa: F811
    """One line of a file has a decimal comma."""
    topic = shop.topic("refunds")
    file = folder / f"{topic}.jsonl"
    file.write_text('{"order": 1, "amount": 5}\n{"order": 2, "amount": 12,5}\n{"order": 3, "amount": 7}\n')
    command = ["send", topic, str(file), "--store", str(shop.path), "--key", "order"]
    run([*command, "-b", cluster.bootstrap_servers], code=1)
    eventually(lambda: shop.pending(topic) == 1)

    ada.begin()
    open_topic(ada, topic, 1)
    ada.click(browsing.rows(ada.page).locator(".pc-row-button"))
    ada.click("Edit")
    ada.type(ada.page.get_by_label("Value (JSON)"), '{"order": 2, "amount": 12.5}')
    ada.type(ada.page.get_by_label("Key", exact=True), "2")
    ada.type(ada.page.get_by_label("Reason"), "decimal comma")
    ada.page.locator(".pc-differences").filter(has_text="12.5").wait_for()
    pictures(ada, "3-edit")
    assert_accessible(ada.page, axe)
    ada.click("Save edit")
    message(ada.page, "Edited 1 dead letter.")
    record = ada.page.locator(".st-key-pc-dead-letter")
    ada.click(record.get_by_role("button", name=re.compile(r"^(\w+\s)?Replay$")))
    message(ada.page, "Replayed 1 of 1")
    ada.end("edit one broken record and send it")

    pictures(ada, "3-sent")
    assert kcat(cluster, topic)[-1] == {"order": 2, "amount": 12.5}
    assert sorted(orders(kcat(cluster, topic))) == [1, 2, 3]
    assert shop.pending(topic) == 0


def test_a_big_replay_is_sent_after_a_second_person_approves(shop, cluster, browser, address, axe):  # noqa: F811
    topic = shop.topic("invoices", **SMALL_TOPIC)
    shop.fail(topic, range(260))
    shop.limit(topic, FIXED)

    with browsing.window(browser, **DESKTOP) as mine, browsing.window(browser, **DESKTOP) as theirs:
        mine.set_default_timeout(300_000)  # on a loaded machine, the transactions of 260 records take minutes
        ada, grace = Operator(mine, address), Operator(theirs, address, "grace")
        ada.begin()
        open_topic(ada, topic, 100)
        ada.click(button(mine, "Replay 260").or_(button(mine, "Replay 260 …")))
        ada.click("Ask to replay 260")
        message(mine, "Waiting for approval by a second person")
        pictures(ada, "4-asked", narrow=True)
        assert kcat(cluster, topic) == []
        grace.begin()
        grace.menu("Replays")
        theirs.get_by_text(re.compile(f"260 of {topic}")).first.wait_for()
        pictures(grace, "4-approval", narrow=True)
        assert_accessible(theirs, axe)
        grace.click("Approve")
        grace.end("approve a big replay")
        ada.click("Replay 260 now")
        message(mine, "Replayed 260 of 260")
        ada.end("get a big replay approved")
        assert_accessible(mine, axe)
    assert sorted(orders(kcat(cluster, topic))) == list(range(260))


def test_an_alert_is_silenced_until_tomorrow_and_the_loss_is_proved(shop, cluster, browser, address, axe):  # noqa: F811
    topic = lost_shipments(shop, cluster)
    assert orders(kcat(cluster, topic)) == [0, 1, 2]

    with browsing.window(browser, **DESKTOP) as page:
        ada = Operator(page, address)
        ada.begin()
        ada.menu("Alerts")
        ada.click(page.get_by_role("link", name=re.compile(f"Acknowledged records of {topic}")))
        page.get_by_text("At least 5 are missing").first.wait_for()
        ada.click("Silence …")
        ada.choose("Duration", "Until tomorrow, 09:00")
        ada.type(page.get_by_role("textbox", name=re.compile("Reason")), "The disk is replaced tomorrow")
        pictures(ada, "5-silence", narrow=True)
        ada.click("Silence")
        button(page, "End the silence").wait_for()
        assert_accessible(page, axe)
        ada.click(page.get_by_role("link", name="Audits of the topic"))
        shown = page.get_by_test_id("stCode").filter(has_text="pipeline integrity").inner_text()
        ada.end("silence an alert until tomorrow")
        pictures(ada, "5-fleet", narrow=True)

        command = shlex.split(shown.strip())
        assert command[:3] == ["producer-core", "pipeline", "integrity"] and topic in command
        command[command.index("-b") + 1] = cluster.bootstrap_servers
        command[command.index("--findings") + 1] = str(shop.folder / "findings")
        command += [part for setting in SMALL for part in ("--conf", setting)]
        output = run(command[1:], code=None)

        ada.begin()
        go(page, f"{address}fleet?topic={topic}")
        ada.click(page.get_by_role("link", name=topic, exact=True))
        page.get_by_text("not in the log").first.wait_for()
        ada.end("prove what was lost")
        pictures(ada, "5-audit", narrow=True)
        assert_accessible(page, axe)
        assert page.get_by_text("not in the log").count() == 5
        assert "of 8 acknowledged messages, 5 are lost" in output

    (silence,) = [one for one in AlertLog(Store.open(shop.path)).silences() if topic in one.subject]
    assert silence.why == "The disk is replaced tomorrow"


def test_the_incident_is_handed_over(shop, cluster, browser, address, folder, axe):  # noqa: F811
    topic = shop.topic("deliveries", **SMALL_TOPIC)
    shop.send(topic, range(3))
    shop.fail(topic, range(100, 107))

    with browsing.window(browser, **DESKTOP) as page:
        ada = Operator(page, address)
        ada.begin()
        ada.menu("Errors")
        page.get_by_text(topic).first.wait_for()
        ada.click("Export incident")
        pictures(ada, "6-export", narrow=True)
        with page.expect_download() as download:
            ada.click(page.get_by_role("button", name="Download"))
        download.value.save_as(folder / "incident.zip")
        ada.end("hand over the incident")
        assert_accessible(page, axe)

    other = folder / "other"
    other.mkdir()
    with bundle(folder / "incident.zip", other) as copy, browsing.window(browser, **DESKTOP) as page:
        go(page, f"{copy}dead-letters?topic={topic}")
        ids = listed(page, 7)
        assert set(ids) == set(shop.dead_letters.ids(DeadLetterFilter(topic=topic)))
        go(page, f"{copy}errors")
        issue = page.locator("tr", has_text=topic).filter(has_text="MSG_SIZE_TOO_LARGE")
        issue.first.wait_for()
        assert_accessible(page, axe)
    assert orders(kcat(cluster, topic)) == [0, 1, 2]


def lost_shipments(shop, cluster):
    """Send 8 messages, and lose the last 5 from the broker's disk, as a power failure does. Return the topic."""
    topic = shop.topic("shipments")
    for number in range(8):  # one batch each
        shop.send(topic, [number])
        shop.settle()
    cluster.stop_node(1)
    keep_batches(cluster.nodes[0].data / f"{topic}-0", 3, snapshots=False)
    cluster.start_node(1)
    shop.send(topic, [8])
    log = AlertLog(Store.open(shop.path))
    eventually(
        lambda: [one for one in log.firing().values() if (one.rule, one.subject) == ("acknowledged_lost", f"{topic}/0")],
        timeout=120,
    )  # fmt: skip
    return topic


def run(words, *, code):
    """Run a command of producer-core and return its output; `code` is the expected exit code, or None for any."""
    done = subprocess.run(
        [sys.executable, "-m", "producer_core.cli", *words], capture_output=True, text=True, timeout=600
    )  # fmt: skip
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
