"""Texts about keys and values that have a schema id."""

from __future__ import annotations

from typing import Literal

from producer_core._internal.masking import display_decoded, is_hidden
from producer_core._internal.schema_id import Headers
from producer_core.dashboard.wording.dead_letters import (
    MAX_CONTENT,
    RecordContent,
    content,
    pretty,
    visible,
)
from producer_core.dashboard.wording.numbers import size
from producer_core.kafka.schemas.decoder import SchemaDecoder


def decoded_content(
    data: bytes | None,
    headers: Headers,
    decoder: SchemaDecoder,
    *,
    topic: str,
    reveal: bool = False,
    key: bool = False,
) -> RecordContent:
    """Return `content`, with a key or value decoded if it has a schema id. Otherwise say why it could not be decoded."""
    plain = content(data, reveal=reveal, key=key)
    if not data or (not reveal and is_hidden("keys" if key else "values")):
        return plain
    found = decoder.decode(data, headers, "key" if key else "value", topic)
    if found is None:
        return plain
    if found.problem:
        about = f"{plain.about}, with schema id {found.schema_id}. {found.problem.rstrip('.')}"
        return plain._replace(about=about, undecoded=True)
    value = display_decoded(found.value, reveal=reveal)
    kind: Literal["text", "json"] = "text" if isinstance(value, str) else "json"
    about = f"{size(len(data))}, {found.format} with schema id {found.schema_id}"
    return RecordContent(kind, about, visible(pretty(value, MAX_CONTENT)))
