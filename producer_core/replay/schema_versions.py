"""Count the records of a replay that were written with an older schema, and say whether the latest version reads them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer_core._internal.bounded_call import call_within
from producer_core._internal.masking import mask_or_hide
from producer_core.errors import ProducerError
from producer_core.replay.phrases import records
from producer_core.replay.selection_counts import SchemaIdCount, count_schema_ids

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter
    from producer_core.kafka.schemas.evolution import Evolution
    from producer_core.kafka.schemas.registry import Registry
    from producer_core.replay.operation import Operation
    from producer_core.store import Store

WAIT = 5.0
"""Seconds that a dry run waits for the registry in all."""
_MOST = 50
"""Topics and schema ids that a dry run compares, the most frequent first."""


@dataclass(frozen=True, slots=True)
class SchemaVersionCount:
    """Records with one schema that is not the latest version of the subject. `readable` is None if that is not known."""

    topic: str
    records: int
    schema_id: int
    subject: str
    version: int | None
    latest: int
    readable: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class SchemaVersions:
    """The records of a replay with older schemas. `problem` says why the registry was not asked completely."""

    older: tuple[SchemaVersionCount, ...] = ()
    problem: str = ""

    @property
    def unreadable(self) -> int:
        return sum(one.records for one in self.older if one.readable is False)

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each version whose records the latest version cannot read."""
        for one in self.older:
            if one.readable is False:
                reason = f": {one.reason}" if one.reason else ""
                yield f"{_written(one)} Consumers with the latest version {one.latest} cannot read {_them(one)}{reason}."

    def facts(self) -> Iterator[str]:
        """Yield a sentence for each other version, and for what is not known."""
        for one in self.older:
            if one.readable:
                yield f"{_written(one)} The latest version {one.latest} reads {_them(one)}."
            elif one.readable is None and one.version is None:
                yield f"{records(one.records)} of {one.topic} {_have(one)} the schema id {one.schema_id}. {one.reason}"
            elif one.readable is None:
                yield f"{_written(one)} It is not known whether the latest version {one.latest} reads {_them(one)}. {one.reason}"
        if self.problem:
            yield self.problem


NO_SCHEMAS = SchemaVersions()


def schema_versions(
    store: Store,
    selection: DeadLetterFilter,
    operation: Operation | None = None,
    *,
    given: Mapping[str, Any] | None = None,
    wait: float = WAIT,
    **choices: Any,
) -> SchemaVersions:
    """Compare the schema ids of the records to send with the latest versions of the subjects `{topic}-value`.

    The registry is that of the settings `given`, the environment or the store, as for dead letters that are shown. Without
    a registry or without schema ids, nothing is asked. It waits for the registry for `wait` seconds at most. `choices`
    are those of `count_schema_ids`.
    """
    from producer_core.kafka.schemas.viewer_settings import StoredSettings, viewer_settings

    try:
        settings = viewer_settings(given, store.get_setting("schema_registry"))
        if settings is None or not (counts := count_schema_ids(store, selection, operation, **choices)):
            return SchemaVersions()
        registry = _opened(settings, wait)
    except ProducerError as error:
        return SchemaVersions(
            problem=f"The versions of the schemas are not known. {mask_or_hide(str(error))}"
        )
    return _within(registry, counts[:_MOST], wait, stored=isinstance(settings, StoredSettings))


def _within(
    registry: Registry, counts: Sequence[SchemaIdCount], wait: float, *, stored: bool
) -> SchemaVersions:
    from producer_core.kafka.schemas.registry_problem import problem_of

    stop = threading.Event()
    try:
        return call_within(wait, lambda: _compared(registry, counts, stop), name="schema-versions")
    except TimeoutError:
        return SchemaVersions(
            problem="The versions of the schemas are not known: the schema registry does not respond."
        )
    except ProducerError as error:
        text = problem_of(error, stored=stored).text
        return SchemaVersions(problem=f"The versions of the schemas are not known. {text}")
    finally:
        stop.set()  # the thread ends after its current request
        registry.close()


def _opened(settings: Mapping[str, Any], wait: float) -> Registry:
    from producer_core._internal.schema_settings import client_settings
    from producer_core.kafka.schemas.registry import Registry

    return Registry(client_settings({"timeout": wait, "max.retries": 0, **settings}))


def _compared(registry: Registry, counts: Sequence[SchemaIdCount], stop: threading.Event) -> SchemaVersions:
    found = []
    for one in counts:
        if stop.is_set():
            break
        found.append((one, registry.evolution(f"{one.topic}-value", one.schema_id)))
    return SchemaVersions(
        tuple(_count(one, how) for one, how in found if how is not None and not how.current)
    )


def _count(one: SchemaIdCount, how: Evolution) -> SchemaVersionCount:
    from producer_core.kafka.schemas.registry_problem import printable

    return SchemaVersionCount(
        one.topic,
        one.records,
        one.schema_id,
        how.subject,
        how.version,
        how.latest,
        how.readable,
        printable(how.reason),
    )


def _written(one: SchemaVersionCount) -> str:
    were = "was" if one.records == 1 else "were"
    return (
        f"{records(one.records)} of {one.topic} {were} written with version {one.version} of {one.subject}."
    )


def _them(one: SchemaVersionCount) -> str:
    return "it" if one.records == 1 else "them"


def _have(one: SchemaVersionCount) -> str:
    return "has" if one.records == 1 else "have"
