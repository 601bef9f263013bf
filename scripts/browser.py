"""Find the browser for screenshots, and wait until a server responds."""

from __future__ import annotations

import contextlib
import shutil
import sys
import urllib.request


def find_chromium() -> str:
    """Return its path; exit if none is installed."""
    found = shutil.which("chromium")
    if found is None:
        print("Chromium is missing: apt-get install chromium", file=sys.stderr)
        raise SystemExit(2)
    return found


def answers(address: str) -> bool:
    """Return whether the server at this address reports that it is healthy."""
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=2) as said:
        return bool(said.status == 200)
    return False
