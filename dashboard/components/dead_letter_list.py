"""A list of dead letters, chosen by their ids: rows may come and go under a click, and no other dead letter is meant.

`st.dataframe` reports the positions of selected rows, which are other dead letters after the next refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import streamlit as st

from producer_core.dashboard.components import browser_times

_HTML = "<div class='pc-letters' role='region' tabindex='0'></div>"

_CSS = """
.pc-letters { max-height: max(20rem, 58vh); overflow-anchor: none; }
.pc-letters td { unicode-bidi: isolate; }
.pc-letters td:first-child, .pc-letters th:first-child { padding-right: 0.2rem; width: 1.6rem; }
.pc-letters td:nth-child(2) { font-variant-numeric: tabular-nums; }
.pc-letters td:nth-child(3), .pc-letters td:nth-child(4) { max-width: 13rem; }
.pc-letters tr.pc-open { box-shadow: inset 4px 0 0 var(--st-primary-color, #1d4ed8); }
.pc-letters tr.pc-new { animation: pc-new 2s ease-out; }
@keyframes pc-new { from { background: rgba(37, 99, 235, 0.22); } }
@media (prefers-reduced-motion: reduce) { .pc-letters tr.pc-new { animation: none; } }
@media (max-width: 640px) {
  .pc-letters table, .pc-letters thead, .pc-letters tbody { display: block; }
  .pc-letters thead tr { display: flex; background: var(--st-secondary-background-color, Canvas); }
  .pc-letters thead th:first-child { overflow: visible; flex: 0 0 2rem; padding-left: 0.6rem; }
  .pc-letters thead th:nth-child(n + 3) { display: none; }
  .pc-letters thead th:nth-child(2) { font-size: 0; }
  .pc-letters thead th:nth-child(2)::after { content: "All that are listed"; font-size: 0.8rem; }
  .pc-letters tbody tr { display: grid; grid-template-columns: 2rem 8rem minmax(0, 1fr); padding: 0.4rem 0; border-bottom: 1px solid rgba(128, 128, 128, 0.25); }
  .pc-letters td, .pc-letters td:nth-child(n) { border: 0; padding: 0.08rem 0.5rem 0.08rem 0; max-width: none; width: auto; grid-column: 2 / -1; }
  .pc-letters td:nth-child(1) { grid-column: 1; grid-row: 1 / 5; padding-left: 0.6rem; overflow: visible; text-overflow: clip; }
  .pc-letters td:nth-child(2) { grid-column: 2; grid-row: 1; }
  .pc-letters td:nth-child(3) { grid-column: 3; grid-row: 1; font-weight: 600; }
  .pc-letters td:nth-child(4) { grid-column: 3; grid-row: 3; opacity: 0.8; }
  .pc-letters td:nth-child(5) { grid-column: 2 / -1; grid-row: 2; }
  .pc-letters td:nth-child(6) { grid-column: 2; grid-row: 3; }
  .pc-letters td:nth-child(7) { grid-row: 4; opacity: 0.8; }
}
"""

_JS = """
const make = (name, text, cls) => {
  const node = document.createElement(name)
  if (text !== undefined) node.textContent = text
  if (cls) node.className = cls
  return node
}
const reveal = tries => {
  const inside = document.querySelector('.st-key-pc-inside')
  if (inside) inside.scrollIntoView({ block: 'start' }); else if (tries) setTimeout(reveal, 100, tries - 1)
}
export default function ({ data, parentElement, setStateValue, setTriggerValue }) {
  const box = parentElement.querySelector('.pc-letters')
  const first = !box.pcState
  const state = box.pcState ??= { chosen: new Set(data.chosen), open: data.open, told: data.open, version: data.version, page: data.page }
  box.setAttribute('aria-label', data.alt)
  if (state.version !== data.version) { state.version = data.version; state.chosen.clear() }
  if (state.told !== data.open) state.open = state.told = data.open
  state.tell = () => setStateValue('chosen', { version: state.version, ids: [...state.chosen] })
  state.look = id => {
    state.open = state.open === id ? null : id
    setTriggerValue('look', { id: state.open, at: Date.now() })
    mark()
    if (state.open && innerWidth <= 640) reveal(40)  // below the list there: brought into view when it has come
  }

  let table = box.querySelector('table')
  if (table && table.dataset.columns !== data.columns.join('|')) { table.remove(); table = null }
  if (!table) {
    table = box.appendChild(make('table')); table.dataset.columns = data.columns.join('|')
    const head = table.appendChild(make('thead')).appendChild(make('tr'))
    const all = make('input'); all.type = 'checkbox'; all.setAttribute('aria-label', 'Select all that are listed')
    all.onchange = () => {
      for (const row of table.tBodies[0].rows) all.checked ? state.chosen.add(row.dataset.id) : state.chosen.delete(row.dataset.id)
      state.mark(); state.tell()
    }
    head.appendChild(make('th')).append(all)
    for (const name of data.columns) head.append(make('th', name))
    table.append(make('tbody'))
    box.onkeydown = event => {
      const row = event.target.closest('tbody tr'), step = { ArrowDown: 'nextSibling', ArrowUp: 'previousSibling' }[event.key]
      if (row && step && row[step]) { row[step].querySelector(event.target.matches('input') ? 'input' : '.pc-look').focus(); event.preventDefault() }
    }
  }
  const body = table.tBodies[0], known = new Map([...body.rows].map(row => [row.dataset.id, row]))
  const ids = new Set(data.rows.map(row => row.id))
  const mark = state.mark = () => {
    for (const row of body.rows) {
      row.cells[0].firstChild.checked = state.chosen.has(row.dataset.id)
      row.classList.toggle('pc-open', row.dataset.id === state.open)
      row.cells[1].firstChild.setAttribute('aria-expanded', row.dataset.id === state.open)
    }
    const all = table.tHead.rows[0].cells[0].firstChild, on = [...body.rows].filter(row => state.chosen.has(row.dataset.id)).length
    all.checked = on > 0 && on === body.rows.length
    all.indeterminate = on > 0 && !all.checked
  }
  // What comes in above moves nothing under the pointer: a click must mean what the eye saw.
  const turned = state.page !== data.page
  state.page = data.page
  const still = !turned && (box.matches(':hover') || box.scrollTop > 0)
    ? [...body.rows].find(row => ids.has(row.dataset.id) && row.offsetTop + row.offsetHeight > box.scrollTop + table.tHead.offsetHeight) : null
  const before = still?.offsetTop
  for (const [id, row] of known) if (!ids.has(id)) row.remove()
  let place = body.firstChild
  for (const item of data.rows) {
    let row = known.get(item.id)
    if (!row) {
      row = make('tr'); row.dataset.id = item.id
      if (!first && !turned && known.size) row.className = 'pc-new'
      const check = make('input'); check.type = 'checkbox'; check.setAttribute('aria-label', 'Select ' + item.id)
      check.onchange = () => { check.checked ? state.chosen.add(item.id) : state.chosen.delete(item.id); state.mark(); state.tell() }
      row.appendChild(make('td')).append(check)
      const look = make('button', local(item.at), 'pc-look'); look.type = 'button'; look.title = utc(item.at) + '. Look inside'
      row.appendChild(make('td')).append(look)
      for (const text of item.cells) row.appendChild(make('td', text)).title = text
      row.onclick = event => { if (!event.target.closest('td:first-child') && !String(getSelection())) state.look(item.id) }
    } else item.cells.forEach((text, index) => {
      const cell = row.cells[index + 2]
      if (cell.textContent !== text) cell.textContent = cell.title = text
    })
    if (known.has(item.id) && row.cells[1].firstChild.title !== utc(item.at) + '. Look inside') {
      row.cells[1].firstChild.textContent = local(item.at); row.cells[1].firstChild.title = utc(item.at) + '. Look inside'
    }
    if (row !== place) body.insertBefore(row, place); else place = place.nextSibling
  }
  if (turned) box.scrollTop = 0
  else if (still?.isConnected) box.scrollTop += still.offsetTop - before
  mark()
  if (first && state.open) body.querySelector('.pc-open')?.scrollIntoView({ block: 'nearest' })
}
"""


class DeadLetterRow(NamedTuple):
    """One dead letter: its id, when it died (seconds since 1970), and its other cells as text."""

    id: str
    at: float
    cells: tuple[str, ...]


def letter_list(
    columns: Sequence[str],
    rows: Sequence[DeadLetterRow],
    *,
    key: str,
    version: int,
    page: str,
    open: str | None,
    on_look: Callable[[str | None], None],
    alt: str,
) -> tuple[str, ...]:
    """Draw the list; the ids that are chosen by hand, on whichever page they stood.

    `on_look` hears which dead letter is to be opened. A new `version` drops what was chosen; `page` names the place in the
    list. What was chosen outlives a visit to another page.
    """

    def looked() -> None:
        found = st.session_state[key].get("look")
        if found:
            on_look(found["id"])

    memory = f"{key} of {version}"
    before: tuple[str, ...] = st.session_state.get(memory, ())
    data = {
        "columns": list(columns),
        "rows": [{"id": row.id, "at": row.at, "cells": list(row.cells)} for row in rows],
        "version": version,
        "page": page,
        "open": open,
        "chosen": list(before),
        "alt": alt,
    }
    found = _component()(
        data=data,
        key=key,
        default={"chosen": {"version": version, "ids": list(before)}},
        on_chosen_change=_nothing,
        on_look_change=looked,
    )
    chosen = st.session_state[memory] = _ids(found, version)
    return chosen


def _ids(found: Mapping[str, Any], version: int) -> tuple[str, ...]:
    """What the browser said of this version of the selection; of an older one nothing counts any more."""
    said = found.get("chosen") or {}
    return tuple(said.get("ids") or ()) if said.get("version") == version else ()


def _nothing() -> None:
    """A change of the list reruns its fragment; there is nothing else to do."""


@cache
def _component() -> Any:
    return st.components.v2.component(
        "letter_list", html=_HTML, css=_CSS, js=browser_times.JS + _JS, isolate_styles=False
    )
