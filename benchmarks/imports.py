"""Measure the time to import the package and to print the command's help.

python -m benchmarks.imports --rounds 15
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from benchmarks.frame import ROOT, Bench, Case, Outcome, at_most, main, markdown, spread

QUESTION = "How long does it take to import the package, and to print the help of its command?"
LIMITATIONS = (
    "a cold disk (the files were in the page cache); an installation without compiled `.pyc` files; the imports "
    "when a producer is created: DuckDB, with a store."
)
_COMMAND = "import sys; from producer_core.cli import main; sys.argv = ['producer-core', '--help']; main()"
_WAYS: Mapping[str, Sequence[str]] = {
    "python alone": ("-c", "pass"),
    "`import producer_core`": ("-c", "import producer_core"),
    "`from producer_core import ReliableKafkaProducer`": (
        "-c",
        "from producer_core import ReliableKafkaProducer",
    ),
    "`import confluent_kafka` alone": ("-c", "import confluent_kafka"),
    "`producer-core --help`": ("-c", _COMMAND),
}
HEAVY = ("pandas", "plotly", "streamlit", "pyspark", "duckdb", "pyarrow", "redis", "numpy")


def one(*, way: str) -> dict[str, float]:
    """Return the seconds from the start of an interpreter to its end."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *_WAYS[way]], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return {"seconds": time.perf_counter() - started}


def heavy(*, way: str) -> dict[str, str]:
    """Return which of the large packages are loaded afterwards."""
    source = _WAYS[way][1].replace("main()", "main(standalone_mode=False)")
    query = f"import sys; print('|' + ' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{source}\n{query}"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {"loaded": done.stdout.rpartition("|")[2].strip()}


def measure(bench: Bench) -> Outcome:
    for way in _WAYS:  # compile everything and fill the page cache
        one(way=way)
    cases = [Case(way, "imports:one", {"way": way}) for way in _WAYS]
    runs = bench.run("import", cases, rounds=3 * bench.rounds)
    rows = [
        (
            way,
            spread([1000 * seconds for seconds in runs.numbers(way, "seconds")]),
            spread([1000 * more for more in runs.differences(way, "python alone", "seconds")]),
            heavy(way=way)["loaded"] or "none",
        )
        for way in _WAYS
    ]
    limits = {"`import producer_core`": 0.15, "`producer-core --help`": 0.3}  # fmt: skip
    targets = [at_most(f"{way}, including the interpreter", bound, runs.numbers(way, "seconds"), "s", ".3f") for way, bound in limits.items()]  # fmt: skip
    head = ("", "ms: median (lowest to highest)", "more than python alone", f"loads of {', '.join(HEAVY)}")
    return Outcome(markdown(head, rows), targets)


if __name__ == "__main__":
    main(sys.modules[__name__])
