"""The file of rules of a store: found, read, and read again when it was changed."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core.alerts.rule_parser import read
from producer_core.alerts.rule_set import RuleSet
from producer_core.errors import ConfigError

if TYPE_CHECKING:
    from producer_core.store import Store

logger = logging.getLogger(__name__)

VARIABLE = "PRODUCER_CORE_ALERTS"
"""Names the file of rules; without it `alerts.toml` beside the store."""


def load(path: Path) -> RuleSet:
    """The book of a file; ConfigError names every rule and key that is wrong, with the fix."""
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
    book, problems = read(text)
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise ConfigError(f"{path.name} holds {len(problems)} mistake{'s' * (len(problems) > 1)}:{listed}")
    return replace(book, path=path)


def rule_set_of(store: Store) -> RuleSet:
    """The book for a store: `$PRODUCER_CORE_ALERTS`, else `alerts.toml` beside it, else our rules alone.

    A file with mistakes changes nothing: our rules hold, and `problem` says what is wrong.
    """
    path = path_for(store)
    if path is None:
        return RuleSet()
    try:
        return load(path)
    except ConfigError as error:
        return RuleSet(path=path, problem=str(error))


def path_for(store: Store) -> Path | None:
    """The file of rules for a store; None when there is none and none was named."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    beside = store.path.with_name("alerts.toml")
    return beside if beside.exists() else None


class RuleSetFile:
    """The book for a store as it is now; the file is read again only when it was changed."""

    def __init__(self, store: Store, fixed: RuleSet | None = None) -> None:
        self._store = store
        self._fixed = fixed
        self._stamp: tuple[Path | None, int, int] | None = None
        self._book = RuleSet()

    def now(self) -> RuleSet:
        if self._fixed is not None:
            return self._fixed
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._stamp, self._book = stamp, rule_set_of(self._store)
            if self._book.problem:
                logger.warning("alert rules refused", extra={"problem": self._book.problem})
        return self._book

    def _stamp_now(self) -> tuple[Path | None, int, int]:
        path = path_for(self._store)
        try:
            found = path.stat() if path else None
        except OSError:
            found = None
        return path, found.st_mtime_ns if found else 0, found.st_size if found else 0
