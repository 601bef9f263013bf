"""The clients that a driver keeps from batch to batch."""

from __future__ import annotations

from producer_core.pipeline.reprocess.client_pool import ClientPool


class Client:
    destroyed = 0

    def destroy(self):
        self.destroyed += 1


def test_a_taken_client_is_not_lent_again():
    pool, client = ClientPool(), Client()
    pool.give(3, 1, client)

    assert (pool.take(3, 9), pool.take(3, 9), pool.take(4, 9)) == (client, None, None)
    assert client.destroyed == 0


def test_the_later_of_two_clients_stays_because_it_fenced_the_other():
    pool, batch, seal = ClientPool(), Client(), Client()
    pool.give(0, 8, seal)
    pool.give(0, 7, batch)  # from a batch that was killed and ends late
    assert (batch.destroyed, seal.destroyed) == (1, 0)

    newest = Client()
    pool.give(0, 9, newest)
    assert seal.destroyed == 1
    assert pool.take(0, 8) is None  # a killed batch must not use the client that sealed it
    assert pool.take(0, 9) is newest


def test_the_least_recently_used_clients_are_destroyed_first():
    pool, clients = ClientPool(most=2), [Client() for _ in range(3)]
    for slice_, client in enumerate(clients):
        pool.give(slice_, 1, client)

    assert [client.destroyed for client in clients] == [1, 0, 0]


def test_dropped_clients_and_clients_given_after_close_are_destroyed():
    pool, dropped, kept, late = ClientPool(), Client(), Client(), Client()
    pool.give(0, 1, dropped)
    pool.give(1, 1, kept)
    pool.drop([0, 5])
    assert (dropped.destroyed, kept.destroyed) == (1, 0)

    pool.close()
    pool.give(2, 1, late)
    assert (kept.destroyed, late.destroyed) == (1, 1)
