"""Define where an audit begins and ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from producer_core.errors import ConfigError
from producer_core.pipeline.integrity.spans import Isolation


@dataclass(frozen=True)
class AuditScope:
    """Select what is audited: everything, a time range, from given offsets, or since the last audit."""

    since: float | None = None
    until: float | None = None
    from_offsets: Mapping[int, int] = field(default_factory=dict)
    incremental: bool = False
    isolation: Isolation = "read_committed"

    def __post_init__(self) -> None:
        chosen = [self.since is not None, bool(self.from_offsets), self.incremental]
        if sum(chosen) > 1:
            raise ConfigError(
                "An audit has one start.", fix="Use one of since, from_offsets and incremental."
            )
        if self.incremental and self.until is not None:
            raise ConfigError("An incremental audit ends at the topic's end.", fix="Omit `until`.")
        if self.since is not None and self.until is not None and self.until <= self.since:
            raise ConfigError("The audit would end before it begins.", fix="Choose an `until` after `since`.")
        if self.isolation not in ("read_committed", "read_uncommitted"):
            raise ConfigError(
                f"Unknown isolation {self.isolation!r}.", fix="Use read_committed or read_uncommitted."
            )
