"""Weighted and repeatable choices."""

from __future__ import annotations

from collections import Counter
from random import Random

from producer_core.simulate.weighted_choice import WeightedChoice, source


def test_weights_need_not_sum_to_one():
    drawn = Counter(WeightedChoice({"a": 3, "b": 1}).draw(rng) for rng in [Random(1)] for _ in range(1000))

    assert 650 < drawn["a"] < 850
    assert WeightedChoice({"only": 0.0}).draw(Random(1)) == "only"


def test_a_source_is_repeatable_by_seed_and_purpose():
    assert source(1, "x").random() == source(1, "x").random() != source(1, "y").random()
    assert source(None, "x").random() != source(None, "x").random()
