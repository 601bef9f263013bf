"""Test clear and undo."""

from __future__ import annotations

from producer_core.dashboard import actions, queries
from producer_core.dlq import DeadLetterFilter, DeadLetters
from tests.fixtures.dead_letter_pages import dead_letter


def test_clear_archives_and_undo_restores_the_same_dead_letters(store):
    dead_letters = DeadLetters(store)
    dead_letters.add([dead_letter(1), dead_letter(2), dead_letter(3)])
    first = actions.clear(store, DeadLetterFilter(ids=("m-1",)))
    second = actions.clear(store, DeadLetterFilter())
    assert (first.ok, second.text) == (True, "Archived 2 dead letters.")
    assert actions.undo_clear(store, second.undo).ok
    assert dead_letters.get("m-1").state == "archived"
    assert dead_letters.count(DeadLetterFilter()) == 2


def test_an_action_excludes_dead_letters_that_arrived_after_it_was_offered(store):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = queries.dead_letters(store, DeadLetterFilter())
    DeadLetters(store).add([dead_letter(3)])
    scope = queries.scope(store, page.seen)
    assert scope.count == 2
    assert actions.clear(store, scope.about).text.startswith("Archived 2 ")
    assert DeadLetters(store).count(DeadLetterFilter()) == 1
