"""A node: an element of a page as a value, in which text is text and never markup."""

from __future__ import annotations

from typing import Any

Node = list[Any]
"""A tag, its attributes and its children: other nodes, or text."""


def node(tag: str, *children: Node | str, **attributes: str | None) -> Node:
    """An element: `class_="pc-note"`, `aria_label="…"`, `data_key="…"` (found again by it when it moves)."""
    named = {
        name.rstrip("_").replace("_", "-"): text for name, text in attributes.items() if text is not None
    }
    return [tag, named, list(children)]


def link(text: Node | str, address: str, **attributes: str | None) -> Node:
    """A link to an address that `header.link` made."""
    return node("a", text, href=address, **{"class_": "pc-link", **attributes})


def text_of(tree: Node | str) -> str:
    """What a reader sees of it."""
    return tree if isinstance(tree, str) else "".join(text_of(child) for child in tree[2])
