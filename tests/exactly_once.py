"""Helpers for the tests of exactly-once delivery: settlement state in memory, a listener, and an independent consumer."""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
from collections import Counter, defaultdict

from producer_core.config import client_config
from producer_core.delivery.delivery import Delivery
from producer_core.delivery.transport import ClientQueueFull
from producer_core.messages import MessageIds, Placement
from tests.factories import transactional_transport
from tests.support import eventually


class MemoryProgress:
    """A settle log in memory. Like a journal, it outlives the transports of a test."""

    def __init__(self):
        self.offsets, self.done, self.calls = {}, set(), []

    def settle(self, seqs, offsets=None):
        self.calls.append((tuple(seqs), dict(offsets or {})))
        self.done.update(self.calls[-1][0])
        self.offsets = {**self.offsets, **(offsets or {})}

    def unsettled_topics(self):
        return {}

    def is_settled(self, seq):
        return seq in self.done


class RecordingListener:
    """A listener that records every event."""

    def __init__(self):
        self.acknowledged, self.failed, self.notices, self.statistics_received = {}, {}, [], []
        self.reported_twice = []
        self.calling = threading.Lock()

    def reports(self, batch):
        assert self.calling.acquire(blocking=False), "two concurrent calls"
        try:
            for delivery, error, message in batch:
                if delivery.seq in self.acknowledged or delivery.seq in self.failed:
                    self.reported_twice.append(delivery.seq)
                if error is None:
                    self.acknowledged[delivery.seq] = (message.partition(), message.offset())
                else:
                    self.failed[delivery.seq] = (error.name(), message.verdict)
        finally:
            self.calling.release()

    def statistics(self, statistics):
        self.statistics_received.append(statistics)

    def connection_error(self, error):
        pass

    def fatal(self, error, generation):
        raise AssertionError("a transactional transport recovers without a restart")

    def notice(self, notice):
        self.notices.append(notice)

    @property
    def kinds(self):
        return [notice.kind for notice in self.notices]

    def settled(self):
        return len(self.acknowledged) + len(self.failed)


class Sender:
    """A transport and its listener for one topic. As a context manager it stops the transport at the end."""

    def __init__(self, servers, topic, *, progress=None, session=None, ids=None, settings=None, **options):
        self.topic = topic
        self.session = session or uuid.uuid4()
        self.ids = ids or MessageIds(self.session)
        self.progress = progress or MemoryProgress()
        self.listener = RecordingListener()
        options.setdefault("transactional_id", f"{topic}-id")
        self.transport = transactional_transport(
            client_config(servers, settings),
            self.listener,
            progress=self.progress,
            ids=self.ids,
            **options,
        )

    def __enter__(self):
        self.transport.start()
        return self

    def __exit__(self, *_):
        self.transport.stop()

    def delivery(self, seq, size=100, key=None, partition=-1):
        raw = self.ids.of(seq)
        value = f"{seq} ".encode().ljust(size, b".")
        return Delivery(raw, seq, self.topic, key, value, (), Placement(partition))

    def send(self, seqs, **options):
        for seq in seqs:
            self.offer(self.delivery(seq, **options))

    def offer(self, delivery, timeout=60):
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.transport.produce(delivery)
            except ClientQueueFull:
                assert time.monotonic() < deadline, f"no room in {timeout} s: {self.listener.kinds}"
                time.sleep(0.01)

    def wait(self, count, timeout=90):
        eventually(lambda: self.listener.settled() >= count, timeout)


def read_topic(cluster, topic):
    """Return the committed sequences on each partition as kcat reads them, without any proxy in between."""
    command = ["kcat", "-C", "-b", cluster.direct_servers, "-t", topic, "-e", "-q", "-f", "%p %s\n"]
    settings = ["-X", "isolation.level=read_committed", "-o", "beginning"]
    out = subprocess.run([*command, *settings], capture_output=True, text=True, timeout=60, check=True).stdout
    by_partition = defaultdict(list)
    for line in out.splitlines():
        partition, seq, *_ = line.split()
        by_partition[int(partition)].append(int(seq))
    return by_partition


def verify_topic(cluster, topic, expected):
    """Check that each sequence is there exactly once and in order on its partition. Return them by partition."""
    by_partition = read_topic(cluster, topic)
    counts = Counter(seq for seqs in by_partition.values() for seq in seqs)
    missing = sorted(set(expected) - counts.keys())
    reported_twice = sorted(seq for seq, count in counts.items() if count > 1)
    unexpected = sorted(counts.keys() - set(expected))
    disordered = [number for number, seqs in by_partition.items() if seqs != sorted(seqs)]
    problems = (
        len(missing),
        missing[:5],
        len(reported_twice),
        reported_twice[:5],
        len(unexpected),
        unexpected[:5],
        disordered,
    )
    assert problems == (0, [], 0, [], 0, [], []), problems
    return by_partition
