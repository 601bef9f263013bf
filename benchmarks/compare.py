"""Compare the CPU time per message of two checkouts: interleaved pairs on one broker.

    python -m benchmarks.compare ../before --pairs 9

Each pair runs both checkouts in random order, each in its own process. The result of a case is the median of the ratios
within the pairs: 1.03 means that this checkout uses 3% more CPU time per message than the other one.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from benchmarks.frame import ROOT, markdown, spread
from benchmarks.guarantees import machine
from benchmarks.stage import KINDS, Broker, Stage

CASES = ("ours", "bytes", "batch", "process")
"""Rows of `benchmarks.sending`: `send_message` of a dict and of bytes, `send_batch`, and a journal."""


def measure(checkout: Path, case: str, count: int, broker: Broker) -> float:
    """Return the CPU time per message in microseconds."""
    with broker.topic() as topic, tempfile.TemporaryDirectory() as state:
        arguments = json.dumps({"way": case, "count": count, **topic})
        command = [sys.executable, "-m", "benchmarks.child", "sending:one", arguments]
        environment = {"PATH": "/usr/bin:/bin", "HOME": state, "XDG_STATE_HOME": state, "TMPDIR": state}
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=600
        )
    if not done.stdout:
        raise SystemExit(f"{checkout} {case}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["cpu"])


def pair(before: Path, case: str, count: int, broker: Broker) -> Mapping[Path, float]:
    """Measure both checkouts, in random order."""
    checkouts = (before, ROOT)
    return {
        checkout: measure(checkout, case, count, broker)
        for checkout in random.sample(checkouts, len(checkouts))
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="folder of the other checkout, for example a git worktree")
    parser.add_argument("--pairs", type=int, default=9, help="number of interleaved pairs (default 9)")
    parser.add_argument("--count", type=int, default=200_000, help="messages per run (default 200,000)")
    parser.add_argument("--broker", choices=("embedded", "one"), default="one", help="default: one node")
    parser.add_argument("--cases", nargs="+", default=CASES, help="rows of benchmarks.sending")
    options = parser.parse_args()
    before = options.before.resolve()
    rows = []
    with Stage() as stage:
        broker = stage.broker(options.broker)
        for case in options.cases:
            pairs = []
            for number in range(options.pairs):
                pairs.append(pair(before, case, options.count, broker))
                print(
                    f"{case}, pair {number + 1}: {pairs[-1][before]:.2f} → {pairs[-1][ROOT]:.2f} µs",
                    file=sys.stderr,
                )
            ratios = [values[ROOT] / values[before] for values in pairs]
            rows.append(
                (
                    case,
                    f"{median(values[before] for values in pairs):.2f}",
                    f"{median(values[ROOT] for values in pairs):.2f}",
                    spread(ratios, ".3f"),
                )
            )
    head = (
        "case",
        "before: CPU, µs per message",
        "now: CPU, µs per message",
        "ratio: median (lowest to highest)",
    )
    print(markdown(head, rows))
    print(
        f"\nPairs: {options.pairs}, of {options.count:,} messages on {KINDS[options.broker]}. Machine: {machine()}."
    )


if __name__ == "__main__":
    main()
