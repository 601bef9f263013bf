"""Keep the driver's transactional clients from one batch to the next, by slice.

A client that was not fenced is a proof: since its last commit, or its seal, no other client sent anything under its
transactional id. So sending with it needs neither a fence nor a read-back. When another client has taken the id, the
broker rejects the next transaction, and the sender starts again with a fence and a read-back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from producer_core.delivery.exactly_once.transactional_client import TransactionalClient

MAX_CLIENTS = 16
"""Clients that are kept; each has threads and connections of its own."""


class ClientPool:
    """Lend clients to threads. A client belongs to the thread that took it until it is given back."""

    def __init__(self, most: int = MAX_CLIENTS) -> None:
        self._most = most
        self._lock = threading.Lock()  # guards _clients and _closed
        # by slice, with the number of the batch or seal that gave it; least recently used first
        self._clients: dict[int, tuple[int, TransactionalClient]] = {}
        self._closed = False

    def take(self, slice_: int, number: int) -> TransactionalClient | None:
        """Return a slice's client for the batch `number`; None for a client that a later seal gave."""
        with self._lock:
            if slice_ not in self._clients or self._clients[slice_][0] > number:
                return None
            return self._clients.pop(slice_)[1]

    def give(self, slice_: int, number: int, client: TransactionalClient) -> None:
        """Add a client of the batch or seal `number`. Of two clients the one with the greater number stays: it fenced
        the other."""
        surplus = [client]
        with self._lock:
            known = self._clients.get(slice_)
            if not self._closed and (known is None or known[0] <= number):
                surplus = [] if known is None else [self._clients.pop(slice_)[1]]
                self._clients[slice_] = (number, client)
                if len(self._clients) > self._most:
                    surplus.append(self._clients.pop(next(iter(self._clients)))[1])
        for one in surplus:
            one.destroy()

    def drop(self, slices: Iterable[int]) -> None:
        """Destroy the clients of these slices, which other processes are about to fence."""
        with self._lock:
            known = [self._clients.pop(slice_) for slice_ in slices if slice_ in self._clients]
        for _, client in known:
            client.destroy()

    def close(self) -> None:
        """Destroy all clients, and those that are given afterwards."""
        with self._lock:
            self._closed = True
        self.drop(list(self._clients))
