"""The contract of leases: those of the table `leases`, and those of replay operations in their own rows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from producer_core import replay
from producer_core._internal.lease_watch import LeaseWatch
from producer_core.dlq import DeadLetterFilter
from producer_core.replay.candidates import Candidates
from producer_core.replay.claims import ReplayClaims
from producer_core.store import Store
from producer_core.store.lease import Lease
from tests.fixtures.replays import CLUSTER, add_dead_letters
from tests.fixtures.store_batches import heartbeat

SECONDS = 16.0


class OperationLease:
    """An operation's lease with the methods of Lease, in the steps of ReplayRunner."""

    def __init__(self, store, operation_id, owner, *, times):
        self.owner = owner
        self._times = times
        self._watch = LeaseWatch(SECONDS)
        self._candidates = Candidates(store, by_spark=False)
        self._claims = ReplayClaims(store, operation_id, owner, lease=SECONDS, clock=lambda: times.now)

    def hold(self, now):
        ((held, _),) = self._candidates.ask(CLUSTER, self._claims.operation_id)
        if held.owner == self.owner:
            return self._claims.renew()
        free = self._watch.is_free(
            held.operation_id, held.owner, held.lease_until, now=now, moment=self._times.moment
        )
        return free and self._claims.take(held)

    def drop(self):
        self._claims.release()


@pytest.fixture
def times():
    """The system clock and the monotonic clock, which a change of the system clock does not affect."""
    return SimpleNamespace(now=1_000_000.0, moment=50.0)


@pytest.fixture
def store(tmp_path, times):
    with_store = Store.open(tmp_path / "store.duckdb", clock=lambda: times.now)
    yield with_store
    with_store.close()


@pytest.fixture(params=["named", "operation"])
def lease(request, store, times):
    """Return a process's view of one lease."""
    if request.param == "named":
        return lambda owner: Lease(store, "alerts", owner, seconds=SECONDS, monotonic=lambda: times.moment)
    add_dead_letters(store, 1)
    operation = replay.plan(
        store, DeadLetterFilter(), who="ann", origin="python", can_run=CLUSTER, clock=lambda: times.now
    )
    return lambda owner: OperationLease(store, operation.operation_id, owner, times=times)


def forward(times, seconds):
    times.now += seconds
    times.moment += seconds


def test_a_free_lease_has_one_owner(lease, times):
    first, second = lease("a"), lease("b")

    assert first.hold(times.now)
    assert not second.hold(times.now)
    assert first.hold(times.now)


def test_an_owner_that_renews_keeps_the_lease(lease, times):
    owner, other = lease("a"), lease("b")

    for _ in range(8):
        assert owner.hold(times.now)
        forward(times, SECONDS / 4)
        assert not other.hold(times.now)


def test_a_dead_owners_lease_is_taken_after_its_length(lease, times):
    assert lease("dead").hold(times.now)
    heir = lease("heir")
    assert not heir.hold(times.now)

    forward(times, SECONDS - 0.1)
    assert not heir.hold(times.now)
    forward(times, 0.1)

    assert heir.hold(times.now)


def test_an_expired_lease_is_taken_after_half_its_length(lease, times):
    """A process that starts long after the owner's death does not wait for the whole length."""
    assert lease("dead").hold(times.now)
    forward(times, 10 * SECONDS)
    heir = lease("heir")
    assert not heir.hold(times.now)

    forward(times, SECONDS / 2 - 0.1)
    assert not heir.hold(times.now)
    forward(times, 0.1)

    assert heir.hold(times.now)


def test_a_clock_that_is_set_forward_takes_no_lease_from_a_running_owner(lease, times):
    owner, other = lease("a"), lease("b")
    assert owner.hold(times.now)
    assert not other.hold(times.now)

    times.now += 100 * SECONDS

    assert not other.hold(times.now)
    assert owner.hold(times.now)


def test_a_clock_that_is_set_back_does_not_keep_a_dead_owners_lease(lease, times):
    assert lease("dead").hold(times.now)
    times.now -= 100 * SECONDS
    heir = lease("heir")
    assert not heir.hold(times.now)

    forward(times, SECONDS)

    assert heir.hold(times.now)


def test_a_renewal_starts_the_observation_again(lease, times):
    owner, other = lease("a"), lease("b")
    assert owner.hold(times.now)
    assert not other.hold(times.now)
    forward(times, SECONDS * 0.75)
    assert owner.hold(times.now)
    assert not other.hold(times.now)

    forward(times, SECONDS * 0.75)

    assert not other.hold(times.now)


def test_only_one_of_two_candidates_gets_an_expired_lease(lease, times):
    assert lease("dead").hold(times.now)
    one, two = lease("one"), lease("two")
    assert not one.hold(times.now)
    assert not two.hold(times.now)

    forward(times, SECONDS)

    assert (one.hold(times.now), two.hold(times.now)) == (True, False)


def test_an_owner_that_lost_the_lease_does_not_get_it_back(lease, times):
    stopped, heir = lease("stopped"), lease("heir")
    assert stopped.hold(times.now)
    assert not heir.hold(times.now)
    forward(times, SECONDS)
    assert heir.hold(times.now)

    assert not stopped.hold(times.now)


def test_a_released_lease_is_free_at_once(lease, times):
    owner, other = lease("a"), lease("b")
    assert owner.hold(times.now)
    assert not other.hold(times.now)

    owner.drop()

    assert other.hold(times.now)


def test_a_release_by_an_owner_that_lost_the_lease_has_no_effect(lease, times):
    stopped, heir, third = lease("stopped"), lease("heir"), lease("third")
    assert stopped.hold(times.now)
    assert not heir.hold(times.now)
    forward(times, SECONDS)
    assert heir.hold(times.now)

    stopped.drop()

    assert not third.hold(times.now)


# the steps in the store


def test_a_lease_that_its_owner_renewed_cannot_be_seized(store):
    assert store.take_lease("alerts", "a", 15, now=100)
    assert store.take_lease("alerts", "a", 15, now=101)

    late = {"name": "alerts", "owner": "b", "until": 300.0, "held_by": "a"}

    assert store.execute("lease_seize", **late, held_until=115.0) == 0
    assert store.execute("lease_seize", **late, held_until=116.0) == 1
    assert store.rows("lease_holder", name="alerts") == [{"owner": "b", "lease_until": 300.0}]


def test_a_running_owner_writes_once_in_half_the_length(store, times):
    lease = Lease(store, "alerts", "a", seconds=SECONDS, monotonic=lambda: times.moment)
    assert lease.hold(times.now)
    before = store.rows("lease_holder", name="alerts")

    forward(times, SECONDS / 2 - 0.1)
    assert lease.hold(times.now)
    assert store.rows("lease_holder", name="alerts") == before
    forward(times, 0.1)
    assert lease.hold(times.now)

    assert store.rows("lease_holder", name="alerts") != before


def test_leases_of_different_names_are_independent(store, times):
    names = ("alerts", "alerts/mail", "dlq publish")

    assert all(Lease(store, name, name, monotonic=lambda: times.moment).hold(times.now) for name in names)


@pytest.fixture
def named(store, times):
    held = Lease(store, "alerts", "me", seconds=SECONDS, monotonic=lambda: times.moment)
    store.renew_with_appends(held)
    assert held.hold(times.now)
    return held


def lease_until(store):
    return store.rows("lease_holder", name="alerts")[0]["lease_until"]


def test_an_append_renews_the_lease_after_a_quarter_of_its_length(store, times, named):
    first = lease_until(store)
    forward(times, SECONDS / 4 - 0.1)
    named.touch()
    store.append(heartbeat("p", 0))
    assert lease_until(store) == first

    forward(times, 0.1)
    store.append(heartbeat("p", 1))

    assert lease_until(store) == times.now + SECONDS
    forward(times, SECONDS / 2 - 0.1)
    assert not named.is_renewal_due()


def test_an_append_does_not_renew_the_lease_of_a_thread_that_hangs(store, times, named):
    first = lease_until(store)
    forward(times, SECONDS / 2)

    store.append(heartbeat("p", 0))

    assert lease_until(store) == first


def test_an_append_renews_neither_a_lost_nor_a_dropped_lease(store, times, named):
    forward(times, SECONDS / 2)
    named.touch()
    store.drop_lease("alerts", "me")
    assert store.take_lease("alerts", "heir", SECONDS, times.now)

    store.append(heartbeat("p", 0))

    assert store.rows("lease_holder", name="alerts")[0]["owner"] == "heir"
    assert named.is_renewal_due()
    assert not named.hold(times.now)
    named.drop()
    store.append(heartbeat("p", 1))
    assert store.rows("lease_holder", name="alerts")[0]["owner"] == "heir"


def test_an_append_that_fails_renews_no_lease(store, times, named, monkeypatch):
    first = lease_until(store)
    forward(times, SECONDS / 2)
    named.touch()
    monkeypatch.setattr("producer_core.store.merge.merge", lambda *_, **__: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        store.append(heartbeat("p", 0))

    assert lease_until(store) == first
    assert named.is_renewal_due()
