"""The result of a frame in a notebook."""

from __future__ import annotations

import pandas as pd

from tests.fixtures.notebook import HOSTILE


def test_texts_of_a_result_are_escaped_in_html(sent):
    producer, _ = sent
    result = producer.send_frame(pd.DataFrame({HOSTILE: [b"x"]}), "orders")
    assert "<img" not in result._repr_html_() and "&lt;img" in result._repr_html_()
