"""The scope of an audit: where it begins and where it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from producer_core.errors import ConfigError
from producer_core.pipeline.integrity.spans import Isolation


@dataclass(frozen=True)
class AuditScope:
    """What is audited: everything there is, or from and to a moment, or from offsets, or since the last audit."""

    since: float | None = None
    until: float | None = None
    from_offsets: Mapping[int, int] = field(default_factory=dict)
    incremental: bool = False
    isolation: Isolation = "read_committed"

    def __post_init__(self) -> None:
        chosen = [self.since is not None, bool(self.from_offsets), self.incremental]
        if sum(chosen) > 1:
            raise ConfigError(
                "An audit begins at one place.", fix="Use one of since, from_offsets and incremental."
            )
        if self.incremental and self.until is not None:
            raise ConfigError("An incremental audit goes to the end.", fix="Leave until out.")
        if self.since is not None and self.until is not None and self.until <= self.since:
            raise ConfigError("The audit would end before it begins.", fix="Give an `until` after `since`.")
        if self.isolation not in ("read_committed", "read_uncommitted"):
            raise ConfigError(
                f"There is no isolation {self.isolation!r}.", fix="read_committed or read_uncommitted."
            )
