"""Live HTML: a tree of elements, brought up to date in place, so that a click, a selection or a hover outlives refreshes.

`st.html` replaces everything whenever a number changes: a link that is replaced under the pointer is never clicked.
Nothing in a tree is ever read as markup: text is put in as text, and only the attributes named here are set.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

from producer_core.dashboard.html import Node, link, node, text_of

__all__ = ["Node", "link", "live_dom", "node", "text_of"]

_JS = """
const ALLOWED = /^(class|href|title|role|scope|colspan|tabindex|id|datetime|viewBox|width|height|d|x|y|x1|x2|y1|y2|r|cx|cy|points|fill|stroke|stroke-width|preserveAspectRatio|aria-[a-z]+|data-[a-z]+)$/
const TAGS = /^(div|span|p|a|b|strong|small|h2|h3|dl|dt|dd|ul|ol|li|table|thead|tbody|tr|th|td|time|code|details|summary|svg|g|path|rect|circle|line|polyline|title)$/
const SVG = new Set(['svg', 'g', 'path', 'rect', 'circle', 'line', 'polyline'])
const safe = (name, value) => name !== 'href' || /^(\\.\\/|[a-z-]+([?#]|$)|#)/.test(value)
const make = (node, parent) => {
  if (typeof node === 'string') return document.createTextNode(node)
  const tag = TAGS.test(node[0]) ? node[0] : 'span'
  const svg = SVG.has(tag) || parent.namespaceURI === 'http://www.w3.org/2000/svg'
  const made = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag)
  made.pcTag = node[0]
  return made
}
const dress = (element, attributes) => {
  for (const { name } of [...element.attributes]) if (!(name in attributes) && name !== 'open') element.removeAttribute(name)
  for (const [name, value] of Object.entries(attributes))
    if (ALLOWED.test(name) && safe(name, value) && element.getAttribute(name) !== value) element.setAttribute(name, value)
}
const keyOf = node => typeof node === 'string' ? null : node[1]['data-key'] ?? null
// Children with a data-key are found again wherever they have moved; the others by their place.
const fill = (parent, nodes) => {
  const known = new Map()
  for (const child of parent.children) if (child.dataset?.key) known.set(child.dataset.key, child)
  let place = parent.firstChild
  for (const node of nodes) {
    const key = keyOf(node)
    let found = key === null ? place : known.get(key)
    const fits = found && (typeof node === 'string' ? found.nodeType === 3 : found.pcTag === node[0] && (key !== null || !found.dataset?.key))
    if (!fits) { found = make(node, parent); parent.insertBefore(found, place) }
    else if (found !== place) parent.insertBefore(found, place)
    else place = place.nextSibling
    if (typeof node === 'string') { if (found.data !== node) found.data = node }
    else { dress(found, node[1]); fill(found, node[2]) }
  }
  while (place) { const next = place.nextSibling; place.remove(); place = next }
}
export default function ({ data, parentElement }) {
  const root = parentElement.querySelector('.pc-live')
  fill(root, data.tree)
}
"""


def live_dom(*tree: Node | str, key: str) -> None:
    """Draw the tree under a stable key."""
    _component()(data={"tree": list(tree)}, key=key)


@cache
def _component() -> Any:
    return st.components.v2.component(
        "live_dom", html="<div class='pc-live'></div>", js=_JS, isolate_styles=False
    )
