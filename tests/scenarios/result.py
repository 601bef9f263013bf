"""The result of one run of a scenario, saved as a JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any


class SavedResult:
    """Base of the harnesses' results, which are dataclasses with `violations`.

    A scenario with `expected="violation"` passes if `shows_violation` is true: it proves that the check can fail.
    """

    expected = "none"
    shows_violation: Any = False
    violations: list[str]

    @property
    def verdict(self):
        if self.expected == "violation":
            return "shows it" if self.shows_violation else "SHOWED NOTHING"
        return "VIOLATED" if self.violations else "holds"

    @property
    def good(self):
        return self.verdict in ("holds", "shows it")

    def save(self, file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def load(cls, file):
        return cls(**json.loads(file.read_text()))

    @classmethod
    def load_all(cls, folder):
        """Return the saved results in a folder, sorted by file name."""
        return [cls.load(file) for file in sorted(Path(folder).glob("*.json"))]


def markdown_table(rows):
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)
