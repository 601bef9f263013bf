"""Run the replays of a store until the standard input is closed.

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
    "probe": True,
    "clock": None,  # a file with the offset of the clock in seconds
}


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda *_: limit_file_size(8192))  # the disk is full
    signal.signal(
        signal.SIGUSR2, lambda *_: limit_file_size(resource.RLIM_INFINITY)
    )  # the disk has space again
    settings = {**DEFAULTS, **json.loads(sys.argv[1])}
    {"runner": runner, "live": live, "naive": naive}[settings["kind"]](settings)


def limit_file_size(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def log(settings, **event):
    """Write an event as one line of JSON."""
    with Path(settings["events"]).open("a") as file:
        file.write(json.dumps(event) + "\n")


def runner(settings):
    """Run a sender and a runner with a short lease."""
    from producer_core import ReliableKafkaProducer
    from producer_core.dlq import claim_and_settle
    from producer_core.kafka.record_lookup import prober
    from producer_core.store import Store

    claim_and_settle.MIN_BATCH = 20  # the rate of the scenarios is too low for batches of columns
    clock = adjustable_clock(settings["clock"]) if settings["clock"] else time.time
    store = Store.open(settings["store"], clock=clock)
    producer = ReliableKafkaProducer(settings["servers"], settings["config"], store=None, run_replays=False)
    client = producer.config.settings
    choices = {"lease": settings["lease"], "quiet": settings["quiet"], "poll_interval": 0.2, "clock": clock}
    if settings["delivery"] == "exactly_once":
        running = replay_runner(store, producer, client=client, **choices)
    else:
        probe = prober(client) if settings["probe"] else None
        running = replay_runner(store, producer, probe=probe, **choices)
    log(settings, owner=running.owner)
    running.start()
    sys.stdin.read()
    running.stop(60)
    producer.close(30)
    log(settings, closed=True)


def adjustable_clock(path):
    """Return a clock with an offset that the file contains."""

    def clock():
        text = Path(path).read_text() if Path(path).exists() else ""
        return time.time() + float(text or 0)

    return clock


def live(settings):
    """Run a normal producer, which carries out replays that the dashboard requested."""
    from producer_core import ReliableKafkaProducer

    producer = ReliableKafkaProducer(settings["servers"], settings["config"], store=settings["store"])
    log(settings, owner=producer.identity)
    sys.stdin.read()
    producer.close(60)
    log(settings, closed=True)


def naive(settings):
    """Run the naive replay for comparison: send every dead letter, then mark it as replayed."""
    from confluent_kafka import Producer

    from producer_core.dlq import DeadLetterFilter, DeadLetters
    from producer_core.messages import ID_HEADER, parse_id
    from producer_core.store import Store

    store = Store.open(settings["store"])
    dead = DeadLetters(store)
    client = {"bootstrap.servers": settings["servers"], "enable.idempotence": True, "linger.ms": 5}
    producer = Producer({**client, "partitioner": "murmur2_random"})
    log(settings, owner="naive")
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
