"""Test the states of replays in words."""

from __future__ import annotations

import typing

import pytest

from producer_core.dashboard.wording.replay_states import state_words
from producer_core.replay.operation import State
from tests.fixtures.replay_pages import NOW
from tests.unit.dashboard.wording.test_replays import operation


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({}, {}, "Running"),
        ({"lease_until": NOW - 20}, {}, "Runner lost"),
        ({"state": "planned", "owner": None}, {}, "Starting soon"),
        ({"state": "planned", "owner": None}, {"runners": 0}, "No runner"),
        ({"state": "planned", "owner": None}, {"queued": True}, "Queued"),
        ({"state": "checking"}, {}, "Checking topics"),
        ({"state": "ready", "owner": None}, {}, "Awaiting decision"),
        ({"state": "paused"}, {}, "Pausing"),
        ({"state": "paused", "owner": None}, {}, "Paused"),
        ({"state": "cancelled"}, {}, "Cancelling"),
        ({"state": "cancelled", "finished_at": NOW}, {}, "Cancelled"),
        ({"state": "stopped"}, {}, "Stopped automatically"),
        ({"state": "failed"}, {}, "Failed"),
        ({"state": "done", "acknowledged": 60, "landed": 40}, {}, "All delivered"),
        ({"state": "done", "acknowledged": 60, "failed_again": 40}, {}, "Partly delivered"),
        ({"state": "done", "acknowledged": 0, "failed_again": 100}, {}, "None delivered"),
    ],
)
def test_a_state_has_its_words(changes, options, words):
    assert state_words(operation(**changes), now=NOW, **options) == words


@pytest.mark.parametrize("state", typing.get_args(State))
@pytest.mark.parametrize("owner", [None, "p-1/abc"])
def test_no_state_has_more_than_two_words(state, owner):
    for runners in (0, 1):
        for queued in (False, True):
            words = state_words(operation(state=state, owner=owner), now=NOW, runners=runners, queued=queued)
            assert 1 <= len(words.split()) <= 2
