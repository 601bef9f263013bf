"""Test the fleet page: its queries on a real store, its texts, its charts, and the page in each state."""

from __future__ import annotations

import time

import pytest

from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.dashboard.charts.fleet import fleet_percentiles, spread
from producer_core.dashboard.queries import latency, overview
from producer_core.dashboard.queries.errors import errors
from producer_core.dashboard.queries.fleet import FORGOTTEN, STATES, fleet, state_of
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.views.fleet import matches
from producer_core.dashboard.wording import fleet as say
from producer_core.dlq import DeadLetters
from producer_core.metrics.histogram import RELATIVE_ERROR, bucket_of
from producer_core.store import Batch, LatencyRow, Store
from tests.fixtures.pages import (
    HOSTILE,
    counts,
    dead_letter,
    links,
    opened,
    producer,
    rows_of,
    text_of,
    tiles_of,
)

NOW = 0.0
VIEW = View("5 min")
LIST = "Producers, those in trouble first"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.fixture
def store(path):
    return Store.open(path)


@pytest.fixture(autouse=True)
def now():
    """Set NOW to the start of the test, because the page uses the real clock."""
    global NOW
    NOW = float(int(time.time()))


def add(store, name, *, seconds=60, rate=10, latency=0.005, dead=0, topic="orders", **changes):
    """Add a producer with `seconds` of load until now."""
    ats = range(int(NOW) - seconds, int(NOW))
    rows = [counts(at, topic, producer=name, acknowledged=rate) for at in ats]
    if dead:
        rows.append(counts(NOW - 5, topic, producer=name, dead=dead))
    latencies = [LatencyRow(at, "c", name, topic, bucket_of(latency), rate) for at in ats]
    known = {"client_id": name, "host": f"host-{name}", **changes}
    store.append(Batch(name, 0, tuple(rows), tuple(latencies), (), producer(name, NOW + 3600, **known)))


# data


def test_percentiles_come_from_merged_histograms_not_from_percentiles(store):
    add(store, "quick", rate=99, latency=0.005)
    add(store, "slow", rate=1, latency=1.0)
    p50, p95, p99, p999 = fleet(store, VIEW, NOW).found
    assert p50 == p95 == p99 == pytest.approx(0.005, rel=2 * RELATIVE_ERROR)
    assert p999 == pytest.approx(1.0, rel=2 * RELATIVE_ERROR)


def test_a_producer_has_its_own_numbers(store):
    add(store, "shop", rate=20, dead=3)
    DeadLetters(store).add(
        [dead_letter(number, failed_at=NOW - 5, producer_id="shop", topic="orders") for number in range(3)]
    )
    (member,) = fleet(store, VIEW, NOW).members
    assert member.rate == pytest.approx(20, rel=0.1)
    assert (member.dead, member.dead_letters, member.acknowledged) == (3, 3, 1200)
    assert member.p99 == pytest.approx(0.005, rel=2 * RELATIVE_ERROR)
    assert member.error_rate == pytest.approx(3 / 1203)


def test_producers_are_sorted_worst_first_and_closed_last(store):
    add(store, "well")
    add(store, "failing", dead=1)
    add(store, "failing-more", dead=20)
    add(store, "silent", seen_at=NOW - 60)
    add(store, "cut-off", connected=False)
    add(store, "full", queue_messages=95_000)
    add(store, "closed", closed_at=NOW - 5, seen_at=NOW - 5)
    add(store, "idle", seconds=0)
    add(store, "alerting")
    AlertLog(store).record(
        [AlertChange("fired", alert("dedup_degraded", "alerting", NOW - 5, reason="no Redis"))]
    )
    found = fleet(store, VIEW, NOW)
    assert [member.name for member in found.members] == [
        "silent", "cut-off", "alerting", "failing-more", "failing", "full", "well", "idle", "closed",
    ]  # fmt: skip
    assert (found.running, len(found.troubled), found.hosts) == (7, 6, 7)


def test_a_producer_silent_for_a_day_is_no_longer_listed(store):
    add(store, "well")
    add(store, "gone", seconds=0, seen_at=NOW - FORGOTTEN - 5)
    assert [member.name for member in fleet(store, VIEW, NOW).members] == ["well"]
    all_producers = fleet(store, VIEW, NOW, include_all=True)
    assert [member.state for member in all_producers.members] == ["well", "gone"]
    assert all_producers.known == 2 and not all_producers.troubled


def test_a_topic_filter_keeps_the_producers_that_write_to_it(store):
    add(store, "one", topic="orders")
    add(store, "two", topic="refunds")
    found = fleet(store, View("5 min", topic="refunds"), NOW)
    assert [member.name for member in found.members] == ["two"]
    assert [member.name for member in fleet(store, View("5 min", producer="one"), NOW).members] == ["one"]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"closed": True, "silent": 99}, "closed"), ({"silent": 2 * FORGOTTEN}, "gone"), ({"silent": 41}, "silent"),
        ({"connected": False, "dead": 3}, "cut off"), ({"alerting": True, "dead": 3}, "alerting"), ({"dead": 1}, "failing"),
        ({"fill": 0.9}, "full"), ({}, "well"), ({"acknowledged": 0}, "idle"), ({"silent": 39}, "well"),
    ],
)  # fmt: skip
def test_the_worst_state_applies(changes, state):
    known = {
        "closed": False,
        "silent": 1.0,
        "connected": True,
        "alerting": False,
        "dead": 0,
        "acknowledged": 9,
        "fill": 0.1,
    }
    assert state_of(**{**known, **changes}) == state
    assert state in STATES


def test_store_wide_and_info_alerts_are_no_problem_of_a_producer(store):
    add(store, "shop")
    found = (
        alert("high_dlq_size", "shop", NOW - 5, value=500, threshold=100),
        alert("epoch_rose", "shop", NOW - 5, text="it rose"),
    )
    AlertLog(store).record([AlertChange("fired", one) for one in found], told_by="shop")
    (member,) = fleet(store, VIEW, NOW).members
    assert (member.alerts, member.troubled) == ((), False)


def test_an_alert_on_a_topic_belongs_to_the_producers_with_failures_there(store):
    add(store, "shop")
    add(store, "other")
    DeadLetters(store).add([dead_letter(1, failed_at=NOW - 5, producer_id="shop", topic="payments")])
    burns = alert(
        "error_budget_fast",
        "payments",
        NOW - 5,
        value=0.2,
        threshold=0.01,
        long="1 h",
        factor="200",
        objective="99.9 %",
    )
    waits = alert("dedup_degraded", "shop", NOW - 1, reason="no Redis")
    AlertLog(store).record([AlertChange("fired", one) for one in (waits, burns)])
    first, second = fleet(store, VIEW, NOW).members
    assert (first.name, [severity for severity, _ in first.alerts]) == ("shop", ["critical", "warning"])
    assert second.alerts == ()


def test_every_page_counts_the_same_failures(store):
    """A dead letter counts as one failed message even if its replay failed; statistics count failures without one."""
    add(store, "shop", dead=5, topic="payments")
    add(store, "far", dead=2, topic="refunds")
    DeadLetters(store).add(
        [dead_letter(number, failed_at=NOW - 5, producer_id="shop", topic="payments") for number in range(3)]
    )
    found = fleet(store, VIEW, NOW)
    assert {member.name: member.dead for member in found.members} == {"shop": 3, "far": 2}
    whole = {errors(store, VIEW, NOW).whole.dead, overview(store, VIEW, NOW).situation.dead, found.dead}
    assert whole == {5}
    assert "5 of 1,205 messages became dead letters" in latency(store, VIEW, NOW).findings[0].title


def test_axes_have_labels_even_for_few_dots(store):
    add(store, "one")
    add(store, "two", rate=90)
    drawn = spread(fleet(store, VIEW, NOW))
    for axis in (drawn.layout.xaxis, drawn.layout.yaxis):
        low, high = axis.range
        assert low == int(low) and high >= low + 1


# texts and charts


@pytest.mark.parametrize(
    ("known", "tone", "text"),
    [
        ((0, 0, 0, []), "quiet", "No producer has written to this store yet. Start one to see it here."),
        ((0, 0, 3, []), "quiet", "No producers running. The store has records of 3 producers."),
        ((0, 0, 3, [("silent", 2)]), "bad", "No producers running. 2 are not reporting."),
        ((1, 1, 1, []), "good", "1 producer running on 1 host, no problems."),
        ((12, 4, 12, []), "good", "12 producers running on 4 hosts, no problems."),
        ((12, 4, 12, [("alerting", 1)], True), "bad", "12 producers running on 4 hosts. 1 has a firing alert."),
        ((12, 4, 12, [("failing", 1)]), "warning", "12 producers running on 4 hosts. 1 has failed messages."),
        ((12, 4, 12, [("silent", 2), ("cut off", 1), ("full", 1)]), "bad",
         "12 producers running on 4 hosts. 2 are not reporting, 1 has no broker connection and 1 has a full queue."),
    ],
)  # fmt: skip
def test_the_summary_counts_problems(known, tone, text):
    assert say.fleet_summary(say.FleetSummary(*known)) == (tone, text)


def test_the_worst_alert_is_shown_in_every_state():
    alerts = [("critical", "no broker"), ("warning", "slow"), ("warning", "many wait")]
    assert say.alerts_of("alerting", alerts) == (alerts[0], ["warning: slow", "warning: many wait"])
    assert say.alerts_of("cut off", alerts)[1][0] == "critical: no broker"
    assert say.alerts_of("silent", alerts, most=2)[1][2:] == ["and 1 more alert"]
    assert say.alerts_of("well", []) == (("", ""), [])


def test_the_commands_that_fill_a_fleet_exist():
    import click

    from producer_core.cli import main

    for line in say.TELEMETRY_COMMANDS.splitlines():
        context, command, (_, *rest) = click.Context(main), main, line.split()
        while isinstance(command, click.Group) and not rest[0].startswith("-"):
            command = command.get_command(context, rest.pop(0))
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in rest if word.startswith("-")} <= known


def test_every_delivering_producer_is_a_dot_with_an_escaped_name(store):
    add(store, "well")
    add(store, "odd", dead=1, client_id=HOSTILE)
    add(store, "idle", seconds=0)
    found = fleet(store, VIEW, NOW)
    drawn = spread(found)
    assert [(trace.name, len(trace.x)) for trace in drawn.data] == [("Healthy", 1), ("With problems", 1)]
    assert "<a" not in drawn.data[1].text[0] and "&lt;" in drawn.data[1].text[0]
    assert len(fleet_percentiles(found).data) == 4


def test_charts_of_an_empty_store_show_a_message(store):
    found = fleet(store, VIEW, NOW)
    for figure in (fleet_percentiles(found), spread(found)):
        assert not figure.data and figure.layout.annotations[0].text


def test_every_word_of_a_search_must_match(store):
    add(store, "web", host="node-7")
    (member,) = fleet(store, VIEW, NOW).members
    assert matches(member, "WEB node") and matches(member, "") and not matches(member, "web node-8")


# the page


def test_the_page_of_an_empty_store_has_no_numbers_and_shows_how_to_add_producers(path, store, monkeypatch):
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    assert "No producer has written to this store yet." in text_of(page)
    assert "producer-core pipeline telemetry" in page.code[0].value
    assert [value for _, value in tiles_of(page)] == ["0", "0", "0 /s", "–", "–", "–", "–", "0"]


def test_the_page_lists_producers_by_problem_with_links(path, store, monkeypatch):
    add(store, "web")
    add(store, "batch", connected=False, connection_error="Connection refused")
    DeadLetters(store).add([dead_letter(1, failed_at=NOW - 5, producer_id="web")])
    page = opened("fleet", path, monkeypatch, range="5 min")
    assert not page.exception
    first, second = rows_of(page, LIST)
    assert first[0].startswith("batch") and "no connection: Connection refused" in first[1]
    assert second[0].startswith("web") and second[5] == "1"
    assert "dead-letters?producer_id=web" in links(page)
    assert "./?range=5+min&producer=web" in links(page)


def test_search_and_problem_filter_narrow_the_list(path, store, monkeypatch):
    add(store, "web")
    add(store, "batch", connected=False)
    assert [row[0].split()[0] for row in rows_of(opened("fleet", path, monkeypatch, find="web"), LIST)] == [
        "web"
    ]
    assert [
        row[0].split()[0] for row in rows_of(opened("fleet", path, monkeypatch, who="In trouble"), LIST)
    ] == ["batch"]


def test_all_producers_are_counted_and_the_worst_are_listed(path, store, monkeypatch):
    with store.borrow(write=True):
        for number in range(300):
            name = f"p-{number:04d}"
            store.append(
                Batch(
                    name,
                    0,
                    producer=producer(name, NOW + 3600, host=f"h-{number % 9}", connected=number != 150),
                )
            )
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    rows = rows_of(page, LIST)
    assert len(rows) == 50 and "not connected yet" in rows[0][1]
    assert "300 producers running on 9 hosts. 1 has no broker connection." in text_of(page)
    assert "Showing the first 50 of 300, worst first." in text_of(page)


def test_names_are_never_markup(path, store, monkeypatch):
    add(
        store,
        "odd",
        client_id=HOSTILE,
        host=HOSTILE,
        version=HOSTILE,
        connected=False,
        connection_error=HOSTILE,
    )
    page = opened("fleet", path, monkeypatch)
    assert not page.exception
    assert not any(HOSTILE in element.body for element in page.get("html"))
    assert "onerror" in text_of(page)
