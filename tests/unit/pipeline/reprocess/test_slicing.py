"""Slices: a session or a key is in one, and an operation keeps its own."""

from __future__ import annotations

import pytest

from producer_core.errors import ConfigError, ReplayError
from producer_core.pipeline.reprocess import Slicing
from producer_core.pipeline.reprocess.slicing import begin_epoch
from tests.fixtures.replays import replay_record
from tests.fixtures.reprocess import of_session


def test_a_session_is_in_one_slice():
    slicing = Slicing(8)
    for session in range(20):
        assert len({slicing.of(of_session(number, session)) for number in range(50)}) == 1


def test_slices_by_key_spread_a_session_and_keep_a_key_together():
    slicing = Slicing(8, "key")
    found = {key: {slicing.of(replay_record(n, key=b"k%d" % key)) for n in range(10)} for key in range(100)}

    assert all(len(one) == 1 for one in found.values())
    assert {min(one) for one in found.values()} == set(range(8))
    assert slicing.of(replay_record(1, key=None)) == Slicing(8).of(replay_record(2))


@pytest.mark.parametrize(("count", "by"), [(0, "session"), (257, "session"), (4, "partition")])
def test_an_invalid_slicing_is_rejected(count, by):
    with pytest.raises(ConfigError):
        Slicing(count, by)


def started(store, *, count=None, by=None, topic=None, size=16, cores=4, holds=lambda: True):
    return begin_epoch(
        store, "op", count=count, by=by, otherwise=Slicing(2 * cores), topic=topic, partitions=lambda _: size,
        holds=holds,
    )  # fmt: skip


def test_an_operation_keeps_its_slicing_and_its_numbers_rise(store):
    first = started(store, count=4, by="key", topic="seals")
    again, grown = started(store), started(store, size=32)

    assert (first.slicing, again.slicing) == (Slicing(4, "key"), Slicing(4, "key"))
    assert (first.topic, again.topic, grown.topic, grown.partitions) == ("seals", "seals", "seals", 16)
    assert again.first > first.first + 1_000_000
    with pytest.raises(ReplayError, match="started with 4 slices by key"):
        started(store, count=5)
    with pytest.raises(ReplayError, match="started with the progress topic seals"):
        started(store, topic="others")


def test_an_omitted_slice_count_is_not_compared_later(store):
    """The number of slices came from one machine's cores; the same command runs on another machine."""
    first = started(store, by="key", cores=2)

    assert started(store, by="key", cores=16).slicing == first.slicing == Slicing(4, "key")


def test_a_driver_that_lost_its_lease_during_a_broker_request_decides_nothing(store):
    with pytest.raises(ReplayError, match="taken over"):
        started(store, count=4, holds=lambda: False)

    assert started(store, count=5).slicing == Slicing(5)
