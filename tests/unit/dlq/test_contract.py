"""Dead letters are unchanged after a round trip through the store, a spill file and memory."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer_core.dlq import DeadLetterQueue, DeadLetters, Spill
from producer_core.events import Attempt, DeadLetter
from producer_core.store import Store

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
TIMES = st.floats(0, 4e9, allow_nan=False)
BYTES = st.none() | st.binary(max_size=60) | st.just(b"") | TEXTS.map(str.encode)
HEADERS = st.lists(st.tuples(st.sampled_from(["a", "a", "b", "", "trace"]) | TEXTS, BYTES), max_size=6)
ATTEMPTS = st.lists(st.builds(Attempt, TIMES, TEXTS, TEXTS), max_size=5, unique=True)

DEAD_LETTERS = st.builds(
    DeadLetter,
    message_id=st.just("m"),
    cluster_id=TEXTS,
    producer_id=TEXTS,
    topic=TEXTS,
    key=BYTES,
    value=BYTES,
    headers=HEADERS.map(tuple),
    partition=st.none() | st.integers(0, 2**31 - 1),
    timestamp_ms=st.none() | st.integers(0, 2**53),
    verdict=st.sampled_from(
        ["not_sent", "rejected", "possibly_persisted", "found", "absent", "inconclusive"]
    ),
    verdict_reason=TEXTS,
    kind=st.sampled_from(["local", "permanent", "temporary", "timed_out", "fatal"]),
    code=TEXTS,
    error_text=TEXTS,
    fingerprint=TEXTS,
    attempts=ATTEMPTS.map(tuple),
    accepted_at=TIMES,
    failed_at=TIMES,
    replayable=st.booleans(),
    source=st.none() | TEXTS,
    host=TEXTS,
    version=TEXTS,
    quarantined=st.booleans(),
    replay_count=st.integers(0, 100),
)


class InStore:
    def __init__(self, folder):
        self.dead_letters = DeadLetters(Store.open(folder / "store.duckdb"))

    def round_trip(self, dead_letter):
        self.dead_letters.add([dead_letter])
        return self.dead_letters.get(dead_letter.message_id)


class InSpill:
    def __init__(self, folder):
        self.spill = Spill(folder / "spill")

    def round_trip(self, dead_letter):
        self.spill.append([dead_letter])
        (found,) = self.spill.take()
        return found


class InMemory:
    def __init__(self, folder):
        self.queue = DeadLetterQueue()

    def round_trip(self, dead_letter):
        self.queue.add(dead_letter)
        return self.queue.get(dead_letter.message_id)


class OverflowingIntoStore:
    """Memory, then spill file, then store: the path of dead letters of a producer without a store."""

    def __init__(self, folder):
        self.spill = Spill(folder / "spill")
        self.queue = DeadLetterQueue(max_size=1, max_bytes=0, overflow=self.spill.append)
        self.dead_letters = DeadLetters(Store.open(folder / "store.duckdb"))

    def round_trip(self, dead_letter):
        self.queue.max_bytes = -1  # so that the next dead letter overflows at once
        self.queue.add(dead_letter)
        assert len(self.queue) == 0
        with self.spill.taking() as taken:
            self.dead_letters.add(taken)
        return self.dead_letters.get(dead_letter.message_id)


@pytest.fixture(params=[InStore, InSpill, InMemory, OverflowingIntoStore], scope="module")
def backend(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("dead_letters"))


NUMBERS = itertools.count()


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dead_letter=DEAD_LETTERS)
def test_a_dead_letter_is_unchanged_after_a_round_trip(backend, dead_letter):
    dead_letter = DeadLetter(**{**_fields(dead_letter), "message_id": f"m-{next(NUMBERS)}"})

    assert backend.round_trip(dead_letter) == dead_letter


@pytest.mark.slow
def test_a_value_of_ten_megabytes_is_not_truncated(backend):
    value = bytes(range(256)) * 40_000
    dead_letter = example(
        key=value[:1000], value=value, headers=(("a", value[:5000]), ("a", None), ("a", b""))
    )

    assert backend.round_trip(dead_letter) == dead_letter


def test_all_attempts_are_kept(backend):
    attempts = tuple(Attempt(float(number), f"CODE_{number}", f"text {number}") for number in range(1000))
    read = backend.round_trip(example(attempts=attempts, error_text="text 999"))

    assert (read.attempts[0].text, read.error_text, len(read.attempts)) == ("text 0", "text 999", 1000)


def example(**fields):
    defaults = {
        "message_id": f"e-{next(NUMBERS)}", "cluster_id": "c", "producer_id": "p", "topic": "t", "key": None, "value": None,
        "headers": (), "partition": None, "timestamp_ms": None, "verdict": "rejected", "verdict_reason": "", "kind": "local",
        "code": "X", "error_text": "", "fingerprint": "f", "attempts": (), "accepted_at": 1.0, "failed_at": 2.0,
    }  # fmt: skip
    return DeadLetter(**{**defaults, **fields})


def _fields(dead_letter):
    return {name: getattr(dead_letter, name) for name in DeadLetter.__dataclass_fields__}
