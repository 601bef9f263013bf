"""Drafts of edits in the store: one for each user and record."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.revisions.drafts import MAX_TEXT, Draft, Drafts
from producer_core.errors import ConfigError
from producer_core.store import Store
from producer_core.store.retention import Retention, prune
from tests.fixtures.edits import add, json_dead_letter
from tests.fixtures.replays import BY, message_id

ONE, TWO = message_id(1), message_id(2)
DRAFT = Draft(0, '{"amount": ', "{}", "k", "typing")


def test_a_draft_is_found_by_its_user_in_another_process_of_the_store(store, clock):
    Drafts(store, "ann", clock=clock).save(ONE, DRAFT)
    again = Store.open(store.path)

    assert Drafts(again, "ann").find(ONE) == Draft(0, '{"amount": ', "{}", "k", "typing", clock())
    assert Drafts(again, "bob").find(ONE) is None and Drafts(again, "ann").find(TWO) is None
    assert Drafts(again, "bob").others(ONE) == [("ann", clock())] and Drafts(again, "ann").others(ONE) == []


def test_a_later_draft_replaces_the_earlier_one_and_is_discarded(store, clock):
    drafts = Drafts(store, "ann", clock=clock)
    drafts.save(ONE, DRAFT)
    drafts.save(ONE, Draft(1, "{}", "{}"))

    assert drafts.find(ONE).base == 1
    drafts.discard(ONE)
    assert drafts.find(ONE) is None


def test_a_draft_that_is_too_long_is_refused_and_the_earlier_one_stays(store):
    drafts = Drafts(store, "ann")
    drafts.save(ONE, DRAFT)

    with pytest.raises(ConfigError, match="dlq edit"):
        drafts.save(ONE, Draft(0, "x" * (MAX_TEXT + 1), ""))
    assert drafts.find(ONE).value == DRAFT.value


def test_a_purge_and_the_retention_delete_drafts(store, clock):
    add(store, json_dead_letter(1))
    drafts = Drafts(store, "ann", clock=clock)
    drafts.save(ONE, DRAFT)
    dead = DeadLetters(store, clock=clock)
    dead.archive(DeadLetterFilter(), **BY)
    clock.forward(200_000)
    archived = DeadLetterFilter(state="archived")
    dead.purge(archived, **BY, confirmation=dead.purge_phrase(archived))
    assert drafts.find(ONE) is None

    drafts.save(TWO, DRAFT)
    clock.forward(1_000 * 86_400)
    with store.borrow(write=True) as connection:
        prune(connection, Retention(), clock())
    assert drafts.find(TWO) is None
