"""Generate the events of visits: page views, searches and cart changes."""

from __future__ import annotations

from datetime import datetime
from random import Random
from typing import Any

from producer_core.simulate.config import DataGenerationConfig
from producer_core.simulate.sessions import ShopSessions
from producer_core.simulate.shop import Shop
from producer_core.simulate.weighted_choice import WeightedChoice, identifier, words

Record = dict[str, Any]

_PAGES = ("/", "/cart", "/categories", "/deals", "/account", "/help")
_REFERRERS = ("direct", "https://search.example", "https://social.example", "https://mail.example", None)
_SEARCHES = words("backpack camera coat coffee dress gift headphones lamp laptop novel phone shoes toy watch")


class UserEvents:
    """Generates one event at a time from one random source."""

    def __init__(self, config: DataGenerationConfig, shop: Shop, sessions: ShopSessions, rng: Random) -> None:
        self._shop = shop
        self._sessions = sessions
        self._rng = rng
        self._kinds = WeightedChoice({name: about["weight"] for name, about in config.event_types.items()})
        self._durations = {name: about["duration_range"] for name, about in config.event_types.items()}

    def event(self, at: datetime) -> Record:
        rng = self._rng
        session = self._sessions.visit(self._shop.active_user(rng), at)
        kind = self._kinds.draw(rng)
        record = {
            "event_id": identifier(rng),
            "user_id": session.user["user_id"],
            "session_id": session.session_id,
            "event_type": kind,
            "timestamp": at.isoformat(),
            "device_info": dict(self._shop.device_of(session.user)),
            "location": dict(self._shop.location_of(session.user)),
            **self._details(kind),
        }
        if kind == "logout":
            self._sessions.end(session.session_id)
        return record

    def _details(self, kind: str) -> Record:
        rng = self._rng
        match kind:
            case "page_view":
                return self._view(kind, rng.choice(_PAGES))
            case "product_view":
                product = rng.choice(self._shop.products)
                page = self._view(kind, f"/products/{product['product_id']}")
                return {**page, "product_id": product["product_id"], "category": product["category"]}
            case "search":
                return {"search_query": rng.choice(_SEARCHES), "results_count": rng.randint(0, 500)}
            case "add_to_cart" | "remove_from_cart":
                product = rng.choice(self._shop.products)
                return {"product_id": product["product_id"], "quantity": rng.randint(1, 3)}
            case _:
                return {}

    def _view(self, kind: str, page: str) -> Record:
        low, high = self._durations[kind]
        return {
            "page_url": page,
            "referrer": self._rng.choice(_REFERRERS),
            "duration_seconds": self._rng.randint(low, high),
        }
