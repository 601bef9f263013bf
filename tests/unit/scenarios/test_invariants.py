"""The checker of the fault scenarios finds each kind of violation, and reports none in a correct run."""

from __future__ import annotations

import pytest

from tests.scenarios.faults.invariants import Evidence, check, overtakers
from tests.scenarios.faults.ledger import Book, Entry, Process, Report, Watch, parse
from tests.scenarios.faults.stage import unseen

CLOSED = {"journaled": 0, "lost": 0, "first": 0}


def life(numbers, *, dead=(), closed=CLOSED, verdict="possibly_persisted", offsets=None):
    """Return a process that accepted and reported these messages; offsets are those of the log, in one partition."""
    reports = [
        Report(n, n not in dead, 0, (offsets or {}).get(n, place), "" if n not in dead else verdict)
        for place, n in enumerate(numbers)
    ]
    return Process(accepted=list(numbers), reports=reports, closed=closed)


def log(*numbers):
    return [Entry(0, offset, "k", number) for offset, number in enumerate(numbers)]


def found(evidence):
    return sorted({violation.invariant for violation in check(evidence)})


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_correct_run_has_no_violation(guarantee):
    assert found(Evidence(guarantee, [life(range(5))], log(0, 1, 2, 3, 4))) == []


def test_a_missing_acknowledged_record_is_found():
    assert found(Evidence("at_least_once", [life([0, 1, 2])], log(0, 1))) == ["I1", "I6"]


def test_a_missing_record_is_excused_only_if_it_was_acknowledged_without_an_offset():
    lives = [life([0, 1, 2], offsets={0: 0, 1: None, 2: 0})]

    assert unseen(lives) == {1}
    assert found(Evidence("at_least_once", lives, log(0), excused=unseen(lives))) == ["I1", "I6"]


def test_an_accepted_record_without_an_outcome_is_found():
    silent = Process(accepted=[0, 1], reports=[Report(0, True, 0, 0)], closed=CLOSED)

    assert found(Evidence("at_least_once", [silent], log(0))) == ["I2", "I9"]


def test_a_second_copy_is_a_violation_only_if_the_guarantee_excludes_it():
    twice = log(0, 1, 1)

    assert found(Evidence("at_least_once", [life([0, 1])], twice, once=False)) == []
    assert found(Evidence("exactly_once", [life([0, 1])], twice)) == ["I2"]


def test_at_least_once_an_uncounted_second_copy_is_found():
    one, other = life([0, 1]), life([2], offsets={2: 4})
    twice = log(0, 1, 1, 2, 2)

    one.remarks["possible_duplicates"] = 1
    assert found(Evidence("at_least_once", [one, other], twice)) == ["I10"]

    other.remarks["possible_duplicates"] = 1
    assert found(Evidence("at_least_once", [one, other], twice)) == []


def test_an_unreported_order_break_is_found():
    swapped = life([0, 1], offsets={0: 1, 1: 0})
    assert found(Evidence("at_least_once", [swapped], log(1, 0))) == ["I3"]
    assert found(Evidence("exactly_once", [swapped], log(1, 0))) == ["I3"]

    swapped.remarks["order_breaks"] = 1
    assert found(Evidence("at_least_once", [swapped], log(1, 0))) == []


def test_the_first_of_several_copies_counts_for_the_order():
    assert overtakers(log(0, 1, 0, 2), lambda entry: entry.partition) == set()
    assert overtakers(log(2, 3, 1, 4), lambda entry: entry.partition) == {2, 3}


@pytest.mark.parametrize("verdict", ["not_sent", "rejected", "absent"])
def test_a_wrong_safe_verdict_is_found(verdict):
    assert found(Evidence("at_least_once", [life([0, 1], dead=[1], verdict=verdict)], log(0, 1))) == ["I4"]


def test_an_ambiguous_verdict_is_not_a_violation():
    assert found(Evidence("at_least_once", [life([0, 1], dead=[1])], log(0, 1))) == []


def test_a_record_that_was_never_sent_is_found():
    assert found(Evidence("exactly_once", [life([0, 1])], log(0, 1, 77))) == ["I5"]


def test_a_wrong_offset_is_found():
    assert found(Evidence("at_least_once", [life([0, 1], offsets={1: 5})], log(0, 1))) == ["I6"]


def test_a_duplicate_report_is_found():
    one = life([0])
    one.reports *= 2

    assert found(Evidence("at_least_once", [one], log(0))) == ["I9"]


def test_a_journaled_record_may_be_missing():
    silent = Process(accepted=[0, 1], reports=[Report(0, True, 0, 0)], closed={**CLOSED, "journaled": 1})

    assert found(Evidence("exactly_once", [silent], log(0))) == []


def test_a_ledger_is_read_without_its_torn_end(tmp_path):
    book = Book(tmp_path / "ledger")
    for fields in (
        ["p"],
        ["a", 0],
        ["r", 0, "ok", 1, 7, "-", "-"],
        ["m", "landed"],
        ["N", "fenced", "a b"],
        ["a", 1],
    ):
        book.write(*fields)
    with (tmp_path / "ledger").open("ab") as file:
        file.write(b"a 2")

    (one,) = parse(tmp_path / "ledger")

    assert one.accepted == [0, 1]
    assert one.reports == [Report(0, True, 1, 7, "-", "-")]
    assert (one.remarks["landed"], one.notices) == (1, [("fenced", "a b")])
    watch = Watch(tmp_path / "ledger")
    assert (watch.look()["a"], watch.last) == (2, 1)
