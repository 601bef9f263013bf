"""Test that a download button of a live page works with the id that the browser has."""

from __future__ import annotations

import pytest
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileStorageError
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage

from producer_core.dashboard.server.download_ids import keep_download_ids


@pytest.fixture
def manager(monkeypatch):
    monkeypatch.setattr(
        MediaFileManager, "add_deferred", MediaFileManager.add_deferred
    )  # restored after the test
    keep_download_ids()
    keep_download_ids()
    storage = MemoryMediaFileStorage("/media")
    files = MediaFileManager(storage)
    files.storage = storage
    return files


def run(manager, *buttons):
    """Draw the buttons, as one run of the page does, and return their ids."""
    manager.clear_session_refs()
    ids = [
        manager.add_deferred(lambda text=text: text, "text/plain", place, f"{text}.txt", element_id=element)
        for element, place, text in buttons
    ]
    manager.remove_orphaned_files()
    return ids


def content(manager, id):
    url = manager.execute_deferred(id)
    return manager.storage.get_file(url.rpartition("/")[2]).content


def test_a_click_with_the_id_of_the_run_before_gets_the_current_content(manager):
    (first,) = run(manager, ("export", "0.1", "old"))
    assert run(manager, ("export", "0.2", "new")) == [first]
    assert content(manager, first) == b"new"


def test_each_button_has_an_id_of_its_own(manager):
    first, second = run(manager, ("csv", "0.1", "a"), ("json", "0.2", "b"))
    assert first != second
    assert run(manager, ("csv", "0.1", "c"), ("json", "0.2", "d")) == [first, second]
    assert (content(manager, first), content(manager, second)) == (b"c", b"d")


def test_a_button_that_the_page_no_longer_draws_has_no_content(manager):
    (first,) = run(manager, ("export", "0.1", "old"))
    run(manager)
    with pytest.raises(MediaFileStorageError):
        manager.execute_deferred(first)
