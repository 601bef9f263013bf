"""The diagnosis: each scenario gives the right sentence first, and nothing is invented."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core.diagnostics.causes import BrokerNumbers, CauseInputs, diagnose, over_time


def broker(number=1, **changes):
    """`rtt` and `queue` are means in seconds."""
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
TINY = {"batches": 60_000, "batch_bytes": 13_000_000}

SCENARIOS = {
    "queue full": (numbers(**FULL), "The producer's queue is full.", "buffer_memory"),
    "queue filling": (numbers(fill_highest=0.6), "The producer's queue is filling.", "buffer_memory"),
    "throttled, and the queue full of it": (
        numbers(broker(1, throttle=20.0, throttle_highest=0.9), broker(2), **FULL),
        "The brokers throttle this producer: its quota is used up.",
        "compression_type",
    ),
    "one slow broker, and the queue full of it": (
        numbers(broker(1), broker(2, rtt=0.4), broker(3), **FULL),
        "Broker 2 (kafka2:9092) is slower than the others.",
        "",
    ),
    "tiny batches that fill the queue": (numbers(**TINY, **FULL), "Batches are tiny.", "linger_ms"),
    "tiny batches that make messages wait": (
        numbers(broker(1, queue=0.2), **TINY),
        "Batches are tiny.",
        "linger_ms",
    ),
    "not polled, by the reports that wait": (
        numbers(unpolled_highest=40_000, **FULL),
        "Delivery reports are not fetched in time.",
        "callback",
    ),
    "not polled, by statistics that come late": (
        numbers(late_highest=12.0),
        "Delivery reports are not fetched in time.",
        "callback",
    ),
    "retries of the client": (
        numbers(broker(1, retries=3000)),
        "Retries eat capacity.",
        "retry_backoff_ms",
    ),
    "retries of ours": (numbers(retried=20_000), "Retries eat capacity.", "RetryConfig"),
    "one broker down, and its messages fail": (
        numbers(
            broker(1), broker(2, up=0, down=60, answers=0), dead=900,
            causes=(("orders", "_MSG_TIMED_OUT", 900),), **FULL,
        ),
        "Broker 2 (kafka2:9092) is down or cannot be reached.",
        "",
    ),
    "all brokers down for a part of it": (
        numbers(broker(1, up=40, down=20), broker(2, up=41, down=19), cut_off=19),
        "No broker can be reached.",
        "bootstrap_servers",
    ),
    "requests that time out": (
        numbers(broker(1), broker(2, timeouts=4)),
        "Broker 2 (kafka2:9092) does not answer in time.",
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
        "Connections to broker 1 (kafka1:9092) break.",
        "keepalive",
    ),
    "an epoch rises": (
        numbers(epoch_rises=1),
        "The idempotent client had to begin a new epoch.",
        "delivery_timeout_ms",
    ),
    "messages fail for good": (
        numbers(dead=600, causes=(("payments", "MSG_SIZE_TOO_LARGE", 600),)),
        "600 of 60,600 messages became dead letters on payments: ",
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_gives_the_right_sentence_first(scenario):
    given, title, setting = SCENARIOS[scenario]
    for found in (diagnose(given), over_time([given], now=1060.0)):
        assert found[0].title.startswith(title)
        assert setting in found[0].setting
        assert found[0].evidence and found[0].suggestion
        assert found[0].ongoing


def test_what_follows_from_a_cause_is_said_after_it():
    found = diagnose(SCENARIOS["one slow broker, and the queue full of it"][0])
    assert [one.key for one in found] == ["slow-2", "full"]


def test_each_finding_has_the_numbers_that_say_so():
    (found,) = diagnose(numbers(broker(1), broker(2, rtt=0.4), broker(3)))
    assert found.evidence == "A request to it took 400 ms on average, to the others 4.0 ms."


def test_all_well_is_said_with_its_numbers_and_nothing_else():
    (found,) = over_time([numbers(), numbers(at=1060.0)], now=1120.0)
    assert (found.key, found.tone) == ("well", "good")
    assert found.title == "All is well: 120,000 messages acknowledged, none failed."
    assert (
        found.evidence == "A request takes 4.0 ms on average, and the queue was never more than 3.0 % full."
    )


@pytest.mark.parametrize(
    "nothing", [[], [CauseInputs(1000.0, 60.0)], [CauseInputs(1000.0, 60.0, acknowledged=5)]], ids=str
)
def test_nothing_is_invented_without_numbers_of_the_client(nothing):
    assert over_time(nothing, now=1060.0) == ()


def test_a_client_that_sends_nothing_is_not_called_well():
    (found,) = over_time([numbers(acknowledged=0, batches=0)], now=1060.0)
    assert (found.key, found.tone) == ("idle", "quiet")


def test_messages_that_failed_are_said_without_numbers_of_the_client_too():
    (found,) = over_time([CauseInputs(1000.0, 60.0, acknowledged=99, dead=1)], now=1060.0)
    assert found.title == "1 of 100 messages became dead letters."


def test_few_measurements_accuse_nobody():
    rare = numbers(broker(1), broker(2, rtt=0.9, answers=2), broker(3, retries=1, requests=4))
    assert diagnose(rare) == ()


def test_tiny_batches_at_a_light_load_are_nobodys_trouble():
    assert diagnose(numbers(batches=3000, batch_messages=3000, batch_bytes=600_000)) == ()


def test_what_is_over_comes_after_what_goes_on_and_says_when_it_was():
    quiet = [numbers(at=1000.0 + 60 * number) for number in range(10)]
    slices = [*quiet]
    slices[2] = replace(slices[2], brokers=(broker(1, down=30, up=30), broker(2)))
    slices[9] = replace(slices[9], fill_highest=0.95)
    first, second = over_time(slices, now=1600.0)
    assert (first.key, first.ongoing) == ("full", True)
    assert (second.key, second.ongoing, second.since, second.until) == ("down-1", False, 1120.0, 1180.0)


def test_what_is_found_again_and_again_is_said_once_with_the_numbers_of_all_of_it():
    slices = [
        numbers(at=1000.0 + 60 * number, brokers=(broker(1), broker(2, rtt=rtt)))
        for number, rtt in enumerate((0.1, 0.5, 0.2))
    ]
    (found,) = over_time(slices, now=1180.0)
    assert "took 267 ms on average" in found.evidence  # of all requests, not the mean of means
    assert (found.since, found.until) == (1000.0, 1180.0)


def test_failures_are_counted_over_the_whole_range():
    cause = (("payments", "POLICY_VIOLATION", 30),)
    slices = [numbers(at=1000.0 + 60 * number, dead=30, causes=cause) for number in range(3)]
    (found,) = over_time(slices, now=1180.0)
    assert found.title.startswith("90 of 180,090 messages became dead letters on payments: ")
    assert found.evidence.startswith("90 of them with POLICY_VIOLATION; ")


def test_letters_that_are_there_before_the_statistics_are_counted():
    (found,) = diagnose(numbers(dead=2, causes=(("payments", "POLICY_VIOLATION", 3),)))
    assert found.title.startswith("3 of 60,003 messages became dead letters on payments: ")
    assert found.evidence.startswith("3 of them with POLICY_VIOLATION; ")


def test_a_short_trouble_is_not_drowned_by_the_quick_requests_around_it():
    quick = [numbers(at=1000.0 + 2 * number, seconds=2.0) for number in range(30)]
    slow = (broker(1, rtt=0.25, answers=8), broker(2, rtt=0.25, answers=8))
    slices = [*quick[:10], *(replace(one, brokers=slow) for one in quick[10:14]), *quick[14:]]
    (found,) = over_time(slices, now=1060.0)
    assert found.title == "The network or the brokers were slow."
    assert "250 ms" in found.evidence
    assert (found.since, found.until, found.ongoing) == (1020.0, 1028.0, False)


def test_a_hiccup_of_one_moment_is_not_worth_a_word():
    slices = [numbers(at=1000.0 + 2 * number, seconds=2.0) for number in range(30)]
    slices[10] = replace(slices[10], brokers=(broker(1, rtt=0.25, answers=8),))
    assert [found.key for found in over_time(slices, now=1060.0)] == ["well"]


def minute(*last, **changes):
    """The last minute before 2200 in slices of five seconds; `last` are changes of the newest."""
    fine = [numbers(at=2140.0 + 5 * number, seconds=5.0, samples=5, **changes) for number in range(12)]
    for place, change in enumerate(last):
        fine[len(fine) - len(last) + place] = replace(fine[len(fine) - len(last) + place], **change)
    return fine


LONG = [numbers(at=1000.0 + 600 * number, seconds=600.0, samples=600) for number in range(2)]


def test_what_was_true_earlier_in_a_long_slice_is_said_in_the_past_and_after_what_holds_now():
    away = [LONG[0], replace(LONG[1], cut_off=90)]
    first, second = over_time(away, 2200.0, minute())
    assert first.title == "All is well now: 720,000 messages acknowledged in the last minute, none failed."
    assert (second.title, second.ongoing) == ("No broker could be reached.", False)
    assert second.until <= 2190.0
    full = over_time(away, 2200.0, minute(fill_highest=0.6))
    assert [one.title for one in full] == ["The producer's queue is filling.", "No broker could be reached."]


def test_a_broker_that_is_back_is_not_away_although_it_was_in_this_minute():
    gone = {"cut_off": 5}
    fine = minute(gone, gone, {}, {})
    first, second = over_time([LONG[0], replace(LONG[1], cut_off=10)], 2200.0, fine)
    assert (first.key, second.title) == ("well", "No broker could be reached.")
    first, *_ = over_time([LONG[0], replace(LONG[1], cut_off=10)], 2200.0, minute(gone, gone))
    assert (first.title, first.ongoing) == ("No broker can be reached.", True)


def test_the_last_seconds_say_that_a_broker_is_back_before_the_slice_is_over():
    away, back = {"samples": 1, "cut_off": 1}, {"samples": 1, "cut_off": 0}
    fine = minute({"cut_off": 5}, {"cut_off": 3})
    for last, goes_on in (
        ([away, away, back], True),
        ([away, back, back], False),
        ([back, back, back], False),
    ):
        looks = [numbers(at=2197.0 + place, seconds=1.0, **look) for place, look in enumerate(last)]
        found = over_time([LONG[0], replace(LONG[1], cut_off=8)], 2200.0, fine, looks=looks)
        assert [one.ongoing for one in found if one.key == "cut-off"] == [goes_on]


def test_numbers_of_a_part_of_the_range_say_so():
    slices = [numbers(at=1000.0 + 60 * number) for number in range(3)]
    slices[1] = replace(slices[1], **TINY, **FULL)
    assert all(found.partly for found in over_time(slices, 1180.0) if found.key in ("batches", "full"))
    assert not over_time(slices[1:2], 1120.0)[0].partly


def test_what_died_is_the_number_that_others_count():
    (found,) = over_time([numbers(dead=543)], 1060.0, dead=551)
    assert found.title.startswith("551 of 60,551 messages became dead letters")


def test_every_sentence_that_can_be_over_has_a_past():
    for given, title, _ in SCENARIOS.values():
        found = next(one for one in diagnose(given) if one.title.startswith(title))
        assert found.past or " had " in found.title or "became" in found.title
