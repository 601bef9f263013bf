"""Destroy transactional clients at random moments of their first transaction.

    python -m tests.processes.destroyed_clients SECONDS SEED

librdkafka 2.16 aborts the process if a client is destroyed while it sends AddPartitionsToTxn. Without the abort in
TransactionalClient.destroy this happens within some hundred destructions.
"""

from __future__ import annotations

import random
import sys
import threading
import time

from producer_core._internal.librdkafka import client_log
from producer_core.brokers import embedded
from producer_core.delivery.exactly_once.transactional_client import TransactionalClient


def destroy_clients(name, rng, servers, until, destroyed):
    settings = {
        "bootstrap.servers": servers,
        "logger": client_log(),
        "linger.ms": 0,
        "transaction.timeout.ms": 5000,
    }
    while time.monotonic() < until:
        client = TransactionalClient(
            settings, name, statistics=print, connection_error=lambda _: None, stopping=lambda: False
        )
        client.fence(lambda _: None)
        client._client.begin_transaction()
        for _ in range(rng.choice((1, 5))):
            client._client.produce("orders", b"x", partition=rng.randrange(4))
        time.sleep(rng.choice((0, rng.random() * 0.004)))
        client.destroy()
        destroyed.append(name)


def main(seconds, seed):
    destroyed = []
    with embedded.start(brokers=1, topics={"orders": 4}) as broker:
        until = time.monotonic() + seconds
        threads = [
            threading.Thread(
                target=destroy_clients,
                args=(
                    f"id-{number}",
                    random.Random(seed + number),
                    broker.bootstrap_servers,
                    until,
                    destroyed,
                ),
            )
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(len(destroyed), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
