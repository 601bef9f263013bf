"""The ledger of a scenario: what the writing processes sent and what the producer reported, one line each.

A line is written at once, so a kill -9 loses none. It has a letter and fields: `p` a process starts, `a` a number was
accepted, `x` it was refused, `r` its delivery report, `m` a counted event, `N` a notice, `c` the result of close().
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

SAFE = ("not_sent", "rejected", "absent")


class Book:
    """Writes a ledger."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *fields):
        os.write(self._file, (" ".join(map(str, fields)) + "\n").encode())


@dataclass
class Report:
    number: int
    ok: bool
    partition: int | None
    offset: int | None
    verdict: str = ""
    code: str = ""


@dataclass
class Process:
    """One run of the writing process."""

    accepted: list[int] = field(default_factory=list)
    refused: int = 0
    reports: list[Report] = field(default_factory=list)
    remarks: Counter = field(default_factory=Counter)
    notices: list[tuple[str, str]] = field(default_factory=list)
    closed: dict | None = None


def parse(path):
    """Return the runs in a ledger, without a last line that a kill cut off."""
    found: list[Process] = []
    if not Path(path).exists():
        return found
    for line in Path(path).read_bytes().split(b"\n")[:-1]:
        word, _, rest = line.decode().partition(" ")
        if word == "p":
            found.append(Process())
            continue
        life = found[-1]
        match word:
            case "a":
                life.accepted.append(int(rest))
            case "x":
                life.refused += 1
            case "r":
                life.reports.append(_report(rest.split()))
            case "m":
                life.remarks[rest] += 1
            case "N":
                life.notices.append(tuple(rest.split(" ", 1)))
            case "c":
                life.closed = json.loads(rest)
    return found


def _report(fields):
    number, ok, partition, offset, verdict, code = fields
    partition, offset = (None if text == "None" else int(text) for text in (partition, offset))
    return Report(int(number), ok == "ok", partition, offset, verdict, code)


@dataclass(frozen=True)
class Entry:
    """One record as the independent reader read it."""

    partition: int
    offset: int
    key: str
    number: int


def read_topic(servers, topic, *, committed=True, timeout=120):
    """Return every record of a topic as read by kcat, without our code and our librdkafka."""
    level = "read_committed" if committed else "read_uncommitted"
    command = ["kcat", "-C", "-b", servers, "-t", topic, "-e", "-q", "-o", "beginning", "-f", "%p %o %k %s\n"]
    settings = ["-X", f"isolation.level={level}", "-X", "fetch.wait.max.ms=50"]
    out = subprocess.run([*command, *settings], capture_output=True, text=True, timeout=timeout)
    if out.returncode:
        raise RuntimeError(f"kcat: {out.stderr[-400:]}")
    entries = []
    for line in out.stdout.splitlines():
        partition, offset, key, number, *_ = line.split()
        entries.append(Entry(int(partition), int(offset), key, int(number)))
    return entries


class Watch:
    """Follows a growing ledger and counts its lines by letter."""

    def __init__(self, path):
        self._path = Path(path)
        self._at = 0
        self._rest = b""
        self._lock = threading.Lock()
        self.words = Counter()
        self.last = -1

    def look(self):
        with self._lock:
            if self._path.exists():
                with self._path.open("rb") as file:
                    file.seek(self._at)
                    data = file.read()
                self._at += len(data)
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self.words[line[:1].decode()] += 1
                    if line[:1] == b"a":
                        self.last = int(line[2:])
            return self.words
