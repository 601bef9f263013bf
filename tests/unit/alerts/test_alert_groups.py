"""Alerts that many topics have at once are one line where alerts are listed; each keeps its own identity."""

from __future__ import annotations

import orjson
import pytest
from click.testing import CliRunner

from producer_core.alerts import RULES, AlertChange, AlertLog, ReportedAlerts, alert
from producer_core.alerts.alert_groups import group_text, grouped
from producer_core.cli import main
from producer_core.dashboard import actions, queries, wording
from producer_core.dashboard.queries.firing import firing
from producer_core.delivery.dispatch import order_break
from producer_core.store import Batch, Store
from tests.fixtures import alert_pages, pages

NOW = alert_pages.NOW
TOPICS = [f"topic-{number:03}" for number in range(40)]
TEXT = (
    "On 40 topics a message was acknowledged before an earlier one with the same key was retried. The topics are "
    "topic-000, topic-001, topic-002, topic-003, topic-004 and 35 more."
)


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


@pytest.fixture
def broken(store):
    """The alerts of a producer whose order broke on many topics."""
    alerts = ReportedAlerts()
    for topic in TOPICS:
        alerts.notice(order_break(topic, NOW))
    found = alerts.firing("p-1", NOW)
    AlertLog(store).record([AlertChange("fired", one) for one in found], told_by="p-1")
    return found


def run(store, *words):
    return CliRunner().invoke(main, ["alerts", *words, "--store", str(store.path)])


def test_only_alerts_of_a_rule_about_many_topics_are_grouped():
    items = [("order_break", "a"), ("circuit_opened", "a"), ("order_break", "b"), ("circuit_opened", "b")]

    assert grouped(items, rule=lambda item: item[0]) == [
        [("order_break", "a"), ("order_break", "b")], [("circuit_opened", "a")], [("circuit_opened", "b")],
    ]  # fmt: skip
    assert group_text("order_break", ["a"], "On a it broke.") == "On a it broke."
    assert group_text("order_break", list(map(str, range(1000))), "").startswith(
        "On 1,000 topics a message was"
    )


def test_the_list_of_the_command_has_one_line_that_names_the_count_and_the_first_topics(store, broken):
    listed = " ".join(run(store, "list").output.split())

    assert "order_break" in listed and "40 topics" in listed
    assert listed.count("ordering=") == 1, "the advice"
    assert broken[0].alert_id not in listed


def test_json_lists_each_alert(store, broken):
    found = orjson.loads(run(store, "list", "--json", "--limit", "100").output)["alerts"]

    assert {item["subject"] for item in found} == set(TOPICS)


def test_the_name_of_a_rule_acknowledges_all_its_alerts_and_an_id_only_one(store, broken):
    assert run(store, "ack", broken[0].alert_id).exit_code == 0

    done = run(store, "ack", "order_break")

    assert done.exit_code == 0 and "Acknowledged 39 alerts" in done.output
    assert all(one.acknowledged_by for one in AlertLog(store).firing().values())
    assert run(store, "ack", "order_break").exit_code != 0


def test_the_health_command_counts_the_topics(store, broken):
    store.append(Batch("p-1", 0, (), (), (), pages.producer("p-1")))
    done = CliRunner().invoke(main, ["health", "--store", str(store.path)])

    assert done.output.count("was acknowledged before an earlier one") == 1 and "40 topics" in done.output


def test_the_overview_and_the_notebook_have_one_line_whose_button_acknowledges_all(store, broken):
    (found,) = queries.overview(store, "15 min", NOW).alerts

    assert found["text"] == TEXT
    assert set(found["alert_ids"]) == {one.alert_id for one in broken}
    assert "reported by" not in wording.alert(found, NOW)
    assert actions.acknowledge(store, *found["alert_ids"]).text == "40 alerts acknowledged."
    assert all(one.acknowledged_by for one in AlertLog(store).firing().values())


def test_an_acknowledged_topic_is_not_in_the_group_of_the_open_ones(store, broken):
    AlertLog(store).acknowledge(broken[0].alert_id, who="ada", origin="cli")

    opened, done = queries.overview(store, "15 min", NOW).alerts

    assert (len(opened["alert_ids"]), done["subject"]) == (39, "topic-000")
    assert "order" not in done["text"] and "topic-000" in done["text"]


def test_the_alerts_page_has_one_card_and_each_topic_keeps_its_own(store, broken):
    page = alert_pages.page(store)
    (group,) = page.shown
    assert (group.alert.text, len(group.alert_ids), len(page.firing)) == (TEXT, 40, 40)

    (one,) = alert_pages.page(store, topic="topic-007").shown
    assert (one.alert.subject, one.alert_ids) == ("topic-007", (broken[7].alert_id,))
    assert "topic-007" in one.alert.text


def test_a_silence_of_one_topic_leaves_the_others_loud(store, broken):
    log = AlertLog(store, clock=lambda: NOW)
    log.silence("order_break", "topic-000", until=NOW + 60, who="ada", why="", origin="cli")

    loud = [group for group in alert_pages.page(store).shown if not group.alert.silenced]

    assert [len(group.alert_ids) for group in loud] == [39]


def test_alerts_about_one_topic_are_as_before():
    row = {
        "alert_id": "a", "rule": "order_break", "subject": "orders", "severity": "warning", "text": "On orders …",
        "started_at": 1.0, "since": None, "acknowledged_by": None, "silenced": False, "muted_by": None, "value": 1.0,
        "threshold": 0.0,
    }  # fmt: skip
    (found,) = firing([row], 0, (), queries.View(), RULES)
    assert (found["text"], found["alert_ids"]) == ("On orders …", ("a",))


def test_the_alert_of_a_rule_without_groups_keeps_its_text():
    one = alert("weak_replication", "p-1", 1.0, text="orders has one replica")
    assert group_text(one.rule, ["p-1", "p-2"], one.text) == one.text
