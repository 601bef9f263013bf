"""Groups of dead letters with one cause, the largest first."""

from __future__ import annotations

from producer_core.dlq import DeadLetterFilter, Group
from tests.fixtures.dead_letters import NOW, SOME, dead_letter


def test_groups_are_sorted_by_size_and_have_a_sample_and_advice(dead_letters):
    dead_letters.add([*SOME, dead_letter(5, fingerprint="fa", code="MSG_SIZE_TOO_LARGE", topic="orders")])

    first, second = dead_letters.groups(DeadLetterFilter())

    assert isinstance(first, Group)
    assert (first.fingerprint, first.count, first.topics) == ("fa", 3, ("orders", "refunds"))
    assert (first.first_seen, first.last_seen) == (NOW + 1, NOW + 5)
    assert first.verdicts == {"not_sent": 1, "possibly_persisted": 1, "rejected": 1}
    assert first.sample_text == "Broker: Message size too large"
    assert first.advice and first.meaning
    assert (second.fingerprint, second.advice) == ("fb", "")


def test_groups_reset_duckdb_to_one_thread(dead_letters):
    dead_letters.add([dead_letter(1)])

    assert dead_letters.groups(DeadLetterFilter(producer_id=dead_letter(1).producer_id))

    with dead_letters._store.borrow() as connection:
        assert connection.execute("SELECT current_setting('threads')").fetchone() == (1,)


def test_a_group_advises_a_check_of_the_topic_only_if_a_message_may_have_been_sent(dead_letters):
    not_sent = {"code": "_MSG_TIMED_OUT", "fingerprint": "fa", "verdict": "not_sent"}
    dead_letters.add([dead_letter(1, **not_sent), dead_letter(2, **not_sent)])
    (group,) = dead_letters.groups(DeadLetterFilter())
    assert group.advice.startswith("The message never left the client")

    dead_letters.add([dead_letter(3, **{**not_sent, "verdict": "possibly_persisted"})])
    (group,) = dead_letters.groups(DeadLetterFilter())
    assert group.advice.startswith("Check whether the message is on the topic")
