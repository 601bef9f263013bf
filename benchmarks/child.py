"""Call one function of a benchmark in this process and print its result as one line of JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    function: Callable[..., Mapping[str, Any]] = getattr(import_module(f"benchmarks.{module}"), name)
    print(json.dumps(function(**json.loads(sys.argv[2]))), flush=True)


if __name__ == "__main__":
    main()
