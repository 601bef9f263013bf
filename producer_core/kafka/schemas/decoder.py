"""Decode keys and values that have a schema id, for display."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.schema_id import Headers, Part, schema_tagged
from producer_core.errors import ProducerError
from producer_core.kafka.schemas.read_limits import NotReadable
from producer_core.kafka.schemas.viewer_settings import viewer_settings

if TYPE_CHECKING:
    from producer_core.kafka.schemas.schema_cache import SchemaCache

MAX_SIZE = 1 << 20
"""Bytes of the largest value that is decoded."""

NOT_CONFIGURED = "No schema registry is configured."
NOT_READABLE = "The bytes cannot be read with the schema."


@dataclass(frozen=True, slots=True)
class DecodedValue:
    """A key or value with a schema id. `value` has values of JSON and bytes. With a `problem`, nothing was decoded."""

    schema_id: int | str
    format: str = ""
    value: Any = None
    problem: str = ""


class SchemaDecoder:
    """Decodes the keys and values of dead letters. It waits at most about 3 s for a registry that does not respond,
    and not at all in the 30 s after that. Any thread may use it.

    `find_settings` is called for the first key or value with a schema id. Until then nothing of the registry's client is
    imported.
    """

    def __init__(self, find_settings: Callable[[], Mapping[str, Any] | None]) -> None:
        self._find_settings = find_settings
        self._cache: SchemaCache | str | None = None

    def decode(self, data: bytes | None, headers: Headers, part: Part) -> DecodedValue | None:
        """Return the decoded key or value; None for bytes without a schema id."""
        tagged = schema_tagged(data, headers, part)
        if tagged is None:
            return None
        if len(tagged.payload) > MAX_SIZE:
            return DecodedValue(tagged.schema_id, problem="It is too long to be decoded.")
        cache = self._opened()
        reader = cache if isinstance(cache, str) else cache.reader(tagged.schema_id)
        if isinstance(reader, str):
            return DecodedValue(tagged.schema_id, problem=_printable(reader))
        try:
            return DecodedValue(tagged.schema_id, reader.format, reader.read(tagged))
        except NotReadable as error:
            return DecodedValue(
                tagged.schema_id, reader.format, problem=f"The bytes do not fit the schema: {error}."
            )
        except Exception:  # one value of unknown origin must not end a page, a list or an export
            return DecodedValue(tagged.schema_id, reader.format, problem=NOT_READABLE)

    def _opened(self) -> SchemaCache | str:
        if self._cache is None:
            try:
                settings = self._find_settings()
            except ProducerError as error:
                self._cache = str(error)
            else:
                self._cache = _shared_cache(settings) if settings else NOT_CONFIGURED
        return self._cache


def _printable(text: str) -> str:
    """Return a text that contains what a registry responded, without control characters and at most 300 long."""
    return "".join(one if one.isprintable() else " " for one in text[:300])


def decoder_for(stored: Callable[[], str | None], given: Mapping[str, Any] | None = None) -> SchemaDecoder:
    """Return a decoder with these options, or the registry of the environment, or the address that the store has.

    All decoders of one registry share its cached schemas.
    """
    return SchemaDecoder(lambda: viewer_settings(given, stored()))


_lock = threading.Lock()  # guards the next field
_caches: dict[tuple[tuple[str, str], ...], SchemaCache] = {}


def _shared_cache(settings: Mapping[str, Any]) -> SchemaCache:
    from producer_core.kafka.schemas.schema_cache import SchemaCache

    key = tuple(sorted((name, str(value)) for name, value in settings.items()))
    with _lock:
        if key not in _caches:
            _caches[key] = SchemaCache(lambda: _registry(settings))
        return _caches[key]


def _registry(settings: Mapping[str, Any]) -> Any:
    from producer_core._internal.schema_settings import client_settings
    from producer_core.kafka.schemas.registry import Registry

    return Registry(client_settings({"timeout": 3.0, "max.retries": 0, **settings}))
