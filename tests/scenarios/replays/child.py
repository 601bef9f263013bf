"""Run the replays of a store until the standard input is closed.

python -m tests.scenarios.replays.child '{"kind": "runner", "servers": …, "store": …}'
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
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
    "dies": None,  # the step of a wave at which the process kills itself
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

    if settings["dies"]:
        die_at(settings["dies"])
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


def die_at(step):
    """Kill this process at a step of its second wave: "claimed" and not sent, "sending" with a half of it passed to the
    client, "committed" and not settled, or "settling" before the store's commit."""
    from producer_core.delivery.exactly_once.transactional_client import TransactionalClient
    from producer_core.delivery.record_batch import RecordBatch
    from producer_core.replay import claims

    waves = []

    def die():
        if len(waves) > 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def claim(self, *arguments, **choices):
        result = claimed(self, *arguments, **choices)
        if isinstance(result.dead_letters, RecordBatch):
            waves.append(len(result.dead_letters))
            if step == "claimed":
                die()
        return result

    def rows(self):
        for number, row in enumerate(produced(self)):
            if step == "sending" and number == len(self) // 2:
                threading.Event().wait(0.3)  # until the client has sent the first half
                die()
            yield row

    def transact(self, *arguments):
        reports = transacted(self, *arguments)
        if step == "committed":
            die()
        return reports

    def settle(*arguments, **choices):
        count = settled(*arguments, **choices)
        if step == "settling":
            die()
        return count

    claimed, claims.ReplayClaims.settle_and_claim = claims.ReplayClaims.settle_and_claim, claim
    produced, RecordBatch.produce_rows = RecordBatch.produce_rows, rows
    transacted, TransactionalClient.transact_batch = TransactionalClient.transact_batch, transact
    settled, claims.settle_batch = claims.settle_batch, settle


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
