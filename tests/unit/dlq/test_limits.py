"""Beyond its bound a queue of dead letters says so, once, and loses none."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetterQueue, DeadLetters, Spill
from producer_core.dlq.limits import (
    OVER,
    WITHIN,
    DeadLetterLimits,
    DeadLetterLoad,
    LimitWatch,
    judge,
    measure,
)
from producer_core.store import Store
from tests.fixtures.dead_letters import dead_letter

NOW = 1_800_000_000.0
DAY = 86400.0


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


@pytest.mark.parametrize(
    ("load", "passed"),
    [
        (DeadLetterLoad(0, 0, None), ()),
        (DeadLetterLoad(10, 100, NOW - 60), ()),
        (DeadLetterLoad(11, 100, NOW), ("number",)),
        (DeadLetterLoad(10, 101, NOW), ("bytes",)),
        (DeadLetterLoad(1, 1, NOW - 61), ("age",)),
        (DeadLetterLoad(11, 101, NOW - 61), ("number", "bytes", "age")),
        (DeadLetterLoad(1, 1, NOW + 60), ()),
    ],
)
def test_a_bound_is_passed_above_it_and_not_at_it(load, passed):
    found = judge(load, DeadLetterLimits(10, 100, 60.0), NOW)

    assert tuple(excess.what for excess in found) == passed
    assert all(excess.advice and "dlq_max_" in excess.text for excess in found)


def test_a_bound_that_was_taken_away_is_never_passed():
    assert judge(DeadLetterLoad(10**9, 10**15, 0.0), DeadLetterLimits(None, None, None), NOW) == ()


def test_what_waits_is_measured_and_what_was_archived_is_not(store):
    dead_letters = DeadLetters(store)
    dead_letters.add([dead_letter(1, value=b"12345"), dead_letter(2, value=None), dead_letter(3, value=b"1")])
    dead_letters.archive(DeadLetterFilter(ids=("m-3",)), who="ann", origin="python")

    assert measure(store) == DeadLetterLoad(2, 5, dead_letter(1).failed_at)
    assert measure(Store.open(store.path.with_name("empty.duckdb"))) == DeadLetterLoad(0, 0, None)


class Timer:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_passed_bound_is_said_once_and_its_end_once(store):
    timer, dead_letters = Timer(), DeadLetters(store)
    watch = LimitWatch(DeadLetterLimits(dead_letters=1), timer=timer)
    dead_letters.add([dead_letter(1), dead_letter(2)])

    said = []
    for _ in range(3):
        said += watch.look(store, NOW)
        timer.now += 10
    dead_letters.archive(DeadLetterFilter(), who="ann", origin="python")
    for _ in range(3):
        said += watch.look(store, NOW)
        timer.now += 10

    assert [(notice.kind, notice.severity) for notice in said] == [(OVER, "warning"), (WITHIN, "info")]
    assert "2 dead letters wait; the bound (dlq_max_size) is 1. Look at the groups" in said[0].text
    assert said[0].details["subject"] == said[1].details["subject"] == "number of dead letters"
    assert dead_letters.count(DeadLetterFilter(state=None)) == 2


def test_the_watch_looks_every_five_seconds_at_most(store, monkeypatch):
    timer, looked = Timer(), []
    monkeypatch.setattr(
        "producer_core.dlq.limits.measure",
        lambda store: looked.append(timer.now) or DeadLetterLoad(0, 0, None),
    )
    watch = LimitWatch(DeadLetterLimits(), timer=timer)

    for _ in range(20):
        watch.look(store, NOW)
        timer.now += 1

    assert looked == [100.0, 105.0, 110.0, 115.0]


def test_a_look_that_takes_long_is_made_seldom(store, monkeypatch):
    timer, looked = Timer(), []

    def slow(store):
        looked.append(timer.now)
        timer.now += 0.5
        return DeadLetterLoad(0, 0, None)

    monkeypatch.setattr("producer_core.dlq.limits.measure", slow)
    watch = LimitWatch(DeadLetterLimits(), timer=timer)
    for _ in range(1200):
        watch.look(store, NOW)
        timer.now += 1

    assert looked[:3] == [100.0, 150.5, 201.0]


def test_the_bounds_of_the_store_go_before_those_of_a_producer(store):
    given = DeadLetterLimits(dead_letters=7)

    assert (
        CliRunner()
        .invoke(main, ["store", "set", "dlq_max_bytes=2KiB", "dlq_max_age=none", "--store", str(store.path)])
        .exit_code
        == 0
    )
    assert given.set_by(store.settings()) == DeadLetterLimits(7, 2048, None)
    CliRunner().invoke(
        main, ["store", "set", "dlq_max_size=20", "dlq_max_bytes=default", "--store", str(store.path)]
    )
    assert given.set_by(store.settings()) == DeadLetterLimits(20, 256 << 20, None)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("dlq_max_sise=1", "Did you mean dlq_max_size?"),
        ("dlq_max_size=many", "is not a size"),
        ("dlq_max_size=1KiB", "is not a size"),
        ("dlq_max_bytes=0", "is not a size"),
        ("keep_settled=soon", "is not a duration"),
        ("keep_settled=0s", "too short"),
        ("keep_settled=none", "is not a duration"),
        ("nothing", "is not name=value"),
    ],
)
def test_a_setting_that_makes_no_sense_changes_nothing(store, word, said):
    result = CliRunner().invoke(main, ["store", "set", "dlq_max_age=1d", word, "--store", str(store.path)])

    assert result.exit_code == 2 and said in result.output + result.stderr
    assert store.settings() == {} and store.rows("audit_latest") == []


# without a store


def test_without_a_store_what_is_beyond_the_bound_goes_to_the_spill_and_into_the_next_store(tmp_path, store):
    spill = Spill(tmp_path / "spill")
    queue = DeadLetterQueue(max_size=100, max_bytes=40, overflow=spill.append)
    whole = [dead_letter(number, key=b"", value=bytes(10)) for number in range(1, 8)]

    for one in whole:
        queue.add(one)

    assert (len(queue), queue.bytes, queue.spilled, queue.dropped) == (4, 40, 3, 0)
    DeadLetters(store).add(spill.take())
    assert DeadLetters(store).bodies(["m-1", "m-2", "m-3"]) == whole[:3]
    assert queue.dead_letters() == whole[3:]


def test_without_a_store_what_is_too_old_goes_to_the_spill(tmp_path):
    now, spill = [NOW], Spill(tmp_path / "spill")
    queue = DeadLetterQueue(max_age=60.0, overflow=spill.append, clock=lambda: now[0])
    queue.add(dead_letter(1, failed_at=NOW))
    now[0] += 61
    queue.add(dead_letter(2, failed_at=now[0]))

    assert [one.message_id for one in queue.dead_letters()] == ["m-2"]
    assert [one.message_id for one in spill.take()] == ["m-1"]


def test_what_was_taken_out_counts_no_more(tmp_path):
    queue = DeadLetterQueue(max_bytes=1000)
    queue.add(dead_letter(1, key=b"123", value=b"12345", headers=(("a", b"12"), ("b", None))))
    queue.add(dead_letter(1, key=None, value=b"1"))
    assert queue.bytes == 1

    queue.remove(["m-1", "nobody"])
    assert queue.bytes == 0


def test_a_spill_that_cannot_be_written_keeps_the_letter_in_memory():
    def refuse(dead_letters):
        raise OSError("full")

    queue = DeadLetterQueue(max_bytes=5, overflow=refuse)
    with pytest.raises(OSError, match="full"):
        queue.add(dead_letter(1))

    assert [one.message_id for one in queue.dead_letters()] == ["m-1"]
