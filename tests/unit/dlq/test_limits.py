"""Limits of dead letters: exceeded limits are reported once, and no dead letter is lost."""

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
    exceeded_limits,
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
    ("load", "exceeded"),
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
def test_a_limit_is_exceeded_above_its_value_and_not_at_it(load, exceeded):
    found = exceeded_limits(load, DeadLetterLimits(10, 100, 60.0), NOW)

    assert tuple(excess.what for excess in found) == exceeded
    assert all(excess.advice and "dlq_max_" in excess.text for excess in found)


def test_a_removed_limit_is_never_exceeded():
    assert exceeded_limits(DeadLetterLoad(10**9, 10**15, 0.0), DeadLetterLimits(None, None, None), NOW) == ()


def test_only_pending_dead_letters_are_measured(store):
    dead_letters = DeadLetters(store)
    dead_letters.add([dead_letter(1, value=b"12345"), dead_letter(2, value=None), dead_letter(3, value=b"1")])
    dead_letters.archive(DeadLetterFilter(ids=("m-3",)), who="ann", origin="python")

    assert measure(store, NOW) == DeadLetterLoad(2, 5, dead_letter(1).failed_at)
    assert measure(Store.open(store.path.with_name("empty.duckdb")), NOW) == DeadLetterLoad(0, 0, None)


class Timer:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_an_exceeded_limit_and_its_end_are_reported_once_each(store):
    timer, dead_letters = Timer(), DeadLetters(store)
    watch = LimitWatch(DeadLetterLimits(dead_letters=1), timer=timer)
    dead_letters.add([dead_letter(1), dead_letter(2)])

    notices = []
    for _ in range(3):
        notices += watch.check(store, NOW)
        timer.now += 10
    dead_letters.archive(DeadLetterFilter(), who="ann", origin="python")
    for _ in range(3):
        notices += watch.check(store, NOW)
        timer.now += 10

    assert [(notice.kind, notice.severity) for notice in notices] == [(OVER, "warning"), (WITHIN, "info")]
    assert "2 dead letters pending; the limit (dlq_max_size) is 1. List the groups" in notices[0].text
    assert notices[0].details["subject"] == notices[1].details["subject"] == "number of dead letters"
    assert dead_letters.count(DeadLetterFilter(state=None)) == 2


@pytest.mark.parametrize(("dead_letters", "expected"), [(1, [100.0, 105.0, 110.0, 115.0]), (0, [100.0])])
def test_the_watch_measures_every_five_seconds_and_less_often_without_dead_letters(
    store, monkeypatch, dead_letters, expected
):
    timer, measured_at = Timer(), []
    monkeypatch.setattr(
        "producer_core.dlq.limits.measure",
        lambda store, now: measured_at.append(timer.now) or DeadLetterLoad(dead_letters, 0, None),
    )
    watch = LimitWatch(DeadLetterLimits(), timer=timer)

    for _ in range(20):
        watch.check(store, NOW)
        timer.now += 1

    assert measured_at == expected


def test_an_empty_store_is_measured_again_after_a_write_and_once_a_minute(store, monkeypatch):
    timer, measured_at = Timer(), []
    monkeypatch.setattr(
        "producer_core.dlq.limits.measure",
        lambda store, now: measured_at.append(timer.now) or DeadLetterLoad(0, 0, None),
    )
    watch, writer = LimitWatch(DeadLetterLimits(), timer=timer), Store.open(store.path)
    for second in range(200):
        watch.check(store, NOW)
        if second == 20:
            writer.set_setting("dlq_max_size", 5)
        timer.now += 1

    assert measured_at == [100.0, 130.0, 190.0, 250.0]


def test_a_slow_measurement_is_taken_less_often(store, monkeypatch):
    timer, measured_at = Timer(), []

    def slow(store, now):
        measured_at.append(timer.now)
        timer.now += 0.5
        return DeadLetterLoad(1, 0, None)

    monkeypatch.setattr("producer_core.dlq.limits.measure", slow)
    watch = LimitWatch(DeadLetterLimits(), timer=timer)
    for _ in range(1200):
        watch.check(store, NOW)
        timer.now += 1

    assert measured_at[:3] == [100.0, 150.5, 201.0]


def test_limits_of_the_store_override_those_of_a_producer(store):
    limits = DeadLetterLimits(dead_letters=7)

    assert (
        CliRunner()
        .invoke(main, ["store", "set", "dlq_max_bytes=2KiB", "dlq_max_age=none", "--store", str(store.path)])
        .exit_code
        == 0
    )
    assert limits.overridden_by(store.settings()) == DeadLetterLimits(7, 2048, None)
    CliRunner().invoke(
        main, ["store", "set", "dlq_max_size=20", "dlq_max_bytes=default", "--store", str(store.path)]
    )
    assert limits.overridden_by(store.settings()) == DeadLetterLimits(20, 256 << 20, None)


@pytest.mark.parametrize(
    ("setting", "error"),
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
def test_an_invalid_setting_changes_nothing(store, setting, error):
    result = CliRunner().invoke(main, ["store", "set", "dlq_max_age=1d", setting, "--store", str(store.path)])

    assert result.exit_code == 2 and error in result.output + result.stderr
    assert store.settings() == {} and store.rows("audit_latest") == []


# without a store


def test_dead_letters_above_the_limit_without_a_store_are_spilled_and_imported_by_the_next_store(
    tmp_path, store
):
    spill = Spill(tmp_path / "spill")
    queue = DeadLetterQueue(max_size=100, max_bytes=40, overflow=spill.append)
    added = [dead_letter(number, key=b"", value=bytes(10)) for number in range(1, 8)]

    for one in added:
        queue.add(one)

    assert (len(queue), queue.bytes, queue.spilled, queue.dropped) == (4, 40, 3, 0)
    DeadLetters(store).add(spill.take())
    assert DeadLetters(store).bodies(["m-1", "m-2", "m-3"]) == added[:3]
    assert queue.dead_letters() == added[3:]


def test_dead_letters_above_the_age_limit_without_a_store_are_spilled(tmp_path):
    now, spill = [NOW], Spill(tmp_path / "spill")
    queue = DeadLetterQueue(max_age=60.0, overflow=spill.append, clock=lambda: now[0])
    queue.add(dead_letter(1, failed_at=NOW))
    now[0] += 61
    queue.add(dead_letter(2, failed_at=now[0]))

    assert [one.message_id for one in queue.dead_letters()] == ["m-2"]
    assert [one.message_id for one in spill.take()] == ["m-1"]


def test_removed_and_replaced_dead_letters_do_not_count(tmp_path):
    queue = DeadLetterQueue(max_bytes=1000)
    queue.add(dead_letter(1, key=b"123", value=b"12345", headers=(("a", b"12"), ("b", None))))
    queue.add(dead_letter(1, key=None, value=b"1"))
    assert queue.bytes == 1

    queue.remove(["m-1", "unknown"])
    assert queue.bytes == 0


def test_if_the_spill_file_cannot_be_written_the_dead_letter_stays_in_memory():
    def fail(dead_letters):
        raise OSError("full")

    queue = DeadLetterQueue(max_bytes=5, overflow=fail)
    with pytest.raises(OSError, match="full"):
        queue.add(dead_letter(1))

    assert [one.message_id for one in queue.dead_letters()] == ["m-1"]
