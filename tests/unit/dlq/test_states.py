"""The states of a dead letter: claims, settled replays, and the changes that are allowed."""

from __future__ import annotations

import itertools
import threading

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters, states
from producer_core.events import Attempt
from producer_core.store import Store
from tests.fixtures.dead_letters import EVERYTHING, NOW, SOME, dead_letter


def test_a_claim_gets_only_dead_and_replayable_dead_letters(dead_letters):
    dead_letters.add([dead_letter(1), dead_letter(2), dead_letter(3, replayable=False)])

    assert dead_letters.claim("op-1", ["m-2", "m-1", "m-3", "unknown"]) == ["m-2", "m-1"]
    assert dead_letters.claim("op-2", ["m-1", "m-2"]) == []
    assert dead_letters.claim("op-2", []) == []


@pytest.mark.slow
def test_concurrent_claims_never_get_the_same_dead_letter(tmp_path):
    path = tmp_path / "store.duckdb"
    ids = [f"m-{number}" for number in range(40)]
    DeadLetters(Store.open(path)).add([dead_letter(number) for number in range(40)])
    claimed, start = [], threading.Barrier(4)

    def run(name):
        dead_letters = DeadLetters(Store.open(path))
        start.wait()
        for first in range(0, 40, 5):
            claimed.extend(dead_letters.claim(name, ids[first : first + 5]))

    threads = [threading.Thread(target=run, args=(str(number),)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(claimed) == sorted(ids)


def test_a_replay_settles_a_dead_letter_once(dead_letters):
    dead_letters.add([dead_letter(1), dead_letter(2)])
    dead_letters.claim("op", ["m-1", "m-2"])

    assert dead_letters.settle_replayed("m-1", 2, 77)
    assert not dead_letters.settle_replayed("m-1", 2, 78)
    assert dead_letters.settle_landed("m-2", 0, 5)
    row = dead_letters.table(DeadLetterFilter(state="replayed")).to_pylist()[0]
    assert (row["landed_partition"], row["landed_offset"], row["operation_id"]) == (2, 77, "op")


def test_a_failed_replay_returns_the_dead_letter_to_dead_and_counts_it(dead_letters):
    dead_letters.add([dead_letter(1)])
    dead_letters.claim("op", ["m-1"])
    again = dead_letter(1, failed_at=NOW + 60, code="X", attempts=(Attempt(NOW + 60, "X", "again"),))

    assert dead_letters.settle_failed(again)

    one = dead_letters.get("m-1")
    assert (one.state, one.replay_count, one.code, len(one.attempts)) == ("dead", 1, "X", 2)
    assert not dead_letters.settle_failed(dead_letter(9))


def test_unclaimed_dead_letters_are_unchanged(dead_letters):
    dead_letters.add(SOME)
    dead_letters.claim("op", ["m-1", "m-2"])
    dead_letters.claim("other", ["m-3"])

    assert dead_letters.unclaim("op", ["m-2", "m-3"]) == ["m-2"]
    assert dead_letters.unclaim("op") == ["m-1"]
    assert dead_letters.count_by(EVERYTHING, "state") == {"dead": 3, "replaying": 1}
    assert dead_letters.get("m-1") == SOME[0]


def test_a_claimed_dead_letter_cannot_be_archived(dead_letters):
    dead_letters.add([dead_letter(1)])
    dead_letters.claim("op", ["m-1"])

    assert dead_letters.archive(DeadLetterFilter(ids=("m-1",)), who="ada", origin="cli").count == 0
    assert dead_letters.settle_replayed("m-1", 0, 1)
    assert dead_letters.restore(EVERYTHING, who="ada", origin="cli").count == 0


def test_only_allowed_state_changes_are_possible(dead_letters):
    for before, after in itertools.product(
        ("dead", "replaying", "replayed", "landed", "archived", "purged"), repeat=2
    ):
        if (before, after) not in states.ALLOWED:
            with pytest.raises(ValueError, match="cannot go"):
                states.move(None, ("true", []), before, after, now=0)
