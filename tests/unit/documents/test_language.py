"""The language of the product: no flagged phrase in a string that users can see."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support import ROOT

FLAGGED = [
    r"who(?:so)?ever", r"nobody", r"somebody", r"everybody", r"mend(?:s|ed|ing)?",
    r"who (?:only|asks?|waits?|sends?|reads?|looks?|gets?|knows?|uses?|wonders?|finds?|closes?|flushes|may|must)",
    r"(?:is|are|was|were|be|been) told", r"hears? of", r"tells? (?:everybody|of)", r"gone on with", r"it goes on",
    r"goes? on (?:where|past|without)", r"stands? (?:in|for|beside|there|nowhere|behind|still|apart)", r"so many",
    r"of (?:ours|yours)", r"comes to be", r"lets? go", r"(?<!dead )(?<!dead-)letters?",
    r"waits? for (?:a person|a decision|somebody)", r"all the same", r"for good", r"at hand",
    r"what (?:waits|died|dies|failed|fails|was sent|is there|was there|stands)",
    r"take[ns]? (?:in|away) (?:again|anew)", r"anew", r"meanwhile",
]  # fmt: skip
"""Phrases of translated English, and metaphors that the documentation of Kafka does not use."""

FLAG = re.compile(r"\b(?:" + "|".join(FLAGGED) + r")\b", re.IGNORECASE)
MODULES = [
    file.relative_to(ROOT)
    for folder in ("producer_core", "dashboard")
    for file in (ROOT / folder).rglob("*.py")
]
PAGES = [file.relative_to(ROOT) for file in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))]


def texts(source):
    """Return every string literal with its line: screens, help texts, errors, logs and docstrings. Keys are not texts."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES, ids=str)
def test_no_product_text_contains_a_flagged_phrase(module):
    found = [
        f"{module}:{line}: {match[0]!r} in {text[:200]!r}"
        for line, text in texts((ROOT / module).read_text())
        if (match := FLAG.search(text))
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_page_contains_more_than_one_flagged_phrase(page):
    """A page may quote one, for example the meaning of a word in another system."""
    found = [match[0] for match in FLAG.finditer(" ".join((ROOT / page).read_text().split()))]
    assert len(found) <= 1, found


def test_the_check_finds_a_phrase_in_any_kind_of_string():
    source = 'def f():\n    """Wait for whoever reads."""\n    raise Error(f"{n} letters are left")'
    assert [FLAG.search(text)[0] for _, text in texts(source)] == ["whoever", "letters"]
    assert not FLAG.search("3 dead letters are pending")
