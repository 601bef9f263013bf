"""The clients that a driver keeps from wave to wave."""

from __future__ import annotations

from producer_core.pipeline.reprocess.client_pool import ClientPool


class Client:
    destroyed = 0

    def destroy(self):
        self.destroyed += 1


def test_who_takes_a_client_has_it_alone():
    keep, client = ClientPool(), Client()
    keep.give(3, 1, client)

    assert (keep.take(3, 9), keep.take(3, 9), keep.take(4, 9)) == (client, None, None)
    assert client.destroyed == 0


def test_of_two_the_later_one_stays_for_it_fenced_the_other():
    keep, wave, seal = ClientPool(), Client(), Client()
    keep.give(0, 8, seal)
    keep.give(0, 7, wave)  # of a wave that was killed, and ends late
    assert (wave.destroyed, seal.destroyed) == (1, 0)

    newest = Client()
    keep.give(0, 9, newest)
    assert seal.destroyed == 1
    assert keep.take(0, 8) is None  # of a wave that was killed: what sealed it is not for it
    assert keep.take(0, 9) is newest


def test_only_so_many_are_kept_and_the_longest_unused_go_first():
    keep, clients = ClientPool(most=2), [Client() for _ in range(3)]
    for slice_, client in enumerate(clients):
        keep.give(slice_, 1, client)

    assert [client.destroyed for client in clients] == [1, 0, 0]


def test_what_is_dropped_and_what_comes_after_the_end_is_destroyed():
    keep, dropped, kept, late = ClientPool(), Client(), Client(), Client()
    keep.give(0, 1, dropped)
    keep.give(1, 1, kept)
    keep.drop([0, 5])
    assert (dropped.destroyed, kept.destroyed) == (1, 0)

    keep.close()
    keep.give(2, 1, late)
    assert (kept.destroyed, late.destroyed) == (1, 1)
