"""The rules file of a store: finds it, loads it, and reloads it after a change."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core._internal.log_fields import with_fields
from producer_core._internal.queued_logger import queued_logger
from producer_core.alerts.rule_parser import read
from producer_core.alerts.rule_set import RuleSet
from producer_core.errors import ConfigError

if TYPE_CHECKING:
    from producer_core.store import Store

logger = queued_logger(__name__)

VARIABLE = "PRODUCER_CORE_ALERTS"
"""Names the rules file; the default is `alerts.toml` beside the store."""


def load(path: Path) -> RuleSet:
    """Return the rule set of a file. Raise ConfigError with every mistake and its fix."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(
            f"The rules file {path.name} cannot be read: {error.strerror or error}.",
            fix="Check its path and its permissions.",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"The rules file {path.name} cannot be read: it is not UTF-8 text.", fix="Save it as UTF-8."
        ) from error
    rule_set, problems = read(text)
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise ConfigError(f"{path.name} contains {len(problems)} mistake{'s' * (len(problems) > 1)}:{listed}")
    return replace(rule_set, path=path)


def rule_set_of(store: Store) -> RuleSet:
    """Return the rule set for a store: from `$PRODUCER_CORE_ALERTS`, else `alerts.toml` beside it, else built-in.

    A file with mistakes is ignored: the built-in rules apply, and `problem` lists the mistakes.
    """
    path = path_for(store)
    if path is None:
        return RuleSet()
    try:
        return load(path)
    except ConfigError as error:
        return RuleSet(path=path, problem=str(error))


def path_for(store: Store) -> Path | None:
    """Return the path of a store's rules file; None when none is named and none exists."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    beside = store.path.with_name("alerts.toml")
    return beside if beside.exists() else None


class RuleSetFile:
    """Supplies the current rule set of a store. It reads the file again only after a change."""

    def __init__(self, store: Store, fixed: RuleSet | None = None) -> None:
        self._store = store
        self._fixed = fixed
        self._version: tuple[Path | None, int, int] | None = None
        self._rule_set = RuleSet()

    def now(self) -> RuleSet:
        if self._fixed is not None:
            return self._fixed
        version = self._current_version()
        if version != self._version:
            self._version, self._rule_set = version, rule_set_of(self._store)
            if self._rule_set.problem:
                logger.warning(**with_fields("alert rules refused", problem=self._rule_set.problem))
        return self._rule_set

    def _current_version(self) -> tuple[Path | None, int, int]:
        """Return the path, modification time and size of the file."""
        path = path_for(self._store)
        try:
            found = path.stat() if path else None
        except OSError:
            found = None
        return path, found.st_mtime_ns if found else 0, found.st_size if found else 0
