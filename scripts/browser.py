"""The browser that looks at the dashboard: found, and told when a server is up."""

from __future__ import annotations

import contextlib
import shutil
import sys
import urllib.request


def find_chromium() -> str:
    """Its path; ends the program where there is none."""
    found = shutil.which("chromium")
    if found is None:
        print("Chromium is missing: apt-get install chromium", file=sys.stderr)
        raise SystemExit(2)
    return found


def answers(address: str) -> bool:
    """Whether a server answers there that all is well."""
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=2) as said:
        return bool(said.status == 200)
    return False
