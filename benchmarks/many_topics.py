"""Measure why a send to a thousand topics costs more than a send to one.

    python -m benchmarks.many_topics --rounds 3

librdkafka sends one request for each partition, and finds the topic of a message by a search under a lock that its broker
threads use too. A loop that is quick enough queues many messages of a topic before the first request, so that they share
requests. A second manual loop computes for 20 µs before each send: it shows what any sender reaches that does more for a
message.
"""

from __future__ import annotations

import sys

from benchmarks.frame import Bench, Case, Outcome, main, markdown, spread, times
from benchmarks.growth import SLOWER, TITLES

QUESTION = "Why does a send to a thousand topics cost more than a send to one?"
LIMITATIONS = (
    "other pauses between two messages; more than two cores, which the broker and the sender share here; topics with several "
    "partitions, of which the client writes a batch each."
)
_TOPICS, _COUNT = 1_000, 100_000
_LOOP = "by hand, inline"
_WAYS = (_LOOP, SLOWER, "ours")


def measure(bench: Bench) -> Outcome:
    broker = bench.stage.broker("one")
    topics, count = bench.size(_TOPICS, 10), bench.size(_COUNT, 100)
    cases = [Case(way, "growth:one", {"way": way, "count": count, "topics": topics}) for way in _WAYS]
    runs = bench.run("many_topics", cases, around=lambda case: broker.topics(topics))
    rows = [
        (
            TITLES[way],
            spread(runs.numbers(way, "cpu"), form=",.1f"),
            spread(runs.numbers(way, "rate"), form=",.0f"),
            times(runs.ratio(way, _LOOP)),
        )
        for way in _WAYS
    ]
    head = ("on Kafka, one node", "CPU, µs per message", "msg/s", "msg/s x manual loop")
    return Outcome(markdown(head, rows), [])


if __name__ == "__main__":
    main(sys.modules[__name__])
