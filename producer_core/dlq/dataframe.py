"""Convert dead letters to a data frame, masked by default because notebooks save their output."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from producer_core._internal.masking import display_key, display_value, mask_text

if TYPE_CHECKING:
    from producer_core._internal.dataframe import Kind
    from producer_core.events import DeadLetter

LIMIT = 100_000
_TIMES = ("accepted_at", "failed_at")
_TEXTS = ("topic", "code", "verdict", "state", "kind")


def frame(
    dead_letters: Sequence[DeadLetter],
    sizes: Sequence[int | None],
    *,
    kind: Kind | None,
    bodies: bool,
    masked: bool,
) -> Any:
    """Return a data frame with one row per dead letter, in the order given."""
    import pyarrow

    from producer_core._internal.dataframe import make_frame

    text, moment = pyarrow.string(), pyarrow.timestamp("us", "UTC")
    columns: dict[str, Any] = {
        "message_id": pyarrow.array([one.message_id for one in dead_letters], text),
        **{name: pyarrow.array([getattr(one, name) for one in dead_letters], text) for name in _TEXTS},
        "error_text": pyarrow.array([_text(one.error_text, masked) for one in dead_letters], text),
        "group": pyarrow.array([one.fingerprint for one in dead_letters], text),
        "key": pyarrow.array([display_key(one.key, reveal=not masked) for one in dead_letters], text),
        "value_size": pyarrow.array(sizes, pyarrow.int64()),
        **{
            name: pyarrow.array([_utc(getattr(one, name)) for one in dead_letters], moment) for name in _TIMES
        },
        "replay_count": pyarrow.array([one.replay_count for one in dead_letters], pyarrow.int64()),
        "quarantined": pyarrow.array([one.quarantined for one in dead_letters], pyarrow.bool_()),
        "replayable": pyarrow.array([one.replayable for one in dead_letters], pyarrow.bool_()),
        "source": pyarrow.array([one.source for one in dead_letters], text),
        "producer_id": pyarrow.array([one.producer_id for one in dead_letters], text),
        "cluster_id": pyarrow.array([one.cluster_id for one in dead_letters], text),
    }
    if bodies:
        columns["value"] = pyarrow.array([_value(one.value, masked) for one in dead_letters], text)
    return make_frame(pyarrow.table(columns), kind)


def _text(text: str, masked: bool) -> str:
    return mask_text(text) if masked else text


def _value(data: bytes | None, masked: bool) -> str | None:
    found = display_value(data, reveal=not masked)
    return found if found is None or isinstance(found, str) else orjson.dumps(found).decode()


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
