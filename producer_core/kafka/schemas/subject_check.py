"""Decide whether the schema that a registry has for an id can be that of a topic's records.

An id is unique only in one registry. With the schema of another registry, a password could be shown as a street.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice

from producer_core._internal.schema_id import Part

OTHER_SUBJECTS = "The schema registry has this schema id only for subjects of other topics: it may be the id of another registry."
NO_SUBJECT = "The schema registry names no subject for this schema id: it may be the id of another registry."

_SEPARATORS = (".", "-", "_")
_MAX_NAMES, _MAX_SUBJECTS = 100, 20_000
"""How many names and subjects a registry can make this compare."""


@lru_cache(maxsize=256)
def subject_problem(
    topic: str, part: Part, subjects: frozenset[str], record_names: tuple[str, ...], *, stored: bool
) -> str:
    """Return why a schema with these subjects is not used for a record of the topic; an empty text if it is used.

    The subjects `{topic}-{part}` and `{topic}-{record}` are those of the topic. If the address of the registry is not
    `stored` in the store, these are accepted too: the subject of the record (RecordNameStrategy), subjects of a topic
    whose name begins or ends this topic's (`orders` for `dc1.orders` and `orders-retry`), and subjects with a form of
    their own.
    """
    if not subjects:
        return NO_SUBJECT
    record_names = record_names[:_MAX_NAMES]
    suffixes = [f"-{part}", *(f"-{name}" for name in record_names)]
    if any(f"{topic}{suffix}" in subjects for suffix in suffixes):
        return ""
    if stored or not any(
        _possible(one, topic, suffixes, record_names) for one in islice(subjects, _MAX_SUBJECTS)
    ):
        return OTHER_SUBJECTS
    return ""


def _possible(subject: str, topic: str, suffixes: list[str], record_names: tuple[str, ...]) -> bool:
    if subject in record_names:
        return True
    for suffix in suffixes:
        if subject.endswith(suffix):
            return _related(topic, subject.removesuffix(suffix))
    return not subject.endswith(("-key", "-value"))


def _related(topic: str, other: str) -> bool:
    return any(topic.startswith(other + one) or topic.endswith(one + other) for one in _SEPARATORS if other)
