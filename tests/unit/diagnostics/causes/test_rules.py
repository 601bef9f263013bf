"""The diagnosis: each scenario ranks the right finding first, and missing data yields no finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.diagnostics.causes import BrokerNumbers, CauseInputs, diagnose, over_time


def broker(number=1, **changes):
    """Return a healthy broker with changes. `rtt` and `queue` are means in seconds."""
    answers = changes.pop("answers", 6000)
    usual = BrokerNumbers(
        number, f"kafka{number}:9092", samples=60, up=60, requests=6000, queue_count=6000,
        queue_sum=6000 * changes.pop("queue", 0.006), outbuf_count=6000, outbuf_sum=1.2, rtt_count=answers,
        rtt_sum=answers * changes.pop("rtt", 0.004), rtt_p99=0.02, throttle_sum=changes.pop("throttle", 0.0),
    )  # fmt: skip
    return replace(usual, **changes)


def numbers(*brokers, **changes):
    usual = CauseInputs(
        at=1000.0, seconds=60.0, acknowledged=60_000, samples=60, queued_sum=60_000, room_sum=6_000_000, fill_highest=0.03, batches=6000,
        batch_messages=60_000, batch_bytes=12_000_000, brokers=brokers or (broker(1), broker(2), broker(3)),
    )  # fmt: skip
    return replace(usual, **changes)


FULL = {"queued_sum": 4_800_000, "fill_highest": 0.99}
SMALL_BATCHES = {"batches": 60_000, "batch_bytes": 13_000_000}

SCENARIOS = {
    "queue full": (numbers(**FULL), "The producer's queue is full.", "buffer_memory"),
    "queue filling": (numbers(fill_highest=0.6), "The producer's queue is filling.", "buffer_memory"),
    "throttling that fills the queue": (
        numbers(broker(1, throttle=20.0, throttle_highest=0.9), broker(2), **FULL),
        "The brokers are throttling this producer: quota exceeded.",
        "compression_type",
    ),
    "one slow broker that fills the queue": (
        numbers(broker(1), broker(2, rtt=0.4), broker(3), **FULL),
        "Broker 2 (kafka2:9092) is slower than the others.",
        "",
    ),
    "small batches that fill the queue": (
        numbers(**SMALL_BATCHES, **FULL),
        "Batches are very small.",
        "linger_ms",
    ),
    "small batches that delay messages": (
        numbers(broker(1, queue=0.2), **SMALL_BATCHES),
        "Batches are very small.",
        "linger_ms",
    ),
    "missing polls, detected by waiting reports": (
        numbers(unpolled_highest=40_000, **FULL),
        "Delivery reports are not polled in time.",
        "callback",
    ),
    "missing polls, detected by late statistics": (
        numbers(late_highest=12.0),
        "Delivery reports are not polled in time.",
        "callback",
    ),
    "retries of the client": (
        numbers(broker(1, retries=3000)),
        "Retries use up capacity.",
        "retry_backoff_ms",
    ),
    "retries of the producer": (numbers(retried=20_000), "Retries use up capacity.", "RetryConfig"),
    "one broker down, whose messages fail": (
        numbers(
            broker(1), broker(2, up=0, down=60, answers=0), dead=900,
            causes=(("orders", "_MSG_TIMED_OUT", 900),), **FULL,
        ),
        "Broker 2 (kafka2:9092) is down or cannot be reached.",
        "",
    ),
    "all brokers down for part of the slice": (
        numbers(broker(1, up=40, down=20), broker(2, up=41, down=19), cut_off=19),
        "No broker can be reached.",
        "bootstrap_servers",
    ),
    "requests that time out": (
        numbers(broker(1), broker(2, timeouts=4)),
        "Broker 2 (kafka2:9092) is not responding in time.",
        "request_timeout_ms",
    ),
    "slow network": (
        numbers(broker(1, rtt=0.25), broker(2, rtt=0.3), **FULL),
        "The network or the brokers are slow.",
        "linger_ms",
    ),
    "a slow single broker is the network or the broker": (
        numbers(broker(1, rtt=0.25)),
        "The network or the brokers are slow.",
        "linger_ms",
    ),
    "connections break": (
        numbers(broker(1, disconnects=7)),
        "Connections to broker 1 (kafka1:9092) keep breaking.",
        "keepalive",
    ),
    "an epoch rises": (
        numbers(epoch_rises=1),
        "The idempotent client bumped its epoch.",
        "delivery_timeout_ms",
    ),
    "messages become dead letters": (
        numbers(dead=600, causes=(("payments", "MSG_SIZE_TOO_LARGE", 600),)),
        "600 of 60,600 messages became dead letters on payments: ",
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_ranks_the_right_finding_first(scenario):
    given, title, setting = SCENARIOS[scenario]
    for found in (diagnose(given), over_time([given], now=1060.0)):
        assert found[0].title.startswith(title)
        assert setting in found[0].setting
        assert found[0].evidence and found[0].suggestion
        assert found[0].ongoing


def test_an_effect_is_ranked_after_its_cause():
    found = diagnose(SCENARIOS["one slow broker that fills the queue"][0])
    assert [finding.key for finding in found] == ["slow-2", "full"]


def test_a_finding_has_its_measurements_as_evidence():
    (found,) = diagnose(numbers(broker(1), broker(2, rtt=0.4), broker(3)))
    assert found.evidence == "Requests to it took 400 ms on average; requests to the others took 4.0 ms."


def test_without_a_problem_the_only_finding_is_healthy_delivery():
    (found,) = over_time([numbers(), numbers(at=1060.0)], now=1120.0)
    assert (found.key, found.tone) == ("well", "good")
    assert found.title == "No problems: 120,000 messages acknowledged, none failed."
    assert found.evidence == "A request takes 4.0 ms on average, and the queue was never more than 3.0% full."


@pytest.mark.parametrize(
    "nothing", [[], [CauseInputs(1000.0, 60.0)], [CauseInputs(1000.0, 60.0, acknowledged=5)]], ids=str
)
def test_without_statistics_of_the_client_there_is_no_finding(nothing):
    assert over_time(nothing, now=1060.0) == ()


def test_a_client_that_sends_nothing_is_idle():
    (found,) = over_time([numbers(acknowledged=0, batches=0)], now=1060.0)
    assert (found.key, found.tone) == ("idle", "quiet")


def test_failed_messages_are_found_without_statistics_of_the_client():
    (found,) = over_time([CauseInputs(1000.0, 60.0, acknowledged=99, dead=1)], now=1060.0)
    assert found.title == "1 of 100 messages became a dead letter."


def test_few_measurements_yield_no_finding():
    rare = numbers(broker(1), broker(2, rtt=0.9, answers=2), broker(3, retries=1, requests=4))
    assert diagnose(rare) == ()


def test_small_batches_at_a_light_load_are_not_a_finding():
    assert diagnose(numbers(batches=3000, batch_messages=3000, batch_bytes=600_000)) == ()


def test_a_past_problem_is_ranked_after_an_ongoing_one_and_has_its_time():
    quiet = [numbers(at=1000.0 + 60 * number) for number in range(10)]
    slices = [*quiet]
    slices[2] = replace(slices[2], brokers=(broker(1, down=30, up=30), broker(2)))
    slices[9] = replace(slices[9], fill_highest=0.95)
    first, second = over_time(slices, now=1600.0)
    assert (first.key, first.ongoing) == ("full", True)
    assert (second.key, second.ongoing, second.since, second.until) == ("down-1", False, 1120.0, 1180.0)


def test_a_repeated_problem_is_one_finding_with_the_measurements_of_all_its_slices():
    slices = [
        numbers(at=1000.0 + 60 * number, brokers=(broker(1), broker(2, rtt=rtt)))
        for number, rtt in enumerate((0.1, 0.5, 0.2))
    ]
    (found,) = over_time(slices, now=1180.0)
    assert "took 267 ms on average" in found.evidence  # over all requests, not the mean of means
    assert (found.since, found.until) == (1000.0, 1180.0)


def test_failures_are_counted_over_the_whole_range():
    cause = (("payments", "POLICY_VIOLATION", 30),)
    slices = [numbers(at=1000.0 + 60 * number, dead=30, causes=cause) for number in range(3)]
    (found,) = over_time(slices, now=1180.0)
    assert found.title.startswith("90 of 180,090 messages became dead letters on payments: ")
    assert found.evidence.startswith("90 of them with POLICY_VIOLATION; ")


def test_the_title_gives_the_meaning_of_an_error_only_if_all_messages_failed_with_it():
    causes = (("refunds", "POLICY_VIOLATION", 19), ("x", "malformed", 2))
    (found,) = diagnose(numbers(dead=21, causes=causes))
    assert found.title == "21 of 60,021 messages became dead letters."
    assert found.evidence.startswith(
        "19 of them with POLICY_VIOLATION on refunds (a broker policy forbids the request); "
    )


def test_dead_letters_that_are_stored_before_the_statistics_count():
    (found,) = diagnose(numbers(dead=2, causes=(("payments", "POLICY_VIOLATION", 3),)))
    assert found.title.startswith("3 of 60,003 messages became dead letters on payments: ")
    assert found.evidence.startswith("3 of them with POLICY_VIOLATION; ")


def test_a_short_problem_among_fast_requests_is_found():
    quick = [numbers(at=1000.0 + 2 * number, seconds=2.0) for number in range(30)]
    slow = (broker(1, rtt=0.25, answers=8), broker(2, rtt=0.25, answers=8))
    slices = [*quick[:10], *(replace(one, brokers=slow) for one in quick[10:14]), *quick[14:]]
    (found,) = over_time(slices, now=1060.0)
    assert found.title == "The network or the brokers were slow."
    assert "250 ms" in found.evidence
    assert (found.since, found.until, found.ongoing) == (1020.0, 1028.0, False)


def test_a_single_slow_slice_is_not_a_finding():
    slices = [numbers(at=1000.0 + 2 * number, seconds=2.0) for number in range(30)]
    slices[10] = replace(slices[10], brokers=(broker(1, rtt=0.25, answers=8),))
    assert [found.key for found in over_time(slices, now=1060.0)] == ["well"]


def minute(*last, **changes):
    """Return the last minute before 2200 in slices of five seconds; `last` changes the newest slices."""
    slices = [numbers(at=2140.0 + 5 * number, seconds=5.0, samples=5, **changes) for number in range(12)]
    for index, change in enumerate(last, start=len(slices) - len(last)):
        slices[index] = replace(slices[index], **change)
    return slices


LONG = [numbers(at=1000.0 + 600 * number, seconds=600.0, samples=600) for number in range(2)]


def test_an_earlier_problem_in_a_long_slice_is_past_and_ranked_last():
    unreachable = [LONG[0], replace(LONG[1], cut_off=90)]
    first, second = over_time(unreachable, 2200.0, minute())
    assert first.title == "No problems now: 720,000 messages acknowledged in the last minute, none failed."
    assert (second.title, second.ongoing) == ("No broker could be reached.", False)
    assert second.until <= 2190.0
    full = over_time(unreachable, 2200.0, minute(fill_highest=0.6))
    assert [finding.title for finding in full] == [
        "The producer's queue is filling.",
        "No broker could be reached.",
    ]


def test_a_broker_that_reconnected_within_the_minute_is_not_down():
    gone = {"cut_off": 5}
    recovered = minute(gone, gone, {}, {})
    first, second = over_time([LONG[0], replace(LONG[1], cut_off=10)], 2200.0, recovered)
    assert (first.key, second.title) == ("well", "No broker could be reached.")
    first, *_ = over_time([LONG[0], replace(LONG[1], cut_off=10)], 2200.0, minute(gone, gone))
    assert (first.title, first.ongoing) == ("No broker can be reached.", True)


def test_the_last_seconds_show_a_reconnected_broker_before_the_slice_ends():
    down, up = {"samples": 1, "cut_off": 1}, {"samples": 1, "cut_off": 0}
    last_minute = minute({"cut_off": 5}, {"cut_off": 3})
    for samples, ongoing in (
        ([down, down, up], True),
        ([down, up, up], False),
        ([up, up, up], False),
    ):
        seconds = [numbers(at=2197.0 + index, seconds=1.0, **sample) for index, sample in enumerate(samples)]
        found = over_time([LONG[0], replace(LONG[1], cut_off=8)], 2200.0, last_minute, last_seconds=seconds)
        assert [finding.ongoing for finding in found if finding.key == "cut-off"] == [ongoing]


def test_a_finding_in_a_part_of_the_range_is_marked_as_partial():
    slices = [numbers(at=1000.0 + 60 * number) for number in range(3)]
    slices[1] = replace(slices[1], **SMALL_BATCHES, **FULL)
    assert all(found.partly for found in over_time(slices, 1180.0) if found.key in ("batches", "full"))
    assert not over_time(slices[1:2], 1120.0)[0].partly


def test_the_given_number_of_dead_letters_is_used():
    (found,) = over_time([numbers(dead=543)], 1060.0, dead=551)
    assert found.title.startswith("551 of 60,551 messages became dead letters")


def test_every_title_has_a_past_tense():
    for given, title, _ in SCENARIOS.values():
        found = next(finding for finding in diagnose(given) if finding.title.startswith(title))
        assert found.past or " had " in found.title or "became" in found.title or "bumped" in found.title
