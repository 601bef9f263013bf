"""Test the warm-up of the server."""

from __future__ import annotations

import pytest

from producer_core.dashboard.server.warm_up import start_warm_up


class Files:
    """Record that the files were compressed."""

    compressed = 0

    def compress(self):
        self.compressed += 1


@pytest.mark.parametrize("content", [None, b"not a database" * 1000], ids=["missing", "damaged"])
def test_the_warm_up_ends_without_a_readable_store(path, content):
    if content is not None:
        path.write_bytes(content)
    files = Files()

    thread = start_warm_up(path, files, "producer_core.dashboard.theme")
    thread.join(60)

    assert not thread.is_alive() and thread.daemon
    assert files.compressed == 1
    assert path.exists() == (content is not None)


def test_the_warm_up_closes_the_store(path, store):
    store.close()

    thread = start_warm_up(path, Files(), "producer_core.dashboard.theme")
    thread.join(60)

    assert not thread.is_alive()
    path.unlink()
