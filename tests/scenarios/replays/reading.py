"""Read a topic with kcat, independently of the project's code and its librdkafka."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from tests.scenarios.replays.dead_letters import NUMBER

_MARK = b"\x1d<record>\x1d"
_FORMAT = _MARK.decode() + "%p %o %T %K %S\n%k%s%h"


@dataclass(frozen=True, slots=True)
class Record:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def number(self):
        return int(dict(self.headers)[NUMBER])


def read(servers, topic, *, committed=True, timeout=300):
    """Return every record of a topic at this isolation level."""
    level = "read_committed" if committed else "read_uncommitted"
    command = ["kcat", "-C", "-b", servers, "-t", topic, "-e", "-q", "-o", "beginning", "-f", _FORMAT]
    settings = ["-X", f"isolation.level={level}", "-X", "fetch.wait.max.ms=50"]
    out = subprocess.run([*command, *settings], capture_output=True, timeout=timeout)
    if out.returncode:
        raise RuntimeError(f"kcat: {out.stderr[-400:]!r}")
    return [_record(topic, text) for text in out.stdout.split(_MARK)[1:]]


def _record(topic, text):
    line, _, rest = text.partition(b"\n")
    partition, offset, timestamp, key_size, value_size = map(int, line.split())
    key, rest = _taken(rest, key_size)
    value, rest = _taken(rest, value_size)
    return Record(topic, partition, offset, timestamp, key, value, tuple(_headers(rest)))


def _taken(text, size):
    """Split off `size` bytes; kcat prints size -1 for null."""
    return (None, text) if size < 0 else (text[:size], text[size:])


def _headers(text):
    """Yield the headers, which kcat prints as name=value with commas in between.

    A value ends at its first zero byte. An id has 24 arbitrary bytes, which may contain a comma.
    """
    for header in filter(None, re.split(rb",(?=[\w.-]+=)", text)):
        name, _, value = header.partition(b"=")
        yield name.decode(), None if value == b"NULL" else value


def as_displayed(value):
    """Return a header value as kcat prints it."""
    return value if value is None else value.partition(b"\0")[0]
