"""Run the benchmarks one after another and print one page of results.

    make bench         every benchmark that fits in an hour; resumes after an interrupt
    make bench-quick   the same at tiny counts, in two minutes, to verify that each runs

`--write` puts the page into benchmarks/README.md, between the two marker comments.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.frame import ROOT, RunFailed, Target, argument_parser, measure, targets_table
from benchmarks.stage import Stage
from producer_core.errors import ProducerError

ALL = (
    "imports", "memory", "idle", "logs", "tracing", "schemas", "flow_control", "dead_letter_topic", "sending", "anatomy", "latency", "recording",
    "prometheus", "replay",
    "growth", "exactly_once", "overview",
)  # fmt: skip
"""Ordered so that consecutive benchmarks share a cluster: embedded, one node, three nodes, behind the proxy."""
SEPARATE = ("dashboard_pages",)
"""Benchmarks with their own command line that fit in the hour."""
LONG = (
    "features", "compression", "guarantees", "dead_letters --count 10000000 --runs 7", "integrity", "reprocess", "pipeline_lag",
)  # fmt: skip
"""Benchmarks with their own command line that need more time or disk."""
README = ROOT / "benchmarks" / "README.md"
_BEGIN, _END = "<!-- results: python -m benchmarks --write -->", "<!-- end of results -->"


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--only", nargs="+", choices=ALL, default=list(ALL), help="run only these benchmarks")
    parser.add_argument("--write", action="store_true", help="put the page into benchmarks/README.md")
    options = parser.parse_args()
    started, pages, targets, failed = time.monotonic(), [], [], []
    with tempfile.TemporaryDirectory() as folder, Stage(quick=options.quick) as stage:
        for name in options.only:
            module = import_module(f"benchmarks.{name}")
            try:
                text, outcome = measure(module, stage, options, Path(folder))
            except (RunFailed, ProducerError, OSError):  # run the others; the last line names the failed ones
                traceback.print_exc()
                failed.append(name)
                continue
            pages.append(text)
            targets += outcome.targets
            print(f"{text}\n", flush=True)
    if not options.quick and options.only == list(ALL):
        failed += [name for name in SEPARATE if not _succeeded(name)]
    page = _page(pages, targets)
    print(page.partition("\n### ")[0])
    print(f"\n{(time.monotonic() - started) / 60:.0f} min.")
    _list_long()
    if options.write:
        README.write_text(_insert(README.read_text(), page))
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}. Run the command again; it keeps the complete rounds.")


def _succeeded(name: str) -> bool:
    """Run the command of a benchmark, if it exists, and return whether it succeeded."""
    if find_spec(f"benchmarks.{name}") is None:
        return True
    print(f"benchmarks.{name}:", flush=True)
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=ROOT).returncode == 0


def _list_long() -> None:
    existing = [command for command in LONG if find_spec(f"benchmarks.{command.split()[0]}")]
    print(
        "Not run because they take longer:",
        *(f"python -m benchmarks.{command}" for command in existing),
        sep="\n  ",
    )


def _page(pages: list[str], targets: list[Target]) -> str:
    head = "## Results\n\nEach row is a target. A missed target is marked **no**."
    return "\n\n".join([head, targets_table(targets), *pages])


def _insert(readme: str, page: str) -> str:
    """Insert the page between its two markers, or append both if there are none yet."""
    if _BEGIN not in readme:
        return f"{readme.rstrip()}\n\n{_BEGIN}\n{page}\n{_END}\n"
    before, _, rest = readme.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{page}\n{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    main()
