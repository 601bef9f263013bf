"""Test the replays page."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from producer_core import replay
from producer_core.dashboard import actions
from producer_core.dashboard.views import application_filter
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay.outcome import FailedReplay, RecordOutcome
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.pages import links, rows_of, text_of
from tests.fixtures.replay_pages import opened, started
from tests.fixtures.replays import add_dead_letters, dead_letter

store = replay_pages_fixtures.store


HOSTILE = "<script>alert(1)</script> **bold**"


def ended(store, *, failed=(), doubtful=()):
    """Return the id of a replay that a runner has finished."""
    one, claims = started(store)
    claimed = claims.settle_and_claim([], want=100, busy=False).dead_letters
    outcomes = []
    for place, dead in enumerate(claimed):
        if place in doubtful:
            text = "nobody could look"
            outcomes.append(RecordOutcome(dead.message_id, "skipped", text, verdict="inconclusive"))
        elif place in failed:
            before = DeadLetters(store).get(dead.message_id)
            death = FailedReplay.again(replace(before, error_text="Broker: Policy violation"))
            outcomes.append(RecordOutcome(dead.message_id, "failed", "Broker: Policy violation", death=death))
        else:
            outcomes.append(RecordOutcome(dead.message_id, "acknowledged"))
    assert claims.settle_and_claim(outcomes, want=0, busy=False).over
    return one


def alts(page):
    """Return the text alternatives of the charts."""
    found = [json.loads(one.proto.json or one.proto.mixed.json or "{}") for one in page.get("bidi_component")]
    return [data["alt"] for data in found if "spec" in data]


def test_an_empty_store_explains_how_to_start_a_replay(path, store):
    page = opened(path)

    assert not page.exception
    assert "No replays yet." in text_of(page)
    assert 'href="dead-letters"' in text_of(page)


@pytest.mark.slow
def test_a_running_replay_shows_its_user_selection_and_progress(path, store):
    add_dead_letters(store, 3)
    one, claims = started(store)
    claims.settle_and_claim([], want=1, busy=False)

    page = opened(path)

    assert not page.exception
    text = text_of(page)
    assert "1 replay in progress, 3 records left." in text
    assert "3 records: all dead letters" in text and "Requested by ann (dashboard)" in text
    assert "Running on client on host, process 1." in text and ">Running</b>" in text
    assert alts(page) == ["Records over time: 0 succeeded, 0 failed, of 3"]
    assert f"operation={one}" in text


@pytest.mark.slow
def test_an_ended_replay_shows_its_outcome_and_links_to_its_dead_letters(path, store):
    ids = add_dead_letters(store, 4)
    one = ended(store, failed=(1,), doubtful=(2,))

    page = opened(path)
    text = text_of(page)
    assert any(f"operation={one}" in link for link in links(page))
    (row,) = rows_of(page, "Finished replays, latest first")
    assert row[1:7] == ["Partly delivered", "all dead letters", "4", "2", "1", "1"]

    page = opened(path, operation=one)
    text = text_of(page)
    assert not page.exception
    assert "Replayed 2 of 4; 1 failed again: Broker: Policy violation; 1 skipped" in text
    assert alts(page) == ["Records over time: 2 succeeded, 1 failed, of 4"]
    assert "1 failed again. It remains a dead letter with the new error." in text
    assert "1 record may already be on the topic, or still arrive there." in text
    assert f"ids={ids[1]}" in text and f"ids={ids[2]}" in text
    assert any(f"letter={ids[2]}" in link for link in links(page))
    assert "requested" in text and "ended" in text


@pytest.mark.slow
def test_texts_of_selections_users_and_outcomes_are_escaped(path, store):
    DeadLetters(store).add([dead_letter(1, topic=HOSTILE)])
    done = actions.start_replay(store, DeadLetterFilter(topic=HOSTILE, text="Broker"), who=HOSTILE)
    replay.cancel(store, done.operation_id, who=HOSTILE, origin="cli")

    for page in (opened(path), opened(path, operation=done.operation_id)):
        assert not page.exception
        assert not any("<script" in element.body for element in page.get("html"))


@pytest.mark.slow
def test_the_page_lists_the_replays_of_an_application_and_a_cluster(path, store):
    for number, application in enumerate(("checkout", "billing")):
        DeadLetters(store).add([dead_letter(number, topic=application, application=application)])
        actions.start_replay(store, DeadLetterFilter(topic=application))
    application_filter.applications.clear()
    application_filter.clusters.clear()

    page = opened(path)
    assert "2 replays in progress" in text_of(page)
    assert page.selectbox(key="application").options == ["All applications", "billing", "checkout", "(none)"]

    page = opened(path, application="checkout")
    text = text_of(page)
    assert "1 record: topic checkout" in text and "topic billing" not in text.split("Audit of all")[0]
    assert "Audit of all applications and clusters" in text
    page = opened(path, application="checkout", cluster="another")
    assert "No replay of this application or cluster." in text_of(page)
    page.selectbox(key="application").set_value("All applications").run()
    assert not page.exception
