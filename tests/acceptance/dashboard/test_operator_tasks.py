"""Test that an operator who sees the dashboard for the first time completes six tasks, in Chromium and on a real Kafka.

The operator acts on what the page shows. The outcome is read independently: from the topic with a plain consumer, from
the audit log of the store, and from the exported bundle. $PRODUCER_CORE_TRIES repeats each task, on every device.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys

import pytest

from producer_core.dashboard.auth.password import hashed
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.approvals import requests
from tests.acceptance.browsing import served, violations, window
from tests.acceptance.dashboard.test_sign_in import SECRET, command, listening
from tests.acceptance.incident_shop import incident_shop, numbers, orders_on
from tests.acceptance.operator import Operator
from tests.fixtures.approvals import adopt_policy
from tests.support import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.browser]

DESKTOP = {"viewport": {"width": 1440, "height": 900}}
PHONE = {
    "viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True,
    "user_agent": "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 "
    "Mobile Safari/537.36",
}  # fmt: skip
POLICY = """
[roles]
operator = ["ada"]
approver = ["grace"]

[second_person]
replays_above = 200
"""
DEVICES = {"desktop": DESKTOP, "phone": PHONE}
SMALL_AUDIT = (
    "--conf", "spark.sql.codegen.wholeStage=false", "--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN",
)  # fmt: skip
"""Options for an audit of a few records: compiling its plan takes longer than running it."""


@pytest.fixture(params=range(1, int(os.environ.get("PRODUCER_CORE_TRIES", "1")) + 1), ids="try {}".format)
def attempt(request):
    return request.param


@pytest.fixture
def shop(kafka, tmp_path):
    """A running shop with a store of its own, which the task prepares."""
    with incident_shop(kafka, tmp_path) as running:
        yield running


@pytest.fixture
def address(shop, tmp_path):
    """The dashboard of the shop, for the local user without sign-in."""
    with served(shop.path, tmp_path) as server:
        yield server.url


def check_accessible(operator, axe):
    operator.page.mouse.move(2, 2)  # Streamlit's tooltips are outside of the page's regions
    eventually(lambda: operator.page.get_by_role("tooltip").count() == 0)
    assert violations(operator.page, axe) == []
    assert operator.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# the tasks


def test_the_cause_of_failures_is_found(shop, kafka, browser, address, attempt, axe):
    """Receipts in some payments exceed the limit of the topic; the other topic is healthy."""
    orders, payments = shop.topic("orders"), shop.limited_topic("payments")
    shop.send(orders, range(60))
    shop.send(payments, range(5))
    shop.fail(payments, range(100, 112))

    for device in DEVICES.values():
        with window(browser, **device) as page:
            ada = Operator(page, address, "find the cause", attempt=attempt)
            ada.read(re.compile(f"{payments}.*larger than"))
            ada.open("Errors")
            ada.read("Raise max.message.bytes of the topic", within=payments)
            ada.end()
            check_accessible(ada, axe)

    assert numbers(orders_on(kafka, payments)) == list(range(5))
    shop.raise_limit(payments)  # the advice is right: the same payments are now delivered
    shop.send(payments, range(100, 112), receipt=True)
    shop.settle()
    assert numbers(orders_on(kafka, payments)) == [*range(5), *range(100, 112)]


def test_what_is_safe_is_replayed_and_nothing_is_sent_twice(shop, kafka, browser, address, attempt, axe):
    """The broker rejected 8 orders, and hung while 6 were sent: some of these are on the topic without a response."""
    topics = {name: shop.limited_topic(f"orders-{name}") for name in DEVICES}
    for topic in topics.values():
        shop.fail(topic, range(100, 108))
        shop.hang(topic, range(6))  # one topic at a time: a producer probes one after the other
    before = {name: numbers(orders_on(kafka, topic)) for name, topic in topics.items()}
    for topic in topics.values():
        shop.raise_limit(topic)

    for name, topic in topics.items():
        found = len(before[name])
        with window(browser, **DEVICES[name]) as page:
            ada = Operator(page, address, "replay what is safe", attempt=attempt)
            ada.open("Dead letters")
            ada.choose("Topic", topic)
            ada.click("Replay 14 …")
            ada.read(re.compile("If the replay does not find"))
            check_accessible(ada, axe)
            ada.click("Replay 14 now")
            ada.read(
                re.compile(
                    rf"Replayed 8 of 14; {found} w\w+ already on the topic" if found else "Replayed 8 of 14"
                )
            )
            if found < 6:
                ada.read(re.compile("replay with “Send anyway”"))
            ada.end()
            check_accessible(ada, axe)

        after = numbers(orders_on(kafka, topic))
        assert after[:found] == before[name]
        assert sorted(after[found:]) == list(range(100, 108))
        assert shop.pending(topic) == 6 - found
    assert any(before.values())
    assert [row["count"] for row in shop.acts("replay_end")] == [8 + len(found) for found in before.values()]


def test_one_broken_record_is_edited_and_sent(shop, kafka, browser, address, tmp_path, attempt, axe):
    """One line of a file has a decimal comma."""
    topics = {name: shop.topic(f"refunds-{name}") for name in DEVICES}
    file = tmp_path / "refunds.jsonl"
    file.write_text('{"order": 1, "amount": 5}\n{"order": 2, "amount": 12,5}\n{"order": 3, "amount": 7}\n')
    for topic in topics.values():
        run(["send", topic, str(file), "--store", str(shop.path), "--key", "order",
             "-b", kafka.bootstrap_servers], code=1)  # fmt: skip
        eventually(lambda topic=topic: shop.pending(topic) == 1)

    for name, topic in topics.items():
        with window(browser, **DEVICES[name]) as page:
            ada = Operator(page, address, "edit one broken record", attempt=attempt)
            ada.open("Dead letters")
            ada.click_row(topic, table="Dead letters")
            ada.click("Edit")
            ada.fill("Value (JSON)", '{"order": 2, "amount": 12.5}')
            ada.fill("Key", "2")
            ada.fill("Reason", "decimal comma")
            ada.read(re.compile("12.5"), within="the value")
            check_accessible(ada, axe)
            ada.click("Save edit")
            ada.read("Edited 1 dead letter.")
            ada.click("Replay")
            ada.read(re.compile("Replayed 1 of 1"))
            ada.end()
            check_accessible(ada, axe)

        sent = orders_on(kafka, topic)
        assert sent[-1] == {"order": 2, "amount": 12.5} and sorted(numbers(sent)) == [1, 2, 3]
        assert shop.pending(topic) == 0
    assert [row["count"] for row in shop.acts("edit")] == [1, 1]


@pytest.fixture
def sign_in_address(shop, tmp_path):
    """The dashboard of a shop whose big replays need a second person, with a password for each of two people."""
    adopt_policy(shop.path, tmp_path, POLICY)
    (tmp_path / ".streamlit").mkdir()
    passwords = "".join(f'{name} = "{hashed(SECRET)}"\n' for name in ("ada", "grace"))
    (tmp_path / ".streamlit" / "secrets.toml").write_text(f"[dashboard.passwords]\n{passwords}")
    with command(tmp_path, "--port", "8960") as process:
        yield listening(process)[0]


def test_a_big_replay_is_sent_after_a_second_person_approves(
    shop, kafka, browser, sign_in_address, attempt, axe
):
    topic = shop.limited_topic("invoices")
    shop.fail(topic, range(260))
    shop.raise_limit(topic)

    with window(browser, **DESKTOP) as mine, window(browser, **DESKTOP) as theirs:
        ada = Operator(mine, sign_in_address, "big replay", attempt=attempt)
        ada.sign_in("ada", SECRET)
        ada.open("Dead letters")
        ada.click(re.compile(r"Replay 260( …)?$"))
        ada.click("Ask to replay 260")
        ada.read("Waiting for approval by a second person")
        assert orders_on(kafka, topic) == []

        grace = Operator(theirs, sign_in_address, "big replay (approver)", attempt=attempt)
        grace.sign_in("grace", SECRET)
        grace.open("Replays")
        grace.read(re.compile(f"260.*{topic}"))
        check_accessible(grace, axe)
        grace.click("Approve")
        grace.end()

        ada.click("Replay 260 now")
        ada.read(re.compile("Replayed 260 of 260"))
        ada.end()
        check_accessible(ada, axe)

    assert sorted(numbers(orders_on(kafka, topic))) == list(range(260))
    (request,) = requests.list_requests(shop.store)
    assert (request.state, request.who, request.decided_by) == ("used", "ada", "grace")


def test_an_alert_is_silenced_until_tomorrow_and_the_loss_is_proved(
    shop, kafka, browser, address, attempt, axe
):
    topic = shop.topic("shipments")
    shop.lose(topic)
    left = numbers(orders_on(kafka, topic))
    assert left[:3] == [0, 1, 2] and not {3, 4, 5, 6, 7} & set(left)

    with window(browser, **DESKTOP) as page:
        ada = Operator(page, address, "silence and prove", attempt=attempt)
        ada.open("Alerts")
        ada.click(re.compile(f"^Acknowledged records of {topic}"))
        ada.click("Silence …")
        ada.choose("Duration", "Until tomorrow, 09:00")
        ada.fill("Reason (visible to others)", "The disk is replaced tomorrow")
        check_accessible(ada, axe)
        ada.click("Silence")
        ada.read("End the silence")
        ada.click("Audits of the topic")
        shown = ada.read(re.compile("producer-core pipeline integrity"))
        output = run([*shlex.split(shown)[1:], *SMALL_AUDIT], code=None, folder=shop.folder)
        ada.click(topic)
        ada.read("5 are lost")
        ada.read(re.compile("offset 7; not in the log"))
        ada.end()
        check_accessible(ada, axe)

    assert "of 8 acknowledged messages, 5 are lost" in output
    (silence,) = shop.acts("silence")
    assert topic in silence["selection"]


def test_an_incident_is_handed_over(shop, kafka, browser, address, tmp_path, attempt, axe):
    topic = shop.limited_topic("deliveries")
    shop.send(topic, range(3))
    shop.fail(topic, range(100, 107))

    with window(browser, **DESKTOP) as page:
        ada = Operator(page, address, "hand over", attempt=attempt)
        ada.open("Errors")
        ada.click("Export incident")
        ada.download("Download", tmp_path / "incident.zip")
        ada.end()
        check_accessible(ada, axe)

    with bundle(tmp_path / "incident.zip") as copy, window(browser, **DESKTOP) as page:
        ben = Operator(page, copy, "open the bundle", attempt=attempt)
        ben.open("Errors")
        ben.read("Raise max.message.bytes of the topic", within=topic)
        ben.open("Dead letters")
        ben.read(re.compile("7 "))
        ben.end()
        check_accessible(ben, axe)
        assert page.get_by_role("row").filter(has_text=topic).count() >= 7

    assert len(shop.dead_letters.ids(DeadLetterFilter(topic=topic))) == 7
    assert [row["action"] for row in shop.acts("incident")] == ["incident"]
    assert numbers(orders_on(kafka, topic)) == [0, 1, 2]


@contextlib.contextmanager
def bundle(file):
    """Open an incident bundle with a dashboard of its own, in an empty folder, and return its address."""
    folder = file.parent / "other"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "producer_core.cli", "dashboard", "--bundle", str(file), "--port", "8965"],
        cwd=folder, env=environment() | {"HOME": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield listening(process)[0]
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()
        process.stdout.close()


def environment():
    """Return the environment of a command that runs in another folder."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def run(words, *, code, folder=None):
    """Run a command of producer-core and return its output; `code` is the expected exit code, or None for any."""
    done = subprocess.run(
        [sys.executable, "-m", "producer_core.cli", *words], capture_output=True, text=True, timeout=600, cwd=folder,
        env=environment(),
    )  # fmt: skip
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr
