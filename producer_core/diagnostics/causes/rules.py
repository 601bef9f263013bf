"""The rules: each looks at the numbers of one slice of time and yields what it finds, with the numbers that say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from producer_core.diagnostics.causes.values import CauseFinding, CauseInputs
from producer_core.kafka.classify import failure_of

Rule = Callable[[CauseInputs], Iterator[CauseFinding]]

_SLOW = 0.1
"""Seconds of a request's round trip from which on it is worth a word."""
_FEW = 5
"""Requests below which a mean says nothing."""


def _cut_off(now: CauseInputs) -> Iterator[CauseFinding]:
    if now.cut_off >= max(2, 0.05 * now.samples):
        yield CauseFinding(
            "cut-off",
            "No broker can be reached.",
            "The client had no connection to any broker, and nothing could be sent.",
            "Check that the brokers run, and the address, port and security settings. What was accepted waits and is "
            "sent when they are back, until its delivery timeout.",
            setting="bootstrap_servers",
            score=100,
            tone="bad",
            past="No broker could be reached.",
        )


def _down(now: CauseInputs) -> Iterator[CauseFinding]:
    """A broker that is missed while others are there."""
    for one in now.brokers:
        missed = one.down - now.cut_off
        if one.broker_id >= 0 and missed >= max(2, 0.05 * one.samples):
            yield CauseFinding(
                f"down-{one.broker_id}",
                f"{_sentence(one.name)} is down or cannot be reached.",
                f"It was not connected for {_percent(one.down / one.samples)} of the time; the partitions it leads wait.",
                "Start it again, or check the way to it; its partitions go on when another broker leads them.",
                score=94 + 5 * one.down / one.samples,
                tone="bad",
                past=f"{_sentence(one.name)} was down or could not be reached.",
            )


def _timeouts(now: CauseInputs) -> Iterator[CauseFinding]:
    for one in now.brokers:
        if one.timeouts:
            yield CauseFinding(
                f"timeouts-{one.broker_id}",
                f"{_sentence(one.name)} does not answer in time.",
                f"{_many(one.timeouts, 'request')} of {one.requests:,} got no answer within the request timeout.",
                "Look at that broker's load and disk, and at the network. A shorter timeout finds a dead connection "
                "sooner; it makes no broker quicker.",
                setting="request_timeout_ms",
                score=88,
                tone="bad",
                past=f"{_sentence(one.name)} did not answer in time.",
            )


def _unpolled(now: CauseInputs) -> Iterator[CauseFinding]:
    if now.late_highest < 3 and now.unpolled_highest < 10_000:
        return
    evidence = (
        [f"{now.unpolled_highest:,} delivery reports waited at one time"] if now.unpolled_highest else []
    )
    if now.late_highest >= 3:
        evidence.append(f"the client's statistics reached us {_time(now.late_highest)} late")
    yield CauseFinding(
        "unpolled",
        "Delivery reports are not fetched in time.",
        f"{_sentence('; '.join(evidence))}.",
        "A callback or a hook holds up the poll thread, or the process gets too little CPU. Hand the work of callbacks "
        "to a thread of your own.",
        setting="callback, on_delivery, hooks",
        score=85,
        tone="bad" if now.late_highest >= 10 else "warning",
        past="Delivery reports were not fetched in time.",
    )


def _throttled(now: CauseInputs) -> Iterator[CauseFinding]:
    total = now.together.throttle_sum
    if total < 0.1:
        return
    worst = max(now.brokers, key=lambda one: one.throttle_sum)
    yield CauseFinding(
        "throttled",
        "The brokers throttle this producer: its quota is used up.",
        f"Answers carried {_time(total)} of throttling in {_time(now.seconds)}, at most "
        f"{_time(worst.throttle_highest)} at once, most of it from {worst.name}.",
        "Raise the quota (producer_byte_rate, request_percentage) of this user or client id, or send fewer bytes.",
        setting="compression_type='zstd'",
        score=80,
        past="The brokers throttled this producer: its quota was used up.",
    )


def _slow_broker(now: CauseInputs) -> Iterator[CauseFinding]:
    measured = [(one.rtt, one) for one in now.brokers if one.rtt is not None and one.rtt_count >= 2 * _FEW]
    for rtt, one in measured:
        others = [mean for mean, other in measured if other is not one]
        if others and rtt >= _SLOW / 2 and rtt >= 3 * median(others):
            yield CauseFinding(
                f"slow-{one.broker_id}",
                f"{_sentence(one.name)} is slower than the others.",
                f"A request to it took {_time(rtt)} on average, to the others {_time(median(others))}.",
                "Look at its disk, its load and how many partitions it leads; moving leaders away from it helps at "
                "once. With acks=all a slow follower slows its leaders too.",
                score=78 + min(1.0, rtt),
                past=f"{_sentence(one.name)} was slower than the others.",
            )


def _slow_network(now: CauseInputs) -> Iterator[CauseFinding]:
    measured = [one for one in now.brokers if one.rtt is not None and one.rtt_count >= _FEW]
    slow = [one for one in measured if one.rtt is not None and one.rtt >= _SLOW]
    rtt = now.rtt
    if not slow or len(slow) < len(measured) or rtt is None:
        return
    yield CauseFinding(
        "network",
        "The network or the brokers are slow.",
        f"A request took {_time(rtt)} on average, whichever broker it went to; 99 of 100 took at most "
        f"{_time(max(one.rtt_p99 for one in measured))} in the worst second.",
        "Look at the way to the brokers, and at their disks and replication. Larger batches make fewer round trips.",
        setting="linger_ms, batch_size",
        score=76 + min(1.0, rtt),
        past="The network or the brokers were slow.",
    )


def _retrying(now: CauseInputs) -> Iterator[CauseFinding]:
    requests, again = now.together.requests, now.together.retries
    ours, sent = now.retried, now.acknowledged + now.dead + now.retried
    share = max(again / requests if requests else 0.0, ours / sent if sent else 0.0)
    if share < 0.05 or max(again, ours) < _FEW:
        return
    parts = [f"{_many(again, 'request')} of {requests:,} were sent again by the client"] if again else []
    parts += [f"{_many(ours, 'message')} were sent again by us after a final error"] if ours else []
    yield CauseFinding(
        "retries",
        "Retries eat capacity.",
        f"{_sentence('; '.join(parts))}: {_percent(share)} of what was sent.",
        "The errors say why; retries only wait for it to pass. Longer pauses between them leave more room to the rest.",
        setting="RetryConfig(initial_delay_ms), retry_backoff_ms",
        score=77 if share >= 0.2 else 60,
        past="Retries ate capacity.",
    )


def _full(now: CauseInputs) -> Iterator[CauseFinding]:
    if now.fill_highest < 0.5:
        return
    full = now.fill_highest >= 0.9
    yield CauseFinding(
        "full",
        "The producer's queue is full." if full else "The producer's queue is filling.",
        f"It was up to {_percent(now.fill_highest)} full, {_percent(now.fill)} on average: more was sent than the "
        "brokers took.",
        "If it lasts, send slower or find what holds up the brokers; send_message waits for room meanwhile. For short "
        "bursts a larger queue is enough.",
        setting="buffer_memory, queue_buffering_max_messages, max_block_ms",
        score=75 if full else 50,
        tone="bad" if full else "warning",
        past="The producer's queue was full." if full else "The producer's queue was filling.",
    )


def _tiny_batches(now: CauseInputs) -> Iterator[CauseFinding]:
    if not now.batches or now.samples == 0:
        return
    messages, size = now.batch_messages / now.batches, now.batch_bytes / now.batches
    rate = now.batches / now.samples  # a second and producer
    if messages >= 4 or size >= 4096 or rate < 50:
        return
    waits = max((one.queue or 0.0 for one in now.brokers), default=0.0)
    hurts = now.fill_highest >= 0.5 or (waits >= 0.05 and (now.rtt or 0.0) < 0.02)
    if not hurts and rate < 500:
        return
    yield CauseFinding(
        "batches",
        "Batches are tiny.",
        f"A batch held {messages:.1f} messages and {size:,.0f} bytes on average, and {rate:,.0f} were made a second.",
        "Let messages wait a little for company: fewer requests carry the same messages.",
        setting="linger_ms=20",
        score=79 if now.fill_highest >= 0.5 else 40 if hurts else 15,
        tone="warning" if hurts else "quiet",
        past="Batches were tiny.",
    )


def _breaking(now: CauseInputs) -> Iterator[CauseFinding]:
    for one in now.brokers:
        if one.disconnects >= 3:
            yield CauseFinding(
                f"breaks-{one.broker_id}",
                f"Connections to {one.name} break.",
                f"{_many(one.disconnects, 'connection')} ended in {_time(now.seconds)}.",
                "A broker that restarts, a proxy or a firewall that ends quiet connections, or a TLS mismatch does "
                "this; the connection errors say which.",
                setting="connections_max_idle_ms, socket_keepalive_enable",
                score=55,
                past=f"Connections to {one.name} broke.",
            )


def _epochs(now: CauseInputs) -> Iterator[CauseFinding]:
    if now.epoch_rises:
        yield CauseFinding(
            "epochs",
            "The idempotent client had to begin a new epoch.",
            f"It happened {_many(now.epoch_rises, 'time')}: the client lost its place in a partition's sequence and "
            "recovered by itself.",
            "Order and once-only hold within an epoch. Where it comes again, look at messages that timed out.",
            setting="delivery_timeout_ms",
            score=45,
        )


def failing(now: CauseInputs) -> Iterator[CauseFinding]:
    dead = max(now.dead, sum(count for _, _, count in now.causes))  # dead letters come before the statistics
    if not dead:
        return
    settled = now.acknowledged + dead
    share = dead / settled
    topic, code, most = now.causes[0] if now.causes else ("", "", 0)
    failure = failure_of(code) if code else None
    where = f" on {topic}" if topic and all(cause[0] == topic for cause in now.causes) else ""
    what = f": {_lower(failure.meaning)}" if failure else "."
    yield CauseFinding(
        "failing",
        f"{dead:,} of {settled:,} messages became dead letters{where}{what}",
        f"{most:,} of them with {code}{'' if where else f' on {topic}'}; {_percent(share)} of all messages."
        if failure
        else f"{_percent(share)} of all messages.",
        failure.advice if failure else "The dead letters say why, each.",
        score=40 + 50 * share,
        tone="bad" if share > 0.05 else "warning",
        since=now.at,
        until=now.at + now.seconds,
    )


def well(whole: CauseInputs, *, again: bool = False) -> Iterator[CauseFinding]:
    """Said only where the client was heard. `again`: of the last minute, where something was wrong before."""
    if not whole.samples:
        return
    if not whole.acknowledged:
        text = f"The client is heard, and no message was settled in {'the last minute' if again else 'this range'}."
        title = "Nothing is sent now." if again else "Nothing was sent."
        yield CauseFinding("idle", title, text, "", score=30, tone="quiet")
        return
    trip = "The" if whole.rtt is None else f"A request takes {_time(whole.rtt)} on average, and the"
    yield CauseFinding(
        "well",
        f"All is well now: {_many(whole.acknowledged, 'message')} acknowledged in the last minute, none failed."
        if again
        else f"All is well: {_many(whole.acknowledged, 'message')} acknowledged, none failed.",
        f"{trip} queue was never {f'more than {_percent(whole.fill_highest)}' if whole.fill_highest >= 0.001 else '0.1 %'} full.",
        "",
        score=30,
        tone="good",
    )


RULES: tuple[Rule, ...] = (
    _cut_off,
    _down,
    _timeouts,
    _unpolled,
    _throttled,
    _slow_broker,
    _slow_network,
    _retrying,
    _full,
    _tiny_batches,
    _breaking,
    _epochs,
)


# words


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lower(text: str) -> str:
    return f"{text[:1].lower()}{text[1:].rstrip('.')}."


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _percent(share: float) -> str:
    if 0 < share < 0.001:
        return "less than 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"


def _time(seconds: float) -> str:
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    if seconds >= 1:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1f} ms"
