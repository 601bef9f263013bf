"""The first values keep their label; the number of labels is bounded."""

from __future__ import annotations

from producer_core.producer.prometheus.bounded_labels import BoundedLabels


def test_the_first_values_have_a_label_of_their_own_and_the_rest_share_one():
    labels = BoundedLabels(2)

    assert [labels.of(name) for name in ("a", "b", "c", "d")] == ["a", "b", "other", "other"]


def test_a_value_keeps_its_label_for_the_life_of_the_process():
    labels = BoundedLabels(2)
    labels.add(["b", "c"])

    labels.add(["a", "b"])

    assert [labels.of(name) for name in ("a", "b", "c")] == ["other", "b", "c"]


def test_the_shared_label_can_be_that_of_a_convention():
    assert BoundedLabels(0, rest="_OTHER").of("x") == "_OTHER"
