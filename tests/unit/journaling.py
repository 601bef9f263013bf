"""Helpers for the journal's tests: records, the unsettled sequences, and a crash."""

from __future__ import annotations

import shutil

from producer_core.delivery.journal import JournalRecord
from producer_core.messages import Placement


def a_record(seq, value=b"v", topic="orders"):
    return JournalRecord(seq, topic, b"k", value, (("h", b"1"), ("n", None)), Placement(3, 17), 12.5, "sum")


def fill(journal, numbers, value=b"v"):
    for seq in numbers:
        journal.append(a_record(seq, value))


def kept(journal):
    return [record.seq for record in journal.read()]


def crash(path, tmp_path, name="copy"):
    """Copy the folder as a killed process leaves it. The original is still open in this process."""
    copy = tmp_path / name
    shutil.copytree(path, copy)
    return copy


def segment_of(path):
    (segment,) = path.glob("*.journal")
    return segment
