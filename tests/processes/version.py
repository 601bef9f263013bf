"""Use the version of producer_core that PYTHONPATH names: read one request a line, and print its result.

A request is a JSON list: the name of an action and its arguments. Only what every version since 8e6e558a has is used here.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import producer_core
from producer_core import ReliableKafkaProducer

_producers = []


def where():
    return producer_core.__file__


def produce(servers, store, journal=None, telemetry=None):
    """Start a producer. The other actions use it until `close`."""
    _producers.append(
        ReliableKafkaProducer(
            servers,
            {"linger_ms": 1},
            store=store,
            journal_dir=journal,
            telemetry_topic=telemetry,
            health_check_interval=3600,
        )
    )


def send(topic, values, flush=True):
    """Send these values; return their ids when all are acknowledged or dead letters."""
    ids = [_producers[-1].send_message(topic, value.encode(), "key") for value in values]
    if flush:
        _producers[-1].flush(timeout=60)
    return [str(one) for one in ids]


def drain():
    """Wait until the journal's messages of earlier processes are settled."""
    _producers[-1].flush(timeout=60)


def close():
    report = _producers.pop().close(timeout=60)
    return [report.acknowledged, report.dead, report.journaled, report.lost]


def command(arguments, text):
    """Run a command; return its exit code and its output."""
    from click.testing import CliRunner

    from producer_core.cli import main

    done = CliRunner().invoke(main, arguments, input=text)
    crash = "" if isinstance(done.exception, SystemExit | None) else repr(done.exception)
    return [done.exit_code, done.output + crash]


def read(store):
    """Return the acknowledged messages, and the ids of dead letters by state, through this version's own queries."""
    from producer_core.dlq import DeadLetterFilter, DeadLetters
    from producer_core.store import Store

    opened = Store.open(store)
    opened.recover_statistics()
    totals = opened.rows("totals")[0]
    with opened.borrow() as connection:
        states = connection.execute(
            "SELECT state, list(message_id ORDER BY message_id) FROM dead_letters GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    pending = DeadLetters(opened).find(DeadLetterFilter(), limit=1000)
    return [totals["acknowledged"], dict(states), sorted(one.message_id for one in pending)]


def maintain(store):
    from producer_core.store import Store

    Store.open(store).maintain(time.time())


def compact(store):
    from producer_core.errors import StoreError
    from producer_core.store import Store

    try:
        Store.open(store).compact()
    except StoreError as error:
        return str(error)
    return ""


def leave_statistics(store, producer, acknowledged):
    """Write a file of statistics as a process that is killed before it can write to the store."""
    from producer_core.metrics.statistics_log import StatisticsLog
    from producer_core.store import Batch, StatisticsRow

    row = StatisticsRow(
        int(time.time()), "c", producer, "orders", acknowledged, acknowledged, 0, 0, 0, 0, 0, 0, 100, 0.01
    )
    log = StatisticsLog(Path(store))
    log.append([Batch(producer, 0, (row,))])
    log.close()


def leave_spill(path, ids):
    """Write dead letters to a spill file, as a process that cannot write to its store."""
    from producer_core.dlq import Spill
    from producer_core.events import DeadLetter

    Spill(path).append(
        [
            DeadLetter(
                *(one, "c", "p", "spilled", b"key", b"value", (("a", b"1"),), None, None),
                *("rejected", "one transmission", "permanent", "X", "boom", "f", (), 1.0, time.time()),
            )
            for one in ids
        ]
    )


def take_spill(path, store):
    """Move the content of a spill file to the store."""
    from producer_core.dlq import DeadLetters, Spill
    from producer_core.store import Store

    with Spill(path).taking() as found:
        DeadLetters(Store.open(store)).add(found)
    return len(found)


def pages(store, names):
    """Render pages of the dashboard; return the errors they show."""
    from streamlit.testing.v1 import AppTest

    sys.argv = ["app", store]
    found = []
    for name in names:
        page = AppTest.from_string(
            f"from pathlib import Path\nfrom producer_core.dashboard.views import {name}\n\n{name}.show(Path({store!r}))\n",
            default_timeout=240,
        ).run()
        text = " ".join(element.body for element in page.get("html"))
        found.append([[str(one.value) for one in page.exception], text])
    return found


def main():
    output, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        action, *arguments = json.loads(line)
        try:
            answer = {"result": globals()[action](*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=output, flush=True)


if __name__ == "__main__":
    main()
