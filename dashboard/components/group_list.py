"""List the groups of dead letters with count, trend and meaning; a click selects a group by its fingerprint.

The component inserts all content as text, so no error text becomes markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import streamlit as st

from producer_core.dashboard.components import browser_times

COLLAPSED = 4
"""Number of groups in the collapsed list; a button shows the others."""

_HTML = "<div class='pc-groups'></div>"

_CSS = """
.pc-groups ul { list-style: none; margin: 0; padding: 0; }
.pc-groups li { display: grid; grid-template-columns: 4rem 9rem minmax(0, 1fr) auto; gap: 0 1rem; align-items: start;
  margin: 0; padding: 0.5rem 0.7rem; border-top: 1px solid rgba(128, 128, 128, 0.18); cursor: pointer; font-size: 0.85rem; line-height: 1.4; }
.pc-groups ul { border: 1px solid rgba(128, 128, 128, 0.28); border-radius: 6px; overflow: hidden; }
.pc-groups li:first-child { border-top: 0; }
.pc-groups li:hover, .pc-groups li.pc-selected { background: rgba(100, 116, 139, 0.13); }
.pc-groups li.pc-selected { box-shadow: inset 4px 0 0 var(--st-primary-color, #1d4ed8); }
.pc-groups .pc-count { font-size: 1.05rem; font-weight: 650; font-variant-numeric: tabular-nums; text-align: right; }
.pc-groups svg { display: block; width: 100%; height: 2.2rem; fill: #64748b; border-bottom: 1px solid rgba(128, 128, 128, 0.5); }
.pc-groups .pc-selected svg { fill: var(--st-primary-color, #1d4ed8); }
.pc-groups .pc-summary > * { display: block; overflow-wrap: anywhere; }
.pc-groups .pc-select { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; text-align: left;
  text-decoration: underline; text-decoration-color: rgba(128, 128, 128, 0.6); text-underline-offset: 3px; unicode-bidi: isolate; }
.pc-groups .pc-sample { font-family: var(--st-code-font, monospace); font-size: 0.78rem; opacity: 0.85; unicode-bidi: isolate; }
.pc-groups li:not(.pc-selected) .pc-sample, .pc-groups li:not(.pc-selected) .pc-meaning { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.pc-groups .pc-times { font-size: 0.78rem; opacity: 0.8; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.pc-groups .pc-times time { display: block; }
.pc-groups .pc-toggle { font: inherit; font-size: 0.8rem; color: inherit; background: none; border: 0; padding: 0.35rem 0; cursor: pointer; text-decoration: underline; text-underline-offset: 3px; }
@media (max-width: 640px) {
  .pc-groups li { grid-template-columns: 4.5rem minmax(0, 1fr); }
  .pc-groups .pc-summary, .pc-groups .pc-times { grid-column: 1 / -1; text-align: left; }
  .pc-groups .pc-count { text-align: left; }
  .pc-groups li:not(.pc-selected) .pc-sample, .pc-groups li:not(.pc-selected) .pc-meaning { white-space: normal; }
  .pc-groups .pc-times time { display: inline; margin-right: 0.8rem; }
}
"""

_JS = """
const make = (name, cls) => { const node = document.createElement(name); if (cls) node.className = cls; return node }
const setText = (node, text) => { if (node.textContent !== text) node.textContent = text }
const SVG = 'http://www.w3.org/2000/svg'
const drawBars = (svg, group) => {
  const values = group.trend.join()
  if (svg.dataset.values === values) return
  svg.dataset.values = values
  svg.setAttribute('aria-label', group.trend_text)
  const highest = Math.max(1, ...group.trend), length = Math.max(1, group.trend.length)
  svg.setAttribute('viewBox', `0 0 ${length} 100`)
  svg.replaceChildren(...group.trend.map((count, x) => {
    const bar = document.createElementNS(SVG, 'rect'), height = count ? Math.max(5, 100 * count / highest) : 0
    for (const [name, value] of Object.entries({ x, y: 100 - height, width: 0.85, height })) bar.setAttribute(name, value)
    return bar
  }))
  const title = document.createElementNS(SVG, 'title'); title.textContent = group.trend_text; svg.append(title)
}
export default function ({ data, parentElement, setTriggerValue }) {
  const box = parentElement.querySelector('.pc-groups')
  const state = box.pcState ??= { expanded: false }
  state.select = id => setTriggerValue('select', { id, at: Date.now() })
  let list = box.querySelector('ul'), toggle = box.querySelector('.pc-toggle')
  if (!list) {
    list = box.appendChild(make('ul')); list.setAttribute('aria-label', 'Causes, the largest first')
    toggle = box.appendChild(make('button', 'pc-toggle')); toggle.type = 'button'
    toggle.onclick = () => { state.expanded = !state.expanded; state.draw() }
    list.onmouseenter = () => { state.hovered = true }
    list.onmouseleave = () => { state.hovered = false; state.draw() }
  }
  state.draw = () => {
    const { groups, collapsed } = state.data
    const items = new Map([...list.children].map(item => [item.dataset.id, item]))
    const selected = groups.find(group => group.selected)
    let shown = state.expanded ? groups : groups.slice(0, collapsed)
    if (selected && !shown.includes(selected)) shown = [selected, ...shown]
    const ids = new Set(shown.map(group => group.id))
    for (const [id, item] of items) if (!ids.has(id)) { item.remove(); items.delete(id) }
    // The order does not change while the pointer is over the list, so that a click hits the intended group.
    if (state.hovered) shown = [...shown].sort((a, b) => indexOf(list, items.get(a.id)) - indexOf(list, items.get(b.id)))
    let next = list.firstChild
    for (const group of shown) {
      const item = items.get(group.id) ?? createItem(group.id, state)
      updateItem(item, group)
      if (item !== next) list.insertBefore(item, next); else next = next.nextSibling
    }
    toggle.hidden = groups.length <= collapsed
    setText(toggle, state.expanded ? 'Show fewer' : `Show all ${groups.length} causes`)
    list.hidden = !groups.length
  }
  state.data = data
  state.draw()
}
const indexOf = (list, item) => item ? [...list.children].indexOf(item) : 1e6
const createItem = (id, state) => {
  const item = make('li'); item.dataset.id = id
  const svg = document.createElementNS(SVG, 'svg'); svg.setAttribute('role', 'img'); svg.setAttribute('preserveAspectRatio', 'none')
  const summary = make('div', 'pc-summary'), button = make('button', 'pc-select'), times = make('div', 'pc-times')
  button.type = 'button'; button.title = 'Show only this group'
  summary.append(button, make('span', 'pc-meaning'), make('span', 'pc-sample'), make('span', 'pc-details'))
  times.append(make('time'), make('time'))
  item.append(make('div', 'pc-count'), svg, summary, times)
  item.onclick = () => { if (!String(getSelection())) state.select(item.classList.contains('pc-selected') ? null : id) }
  return item
}
const updateItem = (item, group) => {
  item.classList.toggle('pc-selected', group.selected)
  const [count, svg, summary, times] = item.children
  setText(count, group.count); drawBars(svg, group)
  const [button, meaning, sample, details] = summary.children
  setText(button, group.title); button.setAttribute('aria-pressed', group.selected)
  setText(meaning, group.meaning); setText(sample, group.sample); setText(details, group.selected ? group.details : '')
  meaning.title = group.meaning; sample.title = group.sample
  const seen = [['first ', group.first], ['last ', group.last]]
  seen.forEach(([word, at], n) => { setText(times.children[n], word + local(at)); times.children[n].title = utc(at) })
}
"""


@dataclass(frozen=True)
class GroupItem:
    """Describe one group by texts. `first` and `last` are in seconds since 1970."""

    id: str
    count: str
    title: str
    meaning: str
    sample: str
    details: str
    first: float
    last: float
    trend: tuple[int, ...]
    trend_text: str
    selected: bool


def group_list(items: Sequence[GroupItem], *, key: str, on_select: Callable[[str | None], None]) -> None:
    """Draw the list; call `on_select` with the fingerprint of the selected group, or None when it is deselected."""

    def selected() -> None:
        found = st.session_state[key].get("select")
        if found:
            on_select(found["id"])

    data = {"groups": [asdict(item) for item in items], "collapsed": COLLAPSED}
    _component()(data=data, key=key, on_select_change=selected)


@cache
def _component() -> Any:
    return st.components.v2.component(
        "group_list", html=_HTML, css=_CSS, js=browser_times.JS + _JS, isolate_styles=False
    )
