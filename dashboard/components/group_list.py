"""The groups of dead letters as a list: count, trend, and what the error means; a click chooses one by its fingerprint.

Everything in it is set as text, so nothing that an error says becomes markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import streamlit as st

from producer_core.dashboard.components import browser_times

FEW = 4
"""So many are open at first; a button shows the others."""

_HTML = "<div class='pc-groups'></div>"

_CSS = """
.pc-groups ul { list-style: none; margin: 0; padding: 0; }
.pc-groups li { display: grid; grid-template-columns: 4rem 9rem minmax(0, 1fr) auto; gap: 0 1rem; align-items: start;
  margin: 0; padding: 0.5rem 0.7rem; border-top: 1px solid rgba(128, 128, 128, 0.18); cursor: pointer; font-size: 0.85rem; line-height: 1.4; }
.pc-groups ul { border: 1px solid rgba(128, 128, 128, 0.28); border-radius: 6px; overflow: hidden; }
.pc-groups li:first-child { border-top: 0; }
.pc-groups li:hover, .pc-groups li.pc-on { background: rgba(100, 116, 139, 0.13); }
.pc-groups li.pc-on { box-shadow: inset 4px 0 0 var(--st-primary-color, #1d4ed8); }
.pc-groups .pc-many { font-size: 1.05rem; font-weight: 650; font-variant-numeric: tabular-nums; text-align: right; }
.pc-groups svg { display: block; width: 100%; height: 2.2rem; fill: #64748b; border-bottom: 1px solid rgba(128, 128, 128, 0.5); }
.pc-groups .pc-on svg { fill: var(--st-primary-color, #1d4ed8); }
.pc-groups .pc-what > * { display: block; overflow-wrap: anywhere; }
.pc-groups .pc-pick { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; text-align: left;
  text-decoration: underline; text-decoration-color: rgba(128, 128, 128, 0.6); text-underline-offset: 3px; unicode-bidi: isolate; }
.pc-groups .pc-sample { font-family: var(--st-code-font, monospace); font-size: 0.78rem; opacity: 0.85; unicode-bidi: isolate; }
.pc-groups li:not(.pc-on) .pc-sample, .pc-groups li:not(.pc-on) .pc-means { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.pc-groups .pc-seen { font-size: 0.78rem; opacity: 0.8; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.pc-groups .pc-seen time { display: block; }
.pc-groups .pc-more { font: inherit; font-size: 0.8rem; color: inherit; background: none; border: 0; padding: 0.35rem 0; cursor: pointer; text-decoration: underline; text-underline-offset: 3px; }
@media (max-width: 640px) {
  .pc-groups li { grid-template-columns: 4.5rem minmax(0, 1fr); }
  .pc-groups .pc-what, .pc-groups .pc-seen { grid-column: 1 / -1; text-align: left; }
  .pc-groups .pc-many { text-align: left; }
  .pc-groups li:not(.pc-on) .pc-sample, .pc-groups li:not(.pc-on) .pc-means { white-space: normal; }
  .pc-groups .pc-seen time { display: inline; margin-right: 0.8rem; }
}
"""

_JS = """
const make = (name, cls) => { const node = document.createElement(name); if (cls) node.className = cls; return node }
const say = (node, text) => { if (node.textContent !== text) node.textContent = text }
const SVG = 'http://www.w3.org/2000/svg'
const bars = (svg, group) => {
  const drawn = group.trend.join()
  if (svg.dataset.drawn === drawn) return
  svg.dataset.drawn = drawn
  svg.setAttribute('aria-label', group.trend_text)
  const most = Math.max(1, ...group.trend), n = Math.max(1, group.trend.length)
  svg.setAttribute('viewBox', `0 0 ${n} 100`)
  svg.replaceChildren(...group.trend.map((count, x) => {
    const bar = document.createElementNS(SVG, 'rect'), height = count ? Math.max(5, 100 * count / most) : 0
    for (const [name, value] of Object.entries({ x, y: 100 - height, width: 0.85, height })) bar.setAttribute(name, value)
    return bar
  }))
  const tip = document.createElementNS(SVG, 'title'); tip.textContent = group.trend_text; svg.append(tip)
}
export default function ({ data, parentElement, setTriggerValue }) {
  const box = parentElement.querySelector('.pc-groups')
  const state = box.pcState ??= { all: false }
  state.pick = id => setTriggerValue('pick', { id, at: Date.now() })
  let list = box.querySelector('ul'), more = box.querySelector('.pc-more')
  if (!list) {
    list = box.appendChild(make('ul')); list.setAttribute('aria-label', 'Causes, the largest first')
    more = box.appendChild(make('button', 'pc-more')); more.type = 'button'
    more.onclick = () => { state.all = !state.all; state.draw() }
    list.onmouseenter = () => { state.held = true }
    list.onmouseleave = () => { state.held = false; state.draw() }
  }
  state.draw = () => {
    const { groups, few } = state.data
    const known = new Map([...list.children].map(item => [item.dataset.id, item]))
    const on = groups.find(group => group.on)
    let shown = state.all ? groups : groups.slice(0, few)
    if (on && !shown.includes(on)) shown = [on, ...shown]
    const ids = new Set(shown.map(group => group.id))
    for (const [id, item] of known) if (!ids.has(id)) { item.remove(); known.delete(id) }
    // Under the pointer nothing changes its place: a click must mean what the eye saw.
    if (state.held) shown = [...shown].sort((a, b) => place(list, known.get(a.id)) - place(list, known.get(b.id)))
    let at = list.firstChild
    for (const group of shown) {
      const item = known.get(group.id) ?? fresh(group.id, state)
      fill(item, group)
      if (item !== at) list.insertBefore(item, at); else at = at.nextSibling
    }
    more.hidden = groups.length <= few
    say(more, state.all ? 'Show fewer' : `Show all ${groups.length} causes`)
    list.hidden = !groups.length
  }
  state.data = data
  state.draw()
}
const place = (list, item) => item ? [...list.children].indexOf(item) : 1e6
const fresh = (id, state) => {
  const item = make('li'); item.dataset.id = id
  const svg = document.createElementNS(SVG, 'svg'); svg.setAttribute('role', 'img'); svg.setAttribute('preserveAspectRatio', 'none')
  const what = make('div', 'pc-what'), pick = make('button', 'pc-pick'), seen = make('div', 'pc-seen')
  pick.type = 'button'; pick.title = 'Look at these only'
  what.append(pick, make('span', 'pc-means'), make('span', 'pc-sample'), make('span', 'pc-kinds'))
  seen.append(make('time'), make('time'))
  item.append(make('div', 'pc-many'), svg, what, seen)
  item.onclick = () => { if (!String(getSelection())) state.pick(item.classList.contains('pc-on') ? null : id) }
  return item
}
const fill = (item, group) => {
  item.classList.toggle('pc-on', group.on)
  const [many, svg, what, seen] = item.children
  say(many, group.count); bars(svg, group)
  const [pick, means, sample, kinds] = what.children
  say(pick, group.title); pick.setAttribute('aria-pressed', group.on)
  say(means, group.means); say(sample, group.sample); say(kinds, group.on ? group.kinds : '')
  means.title = group.means; sample.title = group.sample
  const times = [['first ', group.first], ['last ', group.last]]
  times.forEach(([word, at], n) => { say(seen.children[n], word + local(at)); seen.children[n].title = utc(at) })
}
"""


@dataclass(frozen=True)
class GroupItem:
    """One group, every part as text; `first` and `last` in seconds since 1970, `on` when it is the one chosen."""

    id: str
    count: str
    title: str
    means: str
    sample: str
    kinds: str
    first: float
    last: float
    trend: tuple[int, ...]
    trend_text: str
    on: bool


def group_list(items: Sequence[GroupItem], *, key: str, on_pick: Callable[[str | None], None]) -> None:
    """Draw the list; `on_pick` hears the fingerprint that was chosen, None when it was let go."""

    def picked() -> None:
        found = st.session_state[key].get("pick")
        if found:
            on_pick(found["id"])

    data = {"groups": [asdict(item) for item in items], "few": FEW}
    _component()(data=data, key=key, on_pick_change=picked)


@cache
def _component() -> Any:
    return st.components.v2.component(
        "group_list", html=_HTML, css=_CSS, js=browser_times.JS + _JS, isolate_styles=False
    )
