"""Cache the readers of schemas by id. A look-up waits a limited time for the registry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from producer_core.errors import ConfigError, ProducerError
from producer_core.kafka.schemas.read_limits import UnusableSchema
from producer_core.kafka.schemas.readers import Reader, SchemaText, make_reader
from producer_core.kafka.schemas.registry import Registry
from producer_core.kafka.schemas.registry_problem import NO_RESPONSE, NOT_USABLE, RegistryProblem, problem_of

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

WAIT = 3.0
"""Seconds that a look-up waits for the registry."""
RETRY_AFTER = 30.0
"""Seconds until a registry that did not respond, or an id that it did not have, is asked for again."""

_MAX_SCHEMAS = 1_000
_MAX_PENDING = 8
_STUCK_AFTER = 30.0
"""Seconds after which requests that occupy all places are ended, by closing the registry's client."""
_MAX_TEXT = 1 << 20
_MAX_REFERENCES = 100


_UNUSABLE = RegistryProblem(NOT_USABLE)


@dataclass(slots=True)
class _Fetch:
    """The look-up of one id by a thread of its own. `done` is set after the result."""

    started: float
    done: threading.Event = field(default_factory=threading.Event)
    result: Reader | RegistryProblem = _UNUSABLE

    @property
    def outcome(self) -> Reader | str:
        return self.result if isinstance(self.result, Reader) else self.result.text


class SchemaCache:
    """The readers of one registry. Any thread may use it. `stored` says that its address comes from the store.

    A found schema stays cached: the schema of an id never changes. Each request runs in a daemon thread, because a
    registry that sends its response slowly would otherwise hold the caller longer than `wait` seconds.
    """

    def __init__(
        self,
        open_registry: Callable[[], Registry],
        *,
        stored: bool = False,
        wait: float = WAIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open, self._wait, self._clock = open_registry, wait, clock
        self.stored = stored
        self._opening = threading.Lock()  # guards the next field
        self._registry: Registry | None = None
        self._lock = threading.Lock()  # guards the fields below
        self._readers: dict[int | str, Reader] = {}
        self._failures: dict[int | str, tuple[float, str]] = {}
        self._pending: dict[int | str, _Fetch] = {}
        self._down: tuple[float, str] = (-1.0, "")

    def known(self, schema_id: int | str) -> Reader | str | None:
        """Return what `reader` would return without a request; None if it would ask the registry."""
        with self._lock:
            return self._known(schema_id)

    def reader(self, schema_id: int | str, *, wait: float | None = None) -> Reader | str:
        """Return the reader of a schema, or a sentence that says why there is none.

        `wait` is a shorter time in seconds than that of the cache, after which the registry still counts as available.
        """
        if (known := self.known(schema_id)) is not None:
            return known
        self._end_stuck(schema_id)
        try:
            registry = self._client()  # imports the client's packages, so it is no part of the wait
        except ConfigError as error:
            return f"{error.what} {error.fix}".strip()
        fetch = self._started(registry, schema_id)
        if fetch is None:
            return NO_RESPONSE
        if fetch.done.wait(self._wait if wait is None else min(wait, self._wait)):
            return fetch.outcome
        if wait is None or wait >= self._wait:
            with self._lock:
                self._down = (self._clock() + RETRY_AFTER, NO_RESPONSE)
        return NO_RESPONSE

    def _started(self, registry: Registry, schema_id: int | str) -> _Fetch | None:
        """Return the look-up of this id, started if necessary; None while all places are occupied."""
        with self._lock:
            if (fetch := self._pending.get(schema_id)) is not None:
                return fetch
            if len(self._pending) >= _MAX_PENDING:
                return None
            fetch = self._pending[schema_id] = _Fetch(self._clock())
        threading.Thread(
            target=self._fetch, args=(registry, schema_id, fetch), name="schema-registry", daemon=True
        ).start()
        return fetch

    def _end_stuck(self, schema_id: int | str) -> None:
        """Close the client if old requests occupy all places: otherwise a response that never ends would keep its place."""
        with self._opening, self._lock:
            if schema_id in self._pending or len(self._pending) < _MAX_PENDING:
                return
            now = self._clock()
            if any(now - one.started < _STUCK_AFTER for one in self._pending.values()):
                return
            self._pending.clear()
            stuck, self._registry = self._registry, None
        if stuck is not None:
            stuck.close()

    def _known(self, schema_id: int | str) -> Reader | str | None:
        if (reader := self._readers.get(schema_id)) is not None:
            return reader
        now = self._clock()
        until, problem = self._failures.get(schema_id, (now, ""))
        if now < until:
            return problem
        return self._down[1] if now < self._down[0] else None

    def _fetch(self, registry: Registry, schema_id: int | str, fetch: _Fetch) -> None:
        try:
            fetch.result = _reader(registry, schema_id, self.stored)
        finally:
            with self._lock:
                if self._pending.get(schema_id) is fetch:
                    self._keep(schema_id, fetch.result)
                    self._pending.pop(schema_id)
            fetch.done.set()

    def _keep(self, schema_id: int | str, result: Reader | RegistryProblem) -> None:
        if isinstance(result, Reader):
            self._readers[schema_id] = result
            if len(self._readers) > _MAX_SCHEMAS:
                self._readers.pop(next(iter(self._readers)))
            self._down = (-1.0, "")
            return
        until = self._clock() + RETRY_AFTER
        self._failures[schema_id] = (until, result.text)
        if len(self._failures) > _MAX_SCHEMAS:
            self._failures.pop(next(iter(self._failures)))
        if result.affects_all:
            self._down = (until, result.text)

    def _client(self) -> Registry:
        with self._opening:
            registry = self._registry
            if registry is None:
                registry = self._registry = self._open()
            return registry


def _reader(registry: Registry, schema_id: int | str, stored: bool) -> Reader | RegistryProblem:
    try:
        reader = make_reader(_load(registry, schema_id))
        return replace(reader, subjects=registry.subjects(schema_id) if isinstance(schema_id, int) else None)
    except UnusableSchema as error:
        return RegistryProblem(str(error))
    except ImportError as error:
        return RegistryProblem(f"Its format needs more packages: {error}.")
    except ProducerError as error:
        return problem_of(error, stored=stored)
    except Exception:  # noqa: BLE001  a response of another form than the registry's
        return _UNUSABLE


def _load(registry: Registry, schema_id: int | str) -> SchemaText:
    schema = registry.schema(schema_id)
    if schema.schema_type == "PROTOBUF":
        schema = registry.schema(schema_id, compiled=True)
    references: dict[str, str] = {}
    _add_references(registry, schema, references)
    text = schema.schema_str or ""
    if len(text) + sum(map(len, references.values())) > _MAX_TEXT:
        raise UnusableSchema("Its schema is longer than 1 MiB.")
    return SchemaText(schema.schema_type or "AVRO", text, references)


def _add_references(registry: Registry, schema: Schema, found: dict[str, str]) -> None:
    """Add the schemas that this one refers to, each after the ones that it needs itself."""
    for reference in schema.references or ():
        name = str(reference.name)
        if name in found:
            continue
        if len(found) >= _MAX_REFERENCES:
            raise UnusableSchema(f"Its schema has more than {_MAX_REFERENCES} references.")
        found[name] = ""  # so that a circle of references ends
        inner = registry.version(
            str(reference.subject), int(reference.version or 0), compiled=schema.schema_type == "PROTOBUF"
        )
        _add_references(registry, inner, found)
        found.pop(name)
        found[name] = inner.schema_str or ""
