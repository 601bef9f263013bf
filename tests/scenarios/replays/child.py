"""The process that replays: it runs whatever waits in the store until its standard input is closed.

python -m tests.scenarios.replays.child '{"kind": "runner", "servers": …, "store": …}'
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from pathlib import Path

from tests.factories import replay_runner

DEFAULTS = {
    "kind": "runner",
    "delivery": "exactly_once",
    "config": {},
    "lease": 15.0,
    "quiet": 40.0,
    "look": True,
    "clock": None,  # a file that says by how many seconds our clock is wrong
}


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: files_may_have(8192))  # the disk is full …
    signal.signal(signal.SIGUSR2, lambda *_: files_may_have(resource.RLIM_INFINITY))  # … and has room again
    settings = {**DEFAULTS, **json.loads(sys.argv[1])}
    {"runner": runner, "live": live, "naive": naive}[settings["kind"]](settings)


def files_may_have(most):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


def say(settings, **what):
    """One line, at once: who we are, what we did."""
    with Path(settings["said"]).open("a") as file:
        file.write(json.dumps(what) + "\n")


def runner(settings):
    """A sender and a runner, with a lease that a test can wait for."""
    from producer_core import ReliableKafkaProducer
    from producer_core.kafka.record_lookup import prober
    from producer_core.store import Store

    clock = stepping(settings["clock"]) if settings["clock"] else time.time
    store = Store.open(settings["store"], clock=clock)
    producer = ReliableKafkaProducer(settings["servers"], settings["config"], store=None, run_replays=False)
    client = producer.config.settings
    choices = {"lease": settings["lease"], "quiet": settings["quiet"], "poll_interval": 0.2, "clock": clock}
    if settings["delivery"] == "exactly_once":
        running = replay_runner(store, producer, client=client, **choices)
    else:
        probe = prober(client) if settings["look"] else None
        running = replay_runner(store, producer, probe=probe, **choices)
    say(settings, owner=running.owner)
    running.start()
    sys.stdin.read()
    running.stop(60)
    producer.close(30)
    say(settings, closed=True)


def stepping(path):
    """A clock that somebody sets while we run."""

    def clock():
        text = Path(path).read_text() if Path(path).exists() else ""
        return time.time() + float(text or 0)

    return clock


def live(settings):
    """An ordinary producer that happens to be there: it runs what a click asked for."""
    from producer_core import ReliableKafkaProducer

    producer = ReliableKafkaProducer(settings["servers"], settings["config"], store=settings["store"])
    say(settings, owner=producer.identity)
    sys.stdin.read()
    producer.close(60)
    say(settings, closed=True)


def naive(settings):
    """What we are compared with: send every dead letter, and note it when its report is there."""
    from confluent_kafka import Producer

    from producer_core.dlq import DeadLetterFilter, DeadLetters
    from producer_core.messages import ID_HEADER, parse_id
    from producer_core.store import Store

    store = Store.open(settings["store"])
    dead = DeadLetters(store)
    client = {"bootstrap.servers": settings["servers"], "enable.idempotence": True, "linger.ms": 5}
    producer = Producer({**client, "partitioner": "murmur2_random"})
    say(settings, owner="naive")
    while ids := dead.ids(DeadLetterFilter(), limit=500):
        for dead_letter in dead.bodies(ids):
            headers = [(ID_HEADER, parse_id(dead_letter.message_id)), *dead_letter.headers]
            place = {} if dead_letter.partition is None else {"partition": dead_letter.partition}
            producer.produce(dead_letter.topic, dead_letter.value, dead_letter.key, headers=headers, **place)
        producer.flush(60)
        with store.borrow(write=True) as connection:
            connection.execute(
                "UPDATE dead_letters SET state = 'replayed' WHERE message_id IN (SELECT unnest($1::VARCHAR[]))",
                [ids],
            )
    sys.stdin.read()


if __name__ == "__main__":
    main()
