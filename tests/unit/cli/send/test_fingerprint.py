"""The identity of a send: its session, its transactional id, its state path, and the checksum of its input."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace

import pytest

from producer_core.cli.send.fingerprint import (
    begins_with,
    fingerprint,
    session_of,
    state_path,
    transactional_id_of,
)
from producer_core.cli.send.open_rows import InputError
from tests.fixtures.sends import JOB, LEAST


def test_message_ids_are_the_same_on_every_machine_and_depend_on_the_job():
    here = session_of(JOB, 0)

    assert session_of(replace(JOB, path="/elsewhere", cluster_id="c2"), 0) == here
    assert here.version == 8
    assert here.variant == uuid.RFC_4122
    for other in (
        replace(JOB, topic="refunds"), replace(JOB, sha256="cd" * 32), replace(JOB, options={"key": "n"}), LEAST
    ):  # fmt: skip
        assert session_of(other, 0).bytes[:12] != here.bytes[:12]
    assert session_of(JOB, 1).bytes[:12] == here.bytes[:12]
    assert session_of(JOB, 1) != here


def test_a_new_run_and_a_run_with_other_options_fence_the_earlier_run():
    assert transactional_id_of(JOB) == transactional_id_of(replace(JOB, options={}))
    assert transactional_id_of(JOB) != transactional_id_of(replace(JOB, topic="refunds"))


def test_the_state_path_does_not_depend_on_the_content_of_the_file(tmp_path):
    assert state_path(tmp_path, JOB) == state_path(tmp_path, replace(JOB, sha256="", size=0, options={}))
    assert state_path(tmp_path, JOB) != state_path(tmp_path, replace(JOB, cluster_id="c2"))


def test_a_write_to_the_file_during_the_send_is_detected(tmp_path):
    input = tmp_path / "a.jsonl"
    input.write_text("1\n2\n")
    content = fingerprint(input)

    with input.open("rb") as opened:
        content.check(opened.fileno(), "a.jsonl")
        with input.open("a") as more:
            more.write("3\n")
        with pytest.raises(InputError, match="was changed while it was being sent"):
            content.check(opened.fileno(), "a.jsonl")


@pytest.mark.parametrize(
    ("now", "expected"), [(b"1\n2\n3\n", True), (b"1\n3\n3\n", False), (b"1\n2\n", False), (b"1\n", False)]
)
def test_only_a_longer_file_with_the_earlier_content_at_its_start_is_an_extension(tmp_path, now, expected):
    input = tmp_path / "a.jsonl"
    input.write_bytes(b"1\n2\n")
    before = fingerprint(input)
    input.write_bytes(now)

    assert begins_with(input, before.size, before.sha256) == expected


def test_the_checksum_covers_the_whole_file_and_reports_its_progress(tmp_path):
    input = tmp_path / "a.bin"
    input.write_bytes(random.Random(1).randbytes(3 << 20))
    reports = []

    content = fingerprint(input, lambda done, total: reports.append((done, total)))

    assert (content.size, reports[-1]) == (3 << 20, (3 << 20, 3 << 20))
    input.write_bytes(random.Random(1).randbytes((3 << 20) - 1) + b"!")
    assert fingerprint(input).sha256 != content.sha256
