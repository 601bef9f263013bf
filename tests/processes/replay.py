"""Run replays with a real client until a test kills this process.

python -m tests.processes.replay STORE BOOTSTRAP CLUSTER LEASE DIE_AFTER
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from producer_core.events import DeadLetter
from producer_core.kafka import record_lookup
from producer_core.messages import ID_HEADER, parse_id
from producer_core.replay import ReplayResult
from producer_core.store import Store
from tests.factories import replay_runner


class KafkaSender:
    """A minimal sender: a librdkafka producer that writes the id header.

    With `die_after`, the process kills itself after that many acknowledgements, before it reports the last one.
    """

    def __init__(self, bootstrap: str, cluster_id: str, *, die_after: int = 0) -> None:
        self.cluster_id = cluster_id
        self.identity = f"test:{os.getpid()}"
        self.acknowledged = 0
        self._die_after = die_after
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def resend(self, dead_letter: DeadLetter, settled: Callable[[ReplayResult], None]) -> None:
        def report(error, message):
            if error is not None:
                settled(ReplayResult(dead_letter.message_id, "failed", text=error.str()))
                return
            self.acknowledged += 1
            if self.acknowledged == self._die_after:
                os.kill(os.getpid(), signal.SIGKILL)
            settled(
                ReplayResult(dead_letter.message_id, "acknowledged", message.partition(), message.offset())
            )

        headers = [(ID_HEADER, parse_id(dead_letter.message_id)), *dead_letter.headers]
        self._producer.produce(
            dead_letter.topic, dead_letter.value, dead_letter.key, headers=headers, on_delivery=report
        )

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(0.05)


def run_replays(store: str, bootstrap: str, cluster_id: str, lease: float, die_after: int) -> None:
    """Run all planned replays until the process is killed or its standard input is closed."""
    sender = KafkaSender(bootstrap, cluster_id, die_after=die_after)
    runner = replay_runner(
        Store.open(Path(store)),
        sender,
        probe=record_lookup.prober({"bootstrap.servers": bootstrap}),
        lease=lease,
        in_flight=50,
        interval=0.05,
        poll_interval=0.1,
        quiet=1.0,
    )
    runner.start()
    sys.stdin.read()
    runner.stop()
    sender.close()


if __name__ == "__main__":
    store, bootstrap, cluster_id, lease, die_after = sys.argv[1:]
    run_replays(store, bootstrap, cluster_id, float(lease), int(die_after))
