"""Send messages that the broker rejects, and publish their dead letters until this process kills itself.

    python -m tests.processes.dead_letter_topic SERVERS TOPIC STORE

The process is killed when the topic has all dead letters, before it records that.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from producer_core import ReliableKafkaProducer
from producer_core.dlq.topics.slice_publisher import PublicationEvents

COUNT = 5


def main(servers, topic, store):
    add = PublicationEvents.add

    def killed_at_the_first_record(self, what, texts):
        if what == "published" and texts:
            os.kill(os.getpid(), signal.SIGKILL)
        add(self, what, texts)

    PublicationEvents.add = killed_at_the_first_record
    producer = ReliableKafkaProducer(servers, store=Path(store), dead_letter_topic="{topic}-dlt")
    producer.send_batch(topic, [os.urandom(5_000) for _ in range(COUNT)])
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
