"""Verify that memory, threads, files and latency of a producer do not grow while the network fails at random.

    python -m benchmarks.soak                 half an hour at 2,000 messages per second, on a real Kafka
    python -m benchmarks.soak --minutes 1 --embedded

A process with a store and a journal sends at a steady rate, and a proxy injects network faults of a few seconds. The
process samples its own resources. The verdict compares the medians of the last fifth of the run with those of the second
fifth; the first fifth is a warm-up, and samples near a fault do not count. The growth per hour comes from the second half
of the run, because a buffer that fills up slows down and a leak does not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import frame, plot
from benchmarks.frame import call, markdown
from benchmarks.guarantees import machine, message
from benchmarks.native import native
from producer_core.brokers import embedded, kafka
from producer_core.metrics.histogram import Histogram
from tests.proxy import BlackHole, Delay, FaultProxy, Hold, Reset, Rule, Slow, Swallow

TOPIC, PARTITIONS = "soak", 6
_STEP = 0.01
_RECOVERY_S = 5.0
"""Seconds after a fault until the delayed messages are delivered."""

FAULTS: Mapping[str, tuple[Rule, ...]] = {
    "resets": (Rule(Reset(), api="Produce", chance=0.05),),
    "lost responses": (Rule(Swallow(0.1), api="Produce", chance=0.05),),
    "late requests": (Rule(Hold(0.05, up_to=0.5), api="Produce", chance=0.05),),
    "lost requests": (Rule(BlackHole(0.5), api="Produce", chance=0.02),),
    "slow round trip": (Rule(Delay(0.05, up_to=0.3)),),
    "low bandwidth": (Rule(Slow(300_000)),),
}


@dataclass(frozen=True)
class Bound:
    """The allowed growth of a number from early to late: a factor or an increment, whichever is larger."""

    unit: str
    factor: float
    increment: float


BOUNDS: Mapping[str, Bound] = {
    "memory": Bound("MB", 1.15, 16),
    "in use": Bound("MB", 1.15, 3),
    "kept": Bound("MB", 1.3, 12),
    "python": Bound("thousand", 1.05, 10),
    "threads": Bound("", 1.0, 1),
    "handles": Bound("", 1.1, 6),
    "journal": Bound("MB", 1.5, 80),
    "store": Bound("MB", 1.2, 16),
    "p50": Bound("ms", 1.5, 5),
    "p99": Bound("ms", 2.0, 25),
}
TITLES: Mapping[str, str] = {
    "memory": "anonymous memory",
    "in use": "allocated by glibc (DuckDB, librdkafka)",
    "kept": "freed, but kept by glibc",
    "python": "Python memory blocks",
    "handles": "open files and sockets",
    "journal": "journal files",
    "store": "store file",
}


# the producer's process


def send(*, seconds: float, rate: float, every: float, servers: str, folder: str) -> dict[str, Any]:
    """Send at a steady rate with a sample every few seconds, and return the final counts."""
    from producer_core import ReliableKafkaProducer
    from producer_core.errors import QueueFull

    place, ended, refused = Path(folder), threading.Event(), 0
    store, journal = place / "store.duckdb", place / "journal"
    with ReliableKafkaProducer(servers, store=store, journal_dir=journal) as producer:
        sampler = threading.Thread(
            target=_sample, args=(producer, place, every, ended), name="benchmark", daemon=True
        )
        sampler.start()
        started, number = time.perf_counter(), 0
        while (now := time.perf_counter() - started) < seconds:
            while number < int(now * rate):
                try:
                    producer.send_message(TOPIC, message(number), f"key-{number % 1000}")
                except QueueFull:  # an outage longer than max_block_ms
                    refused += 1
                number += 1
            time.sleep(_STEP)
        producer.flush(180)
        ended.set()
        sampler.join()
        stats, left = producer.metrics.snapshot(), producer.pending_count
    return {
        "tried": number, "refused": refused, "acknowledged": stats.acknowledged, "dead": stats.dead, "left": left,
        "possible_duplicates": stats.total("possible_duplicates"), "retried": stats.total("retried"),
    }  # fmt: skip


def _sample(producer: Any, place: Path, every: float, ended: threading.Event) -> None:
    before = Histogram()
    with (place / "samples.jsonl").open("a") as file:
        while not ended.wait(every):
            now = producer.metrics.snapshot().histogram
            fresh = Histogram({bucket: count - before.counts[bucket] for bucket, count in now.counts.items()})
            before = now
            line = {"at": time.time(), **_of_process(place), **_latencies(fresh)}
            file.write(json.dumps(line) + "\n")
            file.flush()


def _latencies(found: Histogram) -> dict[str, float]:
    if not found.total:
        return {}
    return {name: 1000 * (found.quantile(q) or 0.0) for name, q in (("p50", 0.5), ("p99", 0.99))}


def _of_process(place: Path) -> dict[str, float]:
    """Return memory and file sizes in megabytes, the numbers of threads and handles, the load average and the CPU seconds."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "memory": int(status["RssAnon"].split()[0]) / 1024,
        **_parts(),
        "threads": int(status["Threads"]),
        "handles": len(list(Path("/proc/self/fd").iterdir())),
        "journal": _megabytes((place / "journal").rglob("*")),
        "store": _megabytes(place.glob("store.duckdb*")),
        "load": os.getloadavg()[0],
        "cpu": time.process_time(),
    }


def _parts() -> dict[str, float]:
    python, found = {"python": sys.getallocatedblocks() / 1000}, native()
    if found is None:
        return python
    return {"in use": found.in_use / 2**20, "kept": found.kept / 2**20, **python}


def _megabytes(files: Iterator[Path]) -> float:
    found = 0
    for file in files:
        try:
            found += file.stat().st_blocks * 512
        except FileNotFoundError:  # the journal deleted a segment
            continue
    return found / 1e6


# faults


@contextmanager
def behind_a_proxy(on_embedded: bool, seed: int) -> Iterator[tuple[str, FaultProxy]]:
    with FaultProxy(seed=seed) as proxy:
        if on_embedded:
            with embedded.start(topics={TOPIC: PARTITIONS}) as small:
                small.advertise(proxy.listen)
                yield proxy.bootstrap_servers, proxy
        else:
            with kafka.start(nodes=1, advertise=proxy.advertise) as cluster:
                cluster.create_topic(TOPIC, PARTITIONS)
                yield proxy.bootstrap_servers, proxy


def inject_faults(
    proxy: FaultProxy, chance: random.Random, pace: float, ended: threading.Event
) -> list[Fault]:
    """Inject faults of a few seconds with pauses in between until the end, and return them."""
    injected: list[Fault] = []
    while not ended.wait(chance.uniform(0.5, 1.5) * 12 * pace):
        name, started = chance.choice(list(FAULTS)), time.time()
        with proxy.during(*FAULTS[name]):
            ended.wait(chance.uniform(0.3, 1.5) * 4 * pace)
        proxy.reset_connections()
        injected.append(Fault(name, started, time.time()))
    return injected


@dataclass(frozen=True)
class Fault:
    name: str
    started: float
    ended: float


# report


Samples = Sequence[Mapping[str, float]]


def undisturbed(samples: Samples, faults: Sequence[Fault], after: float) -> Samples:
    """Return the samples without a fault nearby."""
    return [
        one
        for one in samples
        if not any(fault.started - 1 <= one["at"] <= fault.ended + after for fault in faults)
    ]


@dataclass(frozen=True)
class Drift:
    """A number early and late in the run, and its growth per hour in the second half (None if unknown)."""

    name: str
    early: float
    late: float
    growth: float | None = None

    @property
    def flat(self) -> bool:
        bound = BOUNDS[self.name]
        return self.late <= max(self.early * bound.factor, self.early + bound.increment)


def drifts(samples: Samples, quiet: Samples) -> list[Drift]:
    """Compare the second fifth with the last. Samples near a fault do not count, because delayed messages use memory."""
    started, took = samples[0]["at"], samples[-1]["at"] - samples[0]["at"]
    found = []
    for name in BOUNDS:
        values = [[one[name] for one in quiet if name in one and _fifth(one["at"] - started, took) == part] for part in (1, 4)]  # fmt: skip
        if all(values):
            found.append(
                Drift(name, median(values[0]), median(values[1]), _growth(name, quiet, started, took))
            )
    return found


def _growth(name: str, quiet: Samples, started: float, took: float) -> float | None:
    """Return the growth per hour from the medians of the last two quarters, whose centres are a quarter of the run apart."""
    quarters = [
        [one[name] for one in quiet if name in one and low <= (one["at"] - started) / took <= low + 0.25]
        for low in (0.5, 0.75)
    ]
    if not all(quarters):
        return None
    return (median(quarters[1]) - median(quarters[0])) / (took / 4) * 3600


def _fifth(at: float, took: float) -> int:
    return min(4, int(5 * at / took)) if took else 0


BUSY = "; other processes used the machine, so the latency is not meaningful"
_BUSY_LOAD = 2.0

DRAWN: Mapping[str, Sequence[str]] = {
    "memory": ("memory", "in use", "python"),
    "process": ("threads", "handles", "store"),
    "latency": ("p50", "p99"),
}


def draw(folder: Path, samples: Samples, quiet: Samples) -> None:
    """Draw each number relative to its first value, so that several fit into one plot."""
    started, took, parts = samples[0]["at"], samples[-1]["at"] - samples[0]["at"], 12
    places = [f"{took * (part + 1) / parts / 60:.3g}" for part in range(parts)]
    for file, names in DRAWN.items():
        lines: dict[str, dict[str, list[float]]] = {}
        for name in names:
            line: dict[str, list[float]] = {}
            for one in quiet:
                if name in one:
                    part = min(parts - 1, int(parts * (one["at"] - started) / took))
                    line.setdefault(places[part], []).append(one[name])
            if line:
                first = median(line[next(place for place in places if place in line)]) or 1.0
                lines[name] = {place: [value / first for value in values] for place, values in line.items()}
        plot.draw(
            folder / f"soak-{file}.svg", title=f"Soak: {', '.join(names)}, relative to the first value", places=places,
            across=f"minutes{BUSY if busy(samples) else ''}", up="x", lines=lines,
        )  # fmt: skip


def report(
    options: argparse.Namespace,
    done: Mapping[str, Any],
    found: Sequence[Drift],
    faults: int,
    samples: Samples = (),
) -> str:
    rows = []
    for one in found:
        unit, name = BOUNDS[one.name].unit, TITLES.get(one.name, one.name)
        growth = "" if one.growth is None else f"{one.growth:+,.1f}"
        early, late = (f"{number:,.1f} {unit}".strip() for number in (one.early, one.late))
        rows.append((name, early, late, growth, "yes" if one.flat else "**no**"))
    complete = done["tried"] - done["refused"] == done["acknowledged"] + done["dead"] and not done["left"]
    verdict = "flat" if complete and all(one.flat for one in found) else "**not flat**"
    if unknown := [name for name in BOUNDS if name not in {one.name for one in found}]:
        verdict += f" (the run is too short for {', '.join(unknown)})"
    head = ("", "early", "late", "growth per hour, second half", "flat")
    return (
        f"Duration {options.minutes:g} min at {options.rate:,.0f} messages per second, faults: {faults}; {verdict}.\n\n"
        f"{markdown(head, rows)}\n\n"
        f"{done['tried']:,} messages: {done['acknowledged']:,} acknowledged, {done['dead']:,} dead letters, "
        f"{done['refused']:,} not accepted, {done['left']:,} pending; {done['retried']:,} retried by the producer, "
        f"{done['possible_duplicates']:,} of them possible duplicates.\n\n{_usage(samples)}Machine: {machine()}."
    )


def _usage(samples: Samples) -> str:
    """Describe the CPU usage of the process and the load of the machine."""
    known = [one for one in samples if "load" in one and "cpu" in one]
    if len(known) < 2:
        return ""
    first, last = known[0], known[-1]
    share = (last["cpu"] - first["cpu"]) / (last["at"] - first["at"])
    loads = [one["load"] for one in known]
    return (
        f"The process used {share:.0%} of a core. Load average of the machine: {min(loads):.1f} to {max(loads):.1f}"
        f"{BUSY if busy(samples) else ''}.\n"
    )


def busy(samples: Samples) -> bool:
    """Return whether other processes used the machine; the run itself causes a load of less than one."""
    return any(one.get("load", 0.0) > _BUSY_LOAD for one in samples)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30, help="duration (default 30)")
    parser.add_argument("--rate", type=float, default=2_000, help="messages per second (default 2,000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the faults")
    parser.add_argument(
        "--embedded", action="store_true", help="use the embedded broker instead of a real Kafka"
    )
    parser.add_argument("--plots", type=Path, default=frame.PLOTS, help="folder of the plots")
    parser.add_argument(
        "--samples", type=Path, default=frame.RESULTS / "soak.jsonl", help="file of the samples"
    )
    options = parser.parse_args()
    seconds = 60 * options.minutes
    pace, ended = min(1.0, max(0.5, seconds / 600)), threading.Event()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        with behind_a_proxy(options.embedded, options.seed) as (servers, proxy):
            injection = pool.submit(inject_faults, proxy, random.Random(options.seed), pace, ended)
            try:
                done = call(
                    "soak:send", within=seconds + 600, seconds=seconds, rate=options.rate, every=min(5.0, seconds / 60), servers=servers, folder=folder
                )  # fmt: skip
            finally:
                ended.set()
            faults = injection.result()
        options.samples.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(folder) / "samples.jsonl", options.samples)
    samples = [json.loads(line) for line in options.samples.read_text().splitlines()]
    quiet = undisturbed(samples, faults, _RECOVERY_S)
    found = drifts(samples, quiet)
    draw(options.plots, samples, quiet)
    text = report(options, done, found, len(faults), samples)
    print(text)
    if "**" in text:
        sys.exit(1)


if __name__ == "__main__":
    main()
