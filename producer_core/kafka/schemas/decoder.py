"""Decode keys and values that have a schema id, for display."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.schema_id import Headers, Part, SchemaTagged, schema_tagged
from producer_core.errors import ProducerError
from producer_core.kafka.schemas.read_limits import NotReadable
from producer_core.kafka.schemas.registry_problem import printable
from producer_core.kafka.schemas.subject_check import subject_problem
from producer_core.kafka.schemas.viewer_settings import StoredSettings, viewer_settings

if TYPE_CHECKING:
    from producer_core.kafka.schemas.readers import Reader
    from producer_core.kafka.schemas.schema_cache import SchemaCache

MAX_SIZE = 1 << 20
"""Bytes of the largest value that is decoded."""

MAX_WAIT, PERIOD = 10.0, 30.0
"""Seconds that one decoder waits for the registry in all, and the period in seconds that this is counted in."""

TOO_SLOW = "The schema registry responds too slowly for all schemas of this list to be fetched."
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
    and not at all in the 30 s after that. A registry that responds slowly holds it for 10 s in 30 s. Any thread may use it.

    `find_settings` is called for the first key or value with a schema id. Until then nothing of the registry's client is
    imported.
    """

    def __init__(
        self,
        find_settings: Callable[[], Mapping[str, Any] | None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find_settings, self._clock = find_settings, clock
        self._cache: SchemaCache | str | None = None
        self._waited = (clock(), 0.0)
        """When the current 30 s began, and the seconds of waiting in them."""

    def decode(self, data: bytes | None, headers: Headers, part: Part, topic: str) -> DecodedValue | None:
        """Return the decoded key or value of a record of the topic; None for bytes without a schema id."""
        tagged = schema_tagged(data, headers, part)
        if tagged is None:
            return None
        if len(tagged.payload) > MAX_SIZE:
            return DecodedValue(tagged.schema_id, problem="It is too long to be decoded.")
        try:
            return self._decode(tagged, part, topic)
        except Exception:  # noqa: BLE001  one value of unknown origin must not end a page, a list or an export
            return DecodedValue(tagged.schema_id, problem=NOT_READABLE)

    def _decode(self, tagged: SchemaTagged, part: Part, topic: str) -> DecodedValue:
        cache = self._opened()
        if isinstance(cache, str):
            return DecodedValue(tagged.schema_id, problem=printable(cache))
        reader = self._reader(cache, tagged.schema_id)
        if isinstance(reader, str):
            return DecodedValue(tagged.schema_id, problem=printable(reader))
        if reader.subjects is not None and (
            problem := subject_problem(topic, part, reader.subjects, reader.record_names, stored=cache.stored)
        ):
            return DecodedValue(tagged.schema_id, reader.format, problem=problem)
        try:
            return DecodedValue(tagged.schema_id, reader.format, reader.read(tagged))
        except NotReadable as error:
            return DecodedValue(
                tagged.schema_id, reader.format, problem=f"The bytes do not fit the schema: {error}."
            )

    def _reader(self, cache: SchemaCache, schema_id: int | str) -> Reader | str:
        """Return the reader, or why there is none, within the time that this command or page may wait."""
        if (known := cache.known(schema_id)) is not None:
            return known
        started = self._clock()
        since, waited = self._waited
        if started - since >= PERIOD:
            since, waited = started, 0.0
        if waited >= MAX_WAIT:
            return TOO_SLOW
        try:
            return cache.reader(schema_id, wait=MAX_WAIT - waited)
        finally:
            self._waited = (since, waited + self._clock() - started)

    def _opened(self) -> SchemaCache | str:
        if self._cache is None:
            try:
                settings = self._find_settings()
            except ProducerError as error:
                self._cache = str(error)
            else:
                self._cache = _shared_cache(settings) if settings else NOT_CONFIGURED
        return self._cache


def decoder_for(stored: Callable[[], str | None], given: Mapping[str, Any] | None = None) -> SchemaDecoder:
    """Return a decoder with these options, or the registry of the environment, or the address that the store has.

    All decoders of one registry share its cached schemas.
    """
    return SchemaDecoder(lambda: viewer_settings(given, stored()))


_lock = threading.Lock()  # guards the next field
_caches: dict[tuple[Any, ...], SchemaCache] = {}


def _shared_cache(settings: Mapping[str, Any]) -> SchemaCache:
    from producer_core.kafka.schemas.schema_cache import SchemaCache

    stored = isinstance(settings, StoredSettings)
    key = (stored, *sorted((name, str(value)) for name, value in settings.items()))
    with _lock:
        if key not in _caches:
            _caches[key] = SchemaCache(lambda: _registry(settings), stored=stored)
        return _caches[key]


def _registry(settings: Mapping[str, Any]) -> Any:
    from producer_core._internal.schema_settings import client_settings
    from producer_core.kafka.schemas.registry import Registry

    return Registry(client_settings({"timeout": 3.0, "max.retries": 0, **settings}))
