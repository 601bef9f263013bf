"""The numbers of a session's batches."""

from __future__ import annotations

import pytest

from producer_core.metrics.batch_sequence import BatchSequence


@pytest.mark.parametrize("known", [7, None])
def test_batch_numbers_of_a_session_derived_from_an_input_continue(known):
    sequence = BatchSequence(fresh=False, known=lambda: known)
    first, second = sequence.take(), sequence.take()
    assert second == first + 1
    assert first == known if known is not None else first > 1 << 40
