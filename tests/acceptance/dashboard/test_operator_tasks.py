"""Test the six tasks of an operator in Chromium, on a real Kafka whose failures have real causes; kcat reads the topics."""

from __future__ import annotations

import re

import pytest

from producer_core.brokers import kafka as real
from tests.acceptance import browsing
from tests.acceptance.browsing import listed, message
from tests.acceptance.dashboard.test_pages import axe, violations  # noqa: F401  a fixture
from tests.acceptance.operator import LIMIT, POLICY, Operator, Shop, dashboard, kcat, pictures
from tests.conftest import needs

pytestmark = [pytest.mark.kafka, pytest.mark.browser]

SIZES = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}


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
    running = Shop(cluster, folder)
    yield running
    running.close()


@pytest.fixture(scope="module")
def address(shop, folder, policy):
    with dashboard(folder) as started:
        yield started


@pytest.fixture(params=SIZES)
def ada(request, browser, address):
    """An operator at each size, signed in."""
    with browsing.window(browser, viewport=SIZES[request.param]) as page:
        yield Operator(page, address)


def orders(values):
    return [one["order"] for one in values]


def test_find_the_cause(shop, cluster, ada, axe):  # noqa: F811
    topic = shop.topic("payments", **{"max.message.bytes": str(LIMIT)})
    shop.send(topic, range(5))
    shop.fail(topic, range(100, 112))
    ada.page.reload()

    ada.sees(rf"{topic}")
    ada.menu("Errors")
    ada.sees("MSG_SIZE_TOO_LARGE")
    pictures(ada.page, "1-errors")
    ada.report("find the cause")
    assert violations(ada.page, axe) == []
    assert orders(kcat(cluster, topic)) == list(range(5))


def test_replay_what_is_safe(shop, cluster, ada, axe):  # noqa: F811
    topic = shop.topic("orders", **{"max.message.bytes": str(LIMIT)})
    shop.fail(topic, range(100, 108))
    shop.hang(topic, range(6))
    on_topic = orders(kcat(cluster, topic))
    print("on the topic after the hang:", on_topic, shop.dead_letters.count, flush=True)
    shop.limit(topic, 100 * LIMIT)  # the cause is fixed
    ada.page.reload()

    ada.menu("Dead letters")
    pictures(ada.page, "2-dead-letters")
    ada.report("replay what is safe")
