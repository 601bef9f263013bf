"""The rule for the names of topics."""

from __future__ import annotations

import re
from typing import Any

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
TOPIC_RULE = "A topic name consists of 1 to 249 characters from a-z, A-Z, 0-9, '.', '_' and '-'."


def is_topic_name(topic: Any) -> bool:
    """Whether Kafka accepts the name."""
    return isinstance(topic, str) and _TOPIC.fullmatch(topic) is not None and topic not in (".", "..")
