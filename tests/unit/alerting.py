"""Helpers of the alert tests: a simulated store on a virtual clock, and an HTTP receiver with configurable faults."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from bisect import bisect_right
from dataclasses import replace
from itertools import count

from producer_core.alerts import RuleSet, evaluate
from producer_core.alerts.alert_state import after
from producer_core.alerts.snapshot import (
    DeadLetterCounts,
    ProducerState,
    SnapshotNeeds,
    StoreSnapshot,
    WindowSums,
    Writer,
)
from producer_core.store import Batch, ProducerRow, StatisticsRow

P = "p-1"
_sequence = count(1)


def seen(producer_id=P, **changes):
    values = {
        "producer_id": producer_id, "client": f"shop {producer_id}", "seen_at": 0.0, "silent": 0.0, "closed": False, "started_at": 0.0,
        "connected": True, "pending": 0, "waiting_retry": 0, "queue_messages": 0, "queue_limit": 100_000, "memory_bytes": 1,
        "memory_limit": 10,
    }  # fmt: skip
    return ProducerState(**{**values, **changes})


class World:
    """Simulates topics and producers, and evaluates rules on the same sums that a store returns."""

    def __init__(self, rules, *, start=1_000_000.0):
        self.rules = rules
        self.start = start
        self.now = start
        self.rows = {}  # by topic and producer: times, and the cumulative counts of good and bad messages
        self.producers = (seen(),)
        self.dead_letters = {}
        self.silences = ()
        self.known = {}
        self.changes = []  # (seconds since the start, kind, rule, subject)
        self.notified = []  # the same for notifications

    def record(self, good=0, bad=0, topic="orders", producer=P):
        times, goods, bads = self.rows.setdefault(Writer(topic, producer), ([], [0], [0]))
        times.append(self.now)
        goods.append(goods[-1] + good)
        bads.append(bads[-1] + bad)

    def snapshot(self):
        windows = SnapshotNeeds.of(self.rules.values()).windows
        return StoreSnapshot(
            self.now,
            sums={window: self._sums(window) for window in windows},
            producers=self.producers,
            dead_letters=self.dead_letters,
            silences=self.silences,
        )

    def _sums(self, window):
        found = {}
        for writer, (times, good, bad) in self.rows.items():
            first, last = bisect_right(times, self.now - window), bisect_right(times, self.now)
            if last > first:
                good_in, bad_in = good[last] - good[first], bad[last] - bad[first]
                found[writer] = WindowSums(
                    accepted=good_in + bad_in, acknowledged=good_in, dead=bad_in, failed_attempts=bad_in
                )
        return found

    def evaluate(self):
        changes = evaluate(self.rules, self.snapshot(), self.known.values())
        for change in changes:
            if change.kind in ("fired", "resolved"):
                self.changes.append(
                    (self.now - self.start, change.kind, change.alert.rule, change.alert.subject)
                )
            before = self.known.get(change.alert.alert_id)
            if change.kind == "dropped":
                self.known.pop(change.alert.alert_id)
                continue
            self.known[change.alert.alert_id] = change.alert
            if change.kind == "decided":
                self._notify(before, change.alert)
        for alert_id, item in list(self.known.items()):
            if item.state == "resolved" and item.telling_end is not None:
                del self.known[alert_id]
        return changes

    def _notify(self, before, item):
        at = self.now - self.start
        if item.telling == "begin" and (before is None or before.telling is None):
            self.notified.append((at, "firing", item.rule, item.subject))
        if item.telling_end and not (before is not None and before.telling_end):
            self.notified.append((at, "resolved", item.rule, item.subject))

    def report(self, changes):
        """Apply changes that a producer reports, as AlertLog.record stores them."""
        firing = {item.key: item for item in self.known.values() if item.state == "firing"}
        for change in changes:
            item = replace(change.alert, told_by=P)
            known = firing.get(item.key)
            if known is not None:
                item = replace(
                    item, muted_by=known.muted_by, telling=known.telling, telling_end=known.telling_end,
                    started_at=known.started_at, fired_at=known.fired_at,
                )  # fmt: skip
            self.known[item.alert_id] = item

    def firing(self):
        return sorted((item.rule, item.subject) for item in self.known.values() if item.state == "firing")


__all__ = ["DeadLetterCounts", "Receiver", "RuleSet", "World", "after", "receiver", "seen", "write"]


# a store


def write(store, at, *, topic="orders", producer=P, good=0, bad=0, closed_at=None, pending=0, connected=True):
    """Write one second of a producer's statistics, as its recorder does."""
    row = ProducerRow(
        producer, "c", "shop", "host-7", 4711, "0", 0.0, at, closed_at, connected, None, pending, 0, 0, 100_000, 1, 10,
        True, "at_least_once", "{}",
    )  # fmt: skip
    statistics = (
        (StatisticsRow(int(at), "c", producer, topic, good + bad, good, bad, bad, 0, 0, 0, 0, 0, 0.0),)
        if good or bad
        else ()
    )
    store.append(Batch(producer, next(_sequence), statistics=statistics, producer=row))


# a receiver


class Receiver:
    """A real HTTP server on a free port. Its attributes select a status, extra headers, and faults."""

    def __init__(self):
        self.payloads = []
        self.headers = []
        self.status = 200
        self.body = b"ok"
        self.extra = {}
        self.hang = threading.Event()
        self.hanging = False
        self.drip = self.drip_body = False
        self.requests = 0
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                receiver.requests += 1
                payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if receiver.hanging:
                    receiver.hang.wait(60)
                    return
                if receiver.drip or receiver.drip_body:
                    with contextlib.suppress(OSError):
                        if receiver.drip_body:  # a response that ends its connection
                            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 100000\r\n\r\n")
                        while not receiver.hang.wait(0.05):
                            self.wfile.write(b"X")
                    return
                if receiver.status < 300:
                    receiver.payloads.append(payload)
                    receiver.headers.append(dict(self.headers))
                self.send_response(receiver.status)
                for name, value in receiver.extra.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(receiver.body)))
                self.end_headers()
                self.wfile.write(receiver.body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook/s3cr3t-path-91?token=t0ken-77"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def received(self):
        """Return (rule, subject, status) of every accepted alert, in order."""
        return [
            (item["labels"]["alertname"], item["labels"]["subject"], item["status"])
            for payload in self.payloads
            for item in payload["alerts"]
        ]

    def close(self):
        self.hang.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


@contextlib.contextmanager
def receiver():
    found = Receiver()
    try:
        yield found
    finally:
        found.close()
