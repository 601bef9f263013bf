"""Visits to the shop: open sessions, their durations and remaining events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from producer_core.simulate.config import DataGenerationConfig
from producer_core.simulate.weighted_choice import identifier

_CONTINUES = 0.7
_MAX_OPEN = 2000


@dataclass
class ShopSession:
    """One visit; it ends when its time is over or its events are used up."""

    session_id: str
    user: dict[str, Any]
    started: datetime
    ends: datetime
    events_left: int


class ShopSessions:
    """Keeps the visits by id; their number is bounded, and each of them ends."""

    def __init__(self, config: DataGenerationConfig, rng: Random) -> None:
        self.all: dict[str, ShopSession] = {}
        self.opened = 0
        self._config = config
        self._rng = rng
        self._order: list[str] = []  # ids of `all`, for a random choice without a copy

    def visit(self, user: dict[str, Any], at: datetime) -> ShopSession:
        """Return the session of the next event: an open one (70%), else a new one of this user."""
        if self._order and self._rng.random() < _CONTINUES:
            session = self.all[self._rng.choice(self._order)]
            if session.started <= at < session.ends and session.events_left:
                session.events_left -= 1
                return session
            self.end(session.session_id)
        return self._open(user, at)

    def end(self, session_id: str) -> None:
        if self.all.pop(session_id, None) is not None:
            place = self._order.index(session_id)
            self._order[place] = self._order[-1]
            self._order.pop()

    def _open(self, user: dict[str, Any], at: datetime) -> ShopSession:
        if len(self._order) >= _MAX_OPEN:
            self.end(self._order[0])
        minutes = self._rng.randint(*self._config.session_duration_minutes)
        session = ShopSession(
            session_id=identifier(self._rng),
            user=user,
            started=at,
            ends=at + timedelta(minutes=minutes),
            events_left=self._rng.randint(*self._config.events_per_session),
        )
        self.all[session.session_id] = session
        self._order.append(session.session_id)
        self.opened += 1
        return session
