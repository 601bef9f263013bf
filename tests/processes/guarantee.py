"""Send numbered messages with five keys and print their ids until a test kills this process."""

from __future__ import annotations

import sys

from producer_core import ReliableKafkaProducer


def main() -> None:
    servers, topic, journal, store, delivery, first, count = sys.argv[1:]
    producer = ReliableKafkaProducer(
        servers,
        {"linger_ms": 2},
        store=None if store == "none" else store,
        journal_dir=journal,
        delivery=delivery,
        health_check_interval=3600,
    )
    for number in range(int(first), int(first) + int(count)):
        message_id = producer.send_message(topic, b"%d" % number, f"key-{number % 5}")
        print(number, message_id, flush=True)
    report = producer.close(timeout=60)
    print("closed", report.acknowledged, report.dead, report.journaled, report.lost, flush=True)


if __name__ == "__main__":
    main()
