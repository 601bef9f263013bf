"""The rules of the diagnosis. Each examines one time slice and yields findings with their evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from producer_core._internal.plural import plural
from producer_core.diagnostics.causes.values import CauseFinding, CauseInputs
from producer_core.kafka.classify import failure_of

Rule = Callable[[CauseInputs], Iterator[CauseFinding]]

_SLOW = 0.1
"""Seconds from which a request's round trip counts as slow."""
_MIN_REQUESTS = 5
"""Requests below which a mean is not significant."""


def _cut_off(now: CauseInputs) -> Iterator[CauseFinding]:
    if now.cut_off >= max(2, 0.05 * now.samples):
        yield CauseFinding(
            "cut-off",
            "No broker can be reached.",
            "The client had no connection to any broker, so nothing was sent.",
            "Check that the brokers are running, and check the address, port and security settings. Accepted messages "
            "are sent after the connection returns, unless their delivery timeout expires first.",
            setting="bootstrap_servers",
            score=100,
            tone="bad",
            past="No broker could be reached.",
        )


def _down(now: CauseInputs) -> Iterator[CauseFinding]:
    """Find a broker that is not connected while others are."""
    for broker in now.brokers:
        missed = broker.down - now.cut_off
        if broker.broker_id >= 0 and missed >= max(2, 0.05 * broker.samples):
            share = broker.down / broker.samples
            yield CauseFinding(
                f"down-{broker.key}",
                f"{_sentence(broker.name)} is down or cannot be reached.",
                f"It was not connected for {_percent(share)} of the time; messages for its partitions are pending.",
                "Restart it, or check the network path to it. Its partitions become available once another broker leads them.",
                score=94 + 5 * share,
                tone="bad",
                past=f"{_sentence(broker.name)} was down or could not be reached.",
            )


def _timeouts(now: CauseInputs) -> Iterator[CauseFinding]:
    for broker in now.brokers:
        if broker.timeouts:
            yield CauseFinding(
                f"timeouts-{broker.key}",
                f"{_sentence(broker.name)} is not responding in time.",
                f"{broker.timeouts:,} of {_count(broker.requests, 'request')} exceeded the request timeout.",
                "Check the load and the disk of this broker, and the network. A shorter timeout detects a dead "
                "connection sooner, but does not speed up a broker.",
                setting="request_timeout_ms",
                score=88,
                tone="bad",
                past=f"{_sentence(broker.name)} did not respond in time.",
            )


def _unpolled(now: CauseInputs) -> Iterator[CauseFinding]:
    if now.late_highest < 3 and now.unpolled_highest < 10_000:
        return
    evidence = []
    if now.unpolled_highest:
        were = "was" if now.unpolled_highest == 1 else "were"
        evidence.append(f"up to {_count(now.unpolled_highest, 'delivery report')} {were} waiting")
    if now.late_highest >= 3:
        evidence.append(f"the statistics of the client arrived {_time(now.late_highest)} late")
    yield CauseFinding(
        "unpolled",
        "Delivery reports are not polled in time.",
        f"{_sentence('; '.join(evidence))}.",
        "A callback or a hook blocks the poll thread, or the process gets too little CPU. Move the work of callbacks to "
        "another thread.",
        setting="callback, on_delivery, hooks",
        score=85,
        tone="bad" if now.late_highest >= 10 else "warning",
        past="Delivery reports were not polled in time.",
    )


def _throttled(now: CauseInputs) -> Iterator[CauseFinding]:
    total = now.together.throttle_sum
    if total < 0.1:
        return
    worst = max(now.brokers, key=lambda broker: broker.throttle_sum)
    yield CauseFinding(
        "throttled",
        "The brokers are throttling this producer: quota exceeded.",
        f"Responses throttled for {_time(total)} in {_time(now.seconds)}, at most {_time(worst.throttle_highest)} at "
        f"a time, mostly from {worst.name}.",
        "Raise the quota (producer_byte_rate, request_percentage) of this user or client id, or send fewer bytes.",
        setting="compression_type='zstd'",
        score=80,
        past="The brokers throttled this producer: quota exceeded.",
    )


def _slow_broker(now: CauseInputs) -> Iterator[CauseFinding]:
    measured = [
        (broker.rtt, broker)
        for broker in now.brokers
        if broker.rtt is not None and broker.rtt_count >= 2 * _MIN_REQUESTS
    ]
    for rtt, broker in measured:
        others = [mean for mean, other in measured if other is not broker]
        if others and rtt >= _SLOW / 2 and rtt >= 3 * median(others):
            yield CauseFinding(
                f"slow-{broker.key}",
                f"{_sentence(broker.name)} is slower than the others.",
                f"Requests to it took {_time(rtt)} on average; requests to the others took {_time(median(others))}.",
                "Check its disk, its load and the number of partitions it leads; moving leaders to other brokers helps "
                "immediately. With acks=all, a slow follower also slows down the leaders.",
                score=78 + min(1.0, rtt),
                past=f"{_sentence(broker.name)} was slower than the others.",
            )


def _slow_network(now: CauseInputs) -> Iterator[CauseFinding]:
    measured = [
        broker for broker in now.brokers if broker.rtt is not None and broker.rtt_count >= _MIN_REQUESTS
    ]
    slow = [broker for broker in measured if broker.rtt is not None and broker.rtt >= _SLOW]
    rtt = now.rtt
    if not slow or len(slow) < len(measured) or rtt is None:
        return
    yield CauseFinding(
        "network",
        "The network or the brokers are slow.",
        f"A request to any broker took {_time(rtt)} on average; the 99th percentile was "
        f"{_time(max(broker.rtt_p99 for broker in measured))} in the worst second.",
        "Check the network path to the brokers, their disks and replication. Larger batches need fewer round trips.",
        setting="linger_ms, batch_size",
        score=76 + min(1.0, rtt),
        past="The network or the brokers were slow.",
    )


def _retrying(now: CauseInputs) -> Iterator[CauseFinding]:
    requests, client_retries = now.together.requests, now.together.retries
    messages, sent = now.retried, now.acknowledged + now.dead + now.retried
    share = max(client_retries / requests if requests else 0.0, messages / sent if sent else 0.0)
    if share < 0.05 or max(client_retries, messages) < _MIN_REQUESTS:
        return
    parts = (
        [f"the client retried {client_retries:,} of {_count(requests, 'request')}"] if client_retries else []
    )
    parts += [f"the producer retried {_count(messages, 'message')} after a final error"] if messages else []
    yield CauseFinding(
        "retries",
        "Retries use up capacity.",
        f"{_sentence('; '.join(parts))}: {_percent(share)} of the total.",
        "The errors show the cause. Longer delays between retries leave more capacity for other messages.",
        setting="RetryConfig(initial_delay_ms), retry_backoff_ms",
        score=77 if share >= 0.2 else 60,
        past="Retries used up capacity.",
    )


def _full(now: CauseInputs) -> Iterator[CauseFinding]:
    if now.fill_highest < 0.5:
        return
    full = now.fill_highest >= 0.9
    yield CauseFinding(
        "full",
        "The producer's queue is full." if full else "The producer's queue is filling.",
        f"It was up to {_percent(now.fill_highest)} full, {_percent(now.fill)} on average: the application sent more "
        "than the brokers accepted.",
        "If this persists, reduce the send rate or find out why the brokers are slow; send_message blocks until "
        "there is room. For short bursts, a larger queue is enough.",
        setting="buffer_memory, queue_buffering_max_messages, max_block_ms",
        score=75 if full else 50,
        tone="bad" if full else "warning",
        past="The producer's queue was full." if full else "The producer's queue was filling.",
    )


def _tiny_batches(now: CauseInputs) -> Iterator[CauseFinding]:
    if not now.batches or now.samples == 0:
        return
    messages, size = now.batch_messages / now.batches, now.batch_bytes / now.batches
    rate = now.batches / now.samples  # per second and producer
    if messages >= 4 or size >= 4096 or rate < 50:
        return
    queue_time = max((broker.queue or 0.0 for broker in now.brokers), default=0.0)
    harmful = now.fill_highest >= 0.5 or (queue_time >= 0.05 and (now.rtt or 0.0) < 0.02)
    if not harmful and rate < 500:
        return
    yield CauseFinding(
        "batches",
        "Batches are very small.",
        f"A batch contained {messages:.1f} messages and {size:,.0f} bytes on average, at {rate:,.0f} batches per second.",
        "Increase linger_ms to send the same messages in fewer requests.",
        setting="linger_ms=20",
        score=79 if now.fill_highest >= 0.5 else 40 if harmful else 15,
        tone="warning" if harmful else "quiet",
        past="Batches were very small.",
    )


def _disconnects(now: CauseInputs) -> Iterator[CauseFinding]:
    for broker in now.brokers:
        if broker.disconnects >= 3:
            yield CauseFinding(
                f"breaks-{broker.key}",
                f"Connections to {broker.name} keep breaking.",
                f"{_count(broker.disconnects, 'connection')} closed in {_time(now.seconds)}.",
                "Possible causes: a broker that restarts, a proxy or firewall that closes idle connections, or a TLS "
                "mismatch. The connection errors show which.",
                setting="connections_max_idle_ms, socket_keepalive_enable",
                score=55,
                past=f"Connections to {broker.name} broke.",
            )


def _epochs(now: CauseInputs) -> Iterator[CauseFinding]:
    if now.epoch_rises:
        yield CauseFinding(
            "epochs",
            "The idempotent client bumped its epoch.",
            f"This happened {_count(now.epoch_rises, 'time')}: the client lost the sequence of a partition and "
            "recovered.",
            "Idempotence guarantees order and no duplicates only within an epoch. If bumps recur, check messages "
            "that timed out.",
            setting="delivery_timeout_ms",
            score=45,
        )


def failing(now: CauseInputs) -> Iterator[CauseFinding]:
    # dead letters are stored before statistics
    dead = max(now.dead, sum(count for _, _, count in now.causes))
    if not dead:
        return
    settled = now.acknowledged + dead
    share = dead / settled
    topic, code, most = now.causes[0] if now.causes else ("", "", 0)
    failure = failure_of(code) if code else None
    place = f" on {topic}" if topic and all(cause[0] == topic for cause in now.causes) else ""
    meaning = _lower(failure.meaning) if failure else ""
    in_title, in_evidence = (f": {meaning}", "") if most == dead and meaning else (".", f" ({meaning[:-1]})")
    dead_letters = "a dead letter" if dead == 1 else "dead letters"
    what = f"{'Error' if dead == 1 else f'{most:,} of them with'} {code}{'' if place else f' on {topic}'}{in_evidence}"
    yield CauseFinding(
        "failing",
        f"{dead:,} of {plural(settled, 'message')} became {dead_letters}{place}{in_title}",
        f"{what}; {_percent(share)} of all messages." if failure else f"{_percent(share)} of all messages.",
        failure.advice if failure else "Each dead letter shows its error.",
        score=40 + 50 * share,
        tone="bad" if share > 0.05 else "warning",
        since=now.at,
        until=now.at + now.seconds,
        named=(topic, code) if code else None,
    )


def well(whole: CauseInputs, *, again: bool = False) -> Iterator[CauseFinding]:
    """State that all is well, if there are samples. `again`: for the last minute, after an earlier problem."""
    if not whole.samples:
        return
    if not whole.acknowledged:
        text = f"The client is running, but no message was settled in {'the last minute' if again else 'this range'}."
        title = "Nothing is being sent." if again else "Nothing was sent."
        yield CauseFinding("idle", title, text, "", score=30, tone="quiet")
        return
    prefix = "The" if whole.rtt is None else f"A request takes {_time(whole.rtt)} on average, and the"
    fill = (
        f"never more than {_percent(whole.fill_highest)}"
        if whole.fill_highest >= 0.001
        else "always less than 0.1%"
    )
    yield CauseFinding(
        "well",
        f"No problems now: {_count(whole.acknowledged, 'message')} acknowledged in the last minute, none failed."
        if again
        else f"No problems: {_count(whole.acknowledged, 'message')} acknowledged, none failed.",
        f"{prefix} queue was {fill} full.",
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
    _disconnects,
    _epochs,
)


# formatting


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lower(text: str) -> str:
    return f"{text[:1].lower()}{text[1:].rstrip('.')}."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _percent(share: float) -> str:
    if 0 < share < 0.001:
        return "less than 0.1%"
    return f"{100 * share:.1f}%" if share < 0.1 else f"{100 * share:.0f}%"


def _time(seconds: float) -> str:
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    if seconds >= 1:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1f} ms"
