"""What it takes to import the package, and to see the command's help.

python -m benchmarks.imports --rounds 15
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from benchmarks.frame import ROOT, Bench, Case, Outcome, alone, at_most, markdown, spread

QUESTION = "How long does it take to import the package, and to print the help of its command?"
SHOWS_NOT = (
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
    """Seconds from the start of an interpreter to its end."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, *_WAYS[way]], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return {"seconds": time.perf_counter() - begun}


def heavy(*, way: str) -> dict[str, str]:
    """Which of the large packages are loaded afterwards."""
    source = _WAYS[way][1].replace("main()", "main(standalone_mode=False)")
    asked = f"import sys; print('|' + ' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{source}\n{asked}"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {"loaded": done.stdout.rpartition("|")[2].strip()}


def measure(bench: Bench) -> Outcome:
    for way in _WAYS:  # once, so that everything is compiled and in the page cache
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
    targets = [at_most(f"{way}, the interpreter included", bound, runs.numbers(way, "seconds"), "s", ".3f") for way, bound in limits.items()]  # fmt: skip
    head = ("", "ms: median (lowest to highest)", "more than python alone", f"of {', '.join(HEAVY)} it loads")
    return Outcome(markdown(head, rows), targets)


if __name__ == "__main__":
    alone(sys.modules[__name__])
