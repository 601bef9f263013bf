"""All benchmarks one after the other, and one page of what they found.

    make bench         everything that fits in an hour; resumes after an interrupt
    make bench-quick   at tiny counts, in two minutes, to verify that each still runs

With `--write`, the page is written into benchmarks/README.md, between its two markers.
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

from benchmarks.frame import ROOT, RunFailed, Target, answer, options, targets_table
from benchmarks.stage import Stage
from producer_core.errors import ProducerError

ALL = (
    "imports", "memory", "sending", "anatomy", "latency", "recording", "replay", "growth", "exactly_once", "overview",
)  # fmt: skip
"""In the order in which a cluster can be kept: embedded, one node, three nodes, behind the proxy."""
ALONE = ("dashboard_pages",)
"""Commands of their own that fit in the hour, where they are there."""
LONG = (
    "guarantees", "dead_letters --count 10000000 --runs 7", "integrity", "reprocess", "pipeline_lag",
)  # fmt: skip
"""Commands of their own that take longer, or much disk."""
README = ROOT / "benchmarks" / "README.md"
_BEGIN, _END = "<!-- results: python -m benchmarks --write -->", "<!-- end of results -->"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", choices=ALL, default=list(ALL), help="run only these")
    parser.add_argument("--write", action="store_true", help="write the page into benchmarks/README.md")
    given = parser.parse_args()
    begun, pages, targets, broken = time.monotonic(), [], [], []
    with tempfile.TemporaryDirectory() as folder, Stage(quick=given.quick) as stage:
        for name in given.only:
            try:
                text, outcome = answer(import_module(f"benchmarks.{name}"), stage, given, Path(folder))
            except (
                RunFailed,
                ProducerError,
                OSError,
            ):  # the others are wanted all the same; it is told at the end
                traceback.print_exc()
                broken.append(name)
                continue
            pages.append(text)
            targets += outcome.targets
            print(f"{text}\n", flush=True)
    if not given.quick and given.only == list(ALL):
        broken += [name for name in ALONE if not _ran(name)]
    page = _page(pages, targets)
    print(page.partition("\n### ")[0])
    print(f"\n{(time.monotonic() - begun) / 60:.0f} minutes.")
    _tell_of_the_long()
    if given.write:
        README.write_text(_put(README.read_text(), page))
    if broken:
        sys.exit(f"Not finished: {', '.join(broken)}. Run the command again to resume.")


def _ran(name: str) -> bool:
    """Its own command, where somebody has written it."""
    if find_spec(f"benchmarks.{name}") is None:
        return True
    print(f"benchmarks.{name}:", flush=True)
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=ROOT).returncode == 0


def _tell_of_the_long() -> None:
    there = [command for command in LONG if find_spec(f"benchmarks.{command.split()[0]}")]
    print(
        "Not run, because they take longer:",
        *(f"python -m benchmarks.{command}" for command in there),
        sep="\n  ",
    )


def _page(pages: list[str], targets: list[Target]) -> str:
    head = "## Results\n\nEach row shows a goal and the measured value. Missed goals are in bold."
    return "\n\n".join([head, targets_table(targets), *pages])


def _put(readme: str, page: str) -> str:
    """The page between its two marks; at the end where there are none yet."""
    if _BEGIN not in readme:
        return f"{readme.rstrip()}\n\n{_BEGIN}\n{page}\n{_END}\n"
    before, _, rest = readme.partition(_BEGIN)
    return f"{before}{_BEGIN}\n{page}\n{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    main()
