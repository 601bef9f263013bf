"""Elements of a page as values, in which text is never markup."""

from __future__ import annotations

from typing import Any

Node = list[Any]
"""A tag, its attributes and its children, which are nodes or text."""


def node(tag: str, *children: Node | str, **attributes: str | None) -> Node:
    """Return an element with attributes such as `class_="pc-note"`, `aria_label="…"` and `data_key="…"`.

    An update finds the element by its `data_key` when its position changes.
    """
    named = {
        name.rstrip("_").replace("_", "-"): text for name, text in attributes.items() if text is not None
    }
    return [tag, named, list(children)]


def link(text: Node | str, address: str, **attributes: str | None) -> Node:
    """Return a link to a URL that `header.link` built."""
    return node("a", text, href=address, **{"class_": "pc-link", **attributes})


def text_of(tree: Node | str) -> str:
    """Return the visible text."""
    return tree if isinstance(tree, str) else "".join(text_of(child) for child in tree[2])
