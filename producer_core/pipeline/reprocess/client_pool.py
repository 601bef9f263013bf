"""Clients that the driver keeps from one wave to the next, by slice.

A client that was not fenced is a proof: since its own last commit, or its seal, nobody else sent anything under its
transactional id. So who sends with it need neither fence nor read back. Where somebody did take the id its next
transaction is refused by the broker, and its holder begins anew like anybody else, with a fence and a read-back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from producer_core.delivery.exactly_once.transactional_client import TransactionalClient

MOST = 16
"""Clients that are kept: each has threads and connections of its own."""


class ClientPool:
    """Safe in threads. A client that was taken is the taker's alone, until he gives it back."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()  # guards the two below
        # by slice, with the number of who gave it; longest unused first
        self._clients: dict[int, tuple[int, TransactionalClient]] = {}
        self._closed = False

    def take(self, slice_: int, number: int) -> TransactionalClient | None:
        """For a wave of this number; one that a later seal gave is not its to use."""
        with self._lock:
            if slice_ not in self._clients or self._clients[slice_][0] > number:
                return None
            return self._clients.pop(slice_)[1]

    def give(self, slice_: int, number: int, client: TransactionalClient) -> None:
        """By a wave or seal of this number. Of two the one with the greater number stays: it fenced the other."""
        over = [client]
        with self._lock:
            known = self._clients.get(slice_)
            if not self._closed and (known is None or known[0] <= number):
                over = [] if known is None else [self._clients.pop(slice_)[1]]
                self._clients[slice_] = (number, client)
                if len(self._clients) > self._most:
                    over.append(self._clients.pop(next(iter(self._clients)))[1])
        for one in over:
            one.destroy()

    def drop(self, slices: Iterable[int]) -> None:
        """Those that somebody else is about to fence."""
        with self._lock:
            known = [self._clients.pop(slice_) for slice_ in slices if slice_ in self._clients]
        for _, client in known:
            client.destroy()

    def close(self) -> None:
        """What is given afterwards is destroyed."""
        with self._lock:
            self._closed = True
        self.drop(list(self._clients))
