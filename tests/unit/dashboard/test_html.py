"""Test the elements of a page as values."""

from __future__ import annotations

from producer_core.dashboard.html import link, node, text_of


def test_an_element_has_a_tag_its_attributes_and_its_children():
    assert node("p", "3 ", node("b", "failed"), class_="pc-note", aria_label="Failed", data_key="orders") == [
        "p",
        {"class": "pc-note", "aria-label": "Failed", "data-key": "orders"},
        ["3 ", ["b", {}, ["failed"]]],
    ]


def test_an_attribute_without_a_value_is_left_out_and_an_empty_one_is_kept():
    assert node("td", title=None, class_="") == ["td", {"class": ""}, []]


def test_a_link_has_an_address_and_a_class_that_can_be_replaced():
    assert link("orders", "./?topic=orders") == [
        "a",
        {"href": "./?topic=orders", "class": "pc-link"},
        ["orders"],
    ]
    assert link("orders", "errors", class_="pc-button-link")[1]["class"] == "pc-button-link"


def test_the_visible_text_is_that_of_all_children_in_order():
    assert text_of(node("p", "Failing on ", link("orders", "errors"), ": ", node("b"), "too large")) == (
        "Failing on orders: too large"
    )
    assert text_of("text") == "text"
    assert text_of(node("p")) == ""


def test_markup_in_a_text_stays_text():
    assert text_of(node("p", "<b>&amp;</b>")) == "<b>&amp;</b>"
