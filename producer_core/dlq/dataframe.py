"""Convert dead letters to a data frame, masked by default because notebooks save their output."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from producer_core._internal.masking import mask_text
from producer_core.dlq.displayed_body import displayed_key, displayed_value

if TYPE_CHECKING:
    from producer_core._internal.dataframe import Kind
    from producer_core.events import DeadLetter
    from producer_core.kafka.schemas.decoder import SchemaDecoder

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
    decoder: SchemaDecoder | None = None,
) -> Any:
    """Return a data frame with one row per dead letter, in the order given. `decoder` decodes those with a schema id."""
    import pyarrow

    from producer_core._internal.dataframe import make_frame

    text, moment = pyarrow.string(), pyarrow.timestamp("us", "UTC")
    columns: dict[str, Any] = {
        "message_id": pyarrow.array([one.message_id for one in dead_letters], text),
        **{name: pyarrow.array([getattr(one, name) for one in dead_letters], text) for name in _TEXTS},
        "error_text": pyarrow.array([_text(one.error_text, masked) for one in dead_letters], text),
        "group": pyarrow.array([one.fingerprint for one in dead_letters], text),
        "key": pyarrow.array([_key(one, masked, decoder) for one in dead_letters], text),
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
        "application": pyarrow.array([one.application for one in dead_letters], text),
        "application_version": pyarrow.array([one.application_version for one in dead_letters], text),
    }
    if bodies:
        columns["value"] = pyarrow.array([_value(one, masked, decoder) for one in dead_letters], text)
    return make_frame(pyarrow.table(columns), kind)


def _text(text: str, masked: bool) -> str:
    return mask_text(text) if masked else text


def _key(dead_letter: DeadLetter, masked: bool, decoder: SchemaDecoder | None) -> str | None:
    found = displayed_key(
        dead_letter.key, dead_letter.headers, decoder, topic=dead_letter.topic, reveal=not masked
    ).one
    assert found is None or isinstance(found, str)
    return found


def _value(dead_letter: DeadLetter, masked: bool, decoder: SchemaDecoder | None) -> str | None:
    found = displayed_value(
        dead_letter.value, dead_letter.headers, decoder, topic=dead_letter.topic, reveal=not masked
    ).one
    return found if found is None or isinstance(found, str) else orjson.dumps(found).decode()


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
