"""Claims in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.delivery.dedup.claims import Claim
from producer_core.delivery.dedup.memory_backend import MemoryClaimBackend
from producer_core.testing import FakeClock
from tests.fixtures.claims import CLAIM_TTL, TTL, BackendContract


class TestMemory(BackendContract):
    @pytest.fixture
    def backend(self, clock):
        return MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=100, clock=clock)

    @pytest.fixture
    def after(self, clock):
        def advance_and_check(seconds, check):
            clock.advance(seconds - 0.01)
            assert not check()
            clock.advance(0.02)
            assert check()

        return advance_and_check

    def test_a_renewed_claim_gets_its_full_ttl(self, backend, clock):
        backend.claim("k", "a")
        clock.advance(CLAIM_TTL - 1)
        backend.claim("k", "a")
        clock.advance(CLAIM_TTL - 1)
        assert backend.claim("k", "b") is Claim.PENDING

    def test_the_oldest_confirmed_key_is_dropped_and_never_a_pending_claim(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=2, clock=clock)
        backend.claim("pending", "a")
        for key in "xyz":
            backend.confirm(key)
        assert [backend.confirmed(key) for key in "xyz"] == [False, True, True]
        assert backend.claim("pending", "b") is Claim.PENDING
        assert len(backend) == 2

    def test_memory_keeps_the_latest_confirmed_keys_and_hardly_more(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=128, clock=clock)
        for first in range(0, 1_000, 10):
            backend.confirm_many([f"k{number}" for number in range(first, first + 10)])
            assert all(backend.confirmed(f"k{number}") for number in range(max(0, first - 118), first + 10))
            assert len(backend) == len(backend._entries) <= 130

    def test_expired_entries_use_no_memory(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=100, clock=clock)
        backend.claim("ambiguous", "a")
        backend.confirm("acknowledged")
        clock.advance(CLAIM_TTL)
        backend.claim("another", "a")
        assert [*backend._entries] == ["acknowledged", "another"]
        clock.advance(TTL)
        backend.claim("and another", "a")
        assert [*backend._entries] == ["and another"]

    def test_a_key_that_is_confirmed_again_gets_its_full_ttl(self, clock):
        backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=100, clock=clock)
        backend.confirm("k")
        clock.advance(TTL - 1)
        backend.confirm("k")
        clock.advance(2)
        backend.claim("another", "a")
        assert backend.claim("k", "b") is Claim.DUPLICATE


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "confirm", "release", "wait"]), st.sampled_from("ab"), st.integers(0, 3)
    ),
    max_size=40,
)


@pytest.mark.slow
@given(STEPS)
def test_two_owners_never_hold_the_same_key(steps):
    clock = FakeClock()
    backend = MemoryClaimBackend(ttl=TTL, claim_ttl=CLAIM_TTL, max_size=2, clock=clock)
    holder = {}  # key -> (owner, until)
    for step, owner, number in steps:
        key = f"k{number}"
        if step == "claim" and backend.claim(key, owner) is Claim.NEW:
            assert key not in holder or holder[key][0] == owner or holder[key][1] <= clock()
            holder[key] = owner, clock() + CLAIM_TTL
        elif step == "confirm":
            backend.confirm(key)
            holder.pop(key, None)
        elif step == "release":
            backend.release(key, owner)
            if key in holder and holder[key][0] == owner:
                del holder[key]
        elif step == "wait":
            clock.advance(number)
