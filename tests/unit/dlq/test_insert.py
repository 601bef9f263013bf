"""A failed message becomes one dead letter, even if it fails again or is reported twice."""

from __future__ import annotations

from producer_core.dlq import DeadLetterFilter, DeadLetters, insert
from producer_core.events import Attempt
from producer_core.store import Store
from tests.fixtures.dead_letters import EVERYTHING, NOW, dead_letter, state_of
from tests.fixtures.operation_counts import counts_of


def test_a_message_that_fails_again_stays_one_dead_letter_with_all_attempts(dead_letters, now):
    dead_letters.add([dead_letter(1, replay_count=2)])
    dead_letters.archive(DeadLetterFilter(), who="ada", origin="cli")

    again = Attempt(NOW + 50, "_MSG_TIMED_OUT", "timed out")
    dead_letters.add(
        [dead_letter(1, failed_at=NOW + 50, code="_MSG_TIMED_OUT", attempts=(again,), accepted_at=NOW + 49)]
    )

    one = dead_letters.get("m-1")
    assert (one.state, one.code, one.replay_count, one.failed_at) == ("dead", "_MSG_TIMED_OUT", 2, NOW + 50)
    assert one.accepted_at == NOW
    assert [attempt.code for attempt in one.attempts] == ["MSG_SIZE_TOO_LARGE", "_MSG_TIMED_OUT"]
    assert dead_letters.count(EVERYTHING) == 1


def test_adding_the_same_dead_letter_twice_changes_nothing(dead_letters):
    dead_letters.add([dead_letter(1), dead_letter(1)])
    dead_letters.archive(DeadLetterFilter(), who="ada", origin="cli")

    dead_letters.add([dead_letter(1)])

    assert state_of(dead_letters, "m-1") == "archived"
    assert dead_letters.count(EVERYTHING) == 1


def test_two_failures_of_a_message_in_one_batch_are_merged(dead_letters):
    later = dead_letter(1, failed_at=NOW + 9, attempts=(Attempt(NOW + 9, "Y", "again"),))
    dead_letters.add([dead_letter(1), later])

    assert len(dead_letters.get("m-1").attempts) == 2


def test_a_new_dead_letter_takes_few_function_calls(dead_letters):
    """It took 15 calls when this test was written; a rejecting topic writes one for each message."""
    letters = [dead_letter(number) for number in range(1000)]

    counts = counts_of(lambda: dead_letters.add(letters))

    assert counts.calls <= 20 * len(letters)
    assert dead_letters.count(EVERYTHING) == len(letters)


def test_a_text_that_is_invalid_in_utf8_does_not_prevent_storing(dead_letters):
    dead_letters.add([dead_letter(1, error_text="bad \udcff", attempts=(Attempt(1.0, "X", "\ud800"),))])

    assert dead_letters.get("m-1").error_text == "bad ?"


class CountingConnection:
    """Keeps the statements that run on a connection."""

    def __init__(self, connection, statements):
        self._connection = connection
        self._statements = statements

    def execute(self, statement, *parameters):
        self._statements.append(statement)
        return self._connection.execute(statement, *parameters)

    def __getattr__(self, name):
        return getattr(self._connection, name)


def test_a_flush_asks_for_no_producer_of_dead_letters_without_a_version(tmp_path):
    """It was one query each flush; only lines of the spill file lack the application of their producer."""
    store, statements = Store.open(tmp_path / "store.duckdb"), []
    for flush in range(3):
        letters = [dead_letter(10 * flush + number, application="checkout") for number in range(10)]
        with store.borrow(write=True) as connection:
            insert.write(CountingConnection(connection, statements), letters, now=NOW)

    assert DeadLetters(store).count(EVERYTHING) == 30
    assert statements != [] and [one for one in statements if "FROM producers" in one] == []
