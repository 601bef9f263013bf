"""List dead letters that are selected by id, so that a selection stays correct while rows appear and disappear.

`st.dataframe` reports the positions of selected rows, which are other dead letters after the next refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import streamlit as st

from producer_core.dashboard.components import browser_times

_HTML = "<div class='pc-dead-letters' role='region' tabindex='0'></div>"

_CSS = """
.pc-dead-letters { max-height: max(20rem, 58vh); overflow-anchor: none; }
.pc-dead-letters td { unicode-bidi: isolate; }
.pc-dead-letters td:first-child, .pc-dead-letters th:first-child { padding-right: 0.2rem; width: 1.6rem; }
.pc-dead-letters td:nth-child(2) { font-variant-numeric: tabular-nums; }
.pc-dead-letters td:nth-child(3), .pc-dead-letters td:nth-child(4) { max-width: 13rem; }
.pc-dead-letters tr.pc-open { box-shadow: inset 4px 0 0 var(--st-primary-color, #1d4ed8); }
.pc-dead-letters tr.pc-new { animation: pc-new 2s ease-out; }
@keyframes pc-new { from { background: rgba(37, 99, 235, 0.22); } }
@media (prefers-reduced-motion: reduce) { .pc-dead-letters tr.pc-new { animation: none; } }
@media (max-width: 640px) {
  .pc-dead-letters table, .pc-dead-letters thead, .pc-dead-letters tbody { display: block; }
  .pc-dead-letters thead tr { display: flex; background: var(--st-secondary-background-color, Canvas); }
  .pc-dead-letters thead th:first-child { overflow: visible; flex: 0 0 2rem; padding-left: 0.6rem; }
  .pc-dead-letters thead th:nth-child(n + 3) { display: none; }
  .pc-dead-letters thead th:nth-child(2) { font-size: 0; }
  .pc-dead-letters thead th:nth-child(2)::after { content: "All on this page"; font-size: 0.8rem; }
  .pc-dead-letters tbody tr { display: grid; grid-template-columns: 2rem 8rem minmax(0, 1fr); padding: 0.4rem 0; border-bottom: 1px solid rgba(128, 128, 128, 0.25); }
  .pc-dead-letters td, .pc-dead-letters td:nth-child(n) { border: 0; padding: 0.08rem 0.5rem 0.08rem 0; max-width: none; width: auto; grid-column: 2 / -1; }
  .pc-dead-letters td:nth-child(1) { grid-column: 1; grid-row: 1 / 5; padding-left: 0.6rem; overflow: visible; text-overflow: clip; }
  .pc-dead-letters td:nth-child(2) { grid-column: 2; grid-row: 1; }
  .pc-dead-letters td:nth-child(3) { grid-column: 3; grid-row: 1; font-weight: 600; }
  .pc-dead-letters td:nth-child(4) { grid-column: 3; grid-row: 3; opacity: 0.8; }
  .pc-dead-letters td:nth-child(5) { grid-column: 2 / -1; grid-row: 2; }
  .pc-dead-letters td:nth-child(6) { grid-column: 2; grid-row: 3; }
  .pc-dead-letters td:nth-child(7) { grid-row: 4; opacity: 0.8; }
}
"""

_JS = """
const make = (name, text, cls) => {
  const node = document.createElement(name)
  if (text !== undefined) node.textContent = text
  if (cls) node.className = cls
  return node
}
const scrollToDetails = tries => {
  const details = document.querySelector('.st-key-pc-dead-letter')
  if (details) details.scrollIntoView({ block: 'start' }); else if (tries) setTimeout(scrollToDetails, 100, tries - 1)
}
export default function ({ data, parentElement, setStateValue, setTriggerValue }) {
  const box = parentElement.querySelector('.pc-dead-letters')
  const first = !box.pcState
  const state = box.pcState ??= { selected: new Set(data.selected), open: data.open, received: data.open, version: data.version, page: data.page }
  box.setAttribute('aria-label', data.alt)
  if (state.version !== data.version) { state.version = data.version; state.selected.clear() }
  if (state.received !== data.open) state.open = state.received = data.open
  state.report = () => setStateValue('selected', { version: state.version, ids: [...state.selected] })
  state.toggle = id => {
    state.open = state.open === id ? null : id
    setTriggerValue('open', { id: state.open, at: Date.now() })
    mark()
    if (state.open && innerWidth <= 640) scrollToDetails(40)  // on a phone the details are below the list
  }

  let table = box.querySelector('table')
  if (table && table.dataset.columns !== data.columns.join('|')) { table.remove(); table = null }
  if (!table) {
    table = box.appendChild(make('table')); table.dataset.columns = data.columns.join('|')
    const head = table.appendChild(make('thead')).appendChild(make('tr'))
    const all = make('input'); all.type = 'checkbox'; all.setAttribute('aria-label', 'Select all on this page')
    all.onchange = () => {
      for (const row of table.tBodies[0].rows) all.checked ? state.selected.add(row.dataset.id) : state.selected.delete(row.dataset.id)
      state.mark(); state.report()
    }
    head.appendChild(make('th')).append(all)
    for (const name of data.columns) head.append(make('th', name))
    table.append(make('tbody'))
    box.onkeydown = event => {
      const row = event.target.closest('tbody tr'), step = { ArrowDown: 'nextSibling', ArrowUp: 'previousSibling' }[event.key]
      if (row && step && row[step]) { row[step].querySelector(event.target.matches('input') ? 'input' : '.pc-open-button').focus(); event.preventDefault() }
    }
  }
  const body = table.tBodies[0], rows = new Map([...body.rows].map(row => [row.dataset.id, row]))
  const ids = new Set(data.rows.map(row => row.id))
  const mark = state.mark = () => {
    for (const row of body.rows) {
      row.cells[0].firstChild.checked = state.selected.has(row.dataset.id)
      row.classList.toggle('pc-open', row.dataset.id === state.open)
      row.cells[1].firstChild.setAttribute('aria-expanded', row.dataset.id === state.open)
    }
    const all = table.tHead.rows[0].cells[0].firstChild, count = [...body.rows].filter(row => state.selected.has(row.dataset.id)).length
    all.checked = count > 0 && count === body.rows.length
    all.indeterminate = count > 0 && !all.checked
  }
  // New rows above do not move the row under the pointer, so that a click hits the intended dead letter.
  const turned = state.page !== data.page
  state.page = data.page
  const anchor = !turned && (box.matches(':hover') || box.scrollTop > 0)
    ? [...body.rows].find(row => ids.has(row.dataset.id) && row.offsetTop + row.offsetHeight > box.scrollTop + table.tHead.offsetHeight) : null
  const before = anchor?.offsetTop
  for (const [id, row] of rows) if (!ids.has(id)) row.remove()
  let next = body.firstChild
  for (const item of data.rows) {
    let row = rows.get(item.id)
    if (!row) {
      row = make('tr'); row.dataset.id = item.id
      if (!first && !turned && rows.size) row.className = 'pc-new'
      const check = make('input'); check.type = 'checkbox'; check.setAttribute('aria-label', 'Select ' + item.id)
      check.onchange = () => { check.checked ? state.selected.add(item.id) : state.selected.delete(item.id); state.mark(); state.report() }
      row.appendChild(make('td')).append(check)
      const button = make('button', local(item.at), 'pc-open-button'); button.type = 'button'; button.title = utc(item.at) + '. Show details'
      row.appendChild(make('td')).append(button)
      for (const text of item.cells) row.appendChild(make('td', text)).title = text
      row.onclick = event => { if (!event.target.closest('td:first-child') && !String(getSelection())) state.toggle(item.id) }
    } else item.cells.forEach((text, index) => {
      const cell = row.cells[index + 2]
      if (cell.textContent !== text) cell.textContent = cell.title = text
    })
    if (rows.has(item.id) && row.cells[1].firstChild.title !== utc(item.at) + '. Show details') {
      row.cells[1].firstChild.textContent = local(item.at); row.cells[1].firstChild.title = utc(item.at) + '. Show details'
    }
    if (row !== next) body.insertBefore(row, next); else next = next.nextSibling
  }
  if (turned) box.scrollTop = 0
  else if (anchor?.isConnected) box.scrollTop += anchor.offsetTop - before
  mark()
  if (first && state.open) body.querySelector('.pc-open')?.scrollIntoView({ block: 'nearest' })
}
"""


class DeadLetterRow(NamedTuple):
    """Describe one dead letter: its id, the time of its failure in seconds since 1970, and its other cells as text."""

    id: str
    at: float
    cells: tuple[str, ...]


def dead_letter_list(
    columns: Sequence[str],
    rows: Sequence[DeadLetterRow],
    *,
    key: str,
    version: int,
    page: str,
    open: str | None,
    on_open: Callable[[str | None], None],
    alt: str,
) -> tuple[str, ...]:
    """Draw the list and return the ids of the selected dead letters, including those on other pages of the list.

    `on_open` is called with the id of the dead letter to open, or None. A new `version` clears the selection. `page`
    identifies the page of the list. The selection survives a visit to another page of the dashboard.
    """

    def opened() -> None:
        found = st.session_state[key].get("open")
        if found:
            on_open(found["id"])

    saved = f"{key} of {version}"
    before: tuple[str, ...] = st.session_state.get(saved, ())
    data = {
        "columns": list(columns),
        "rows": [{"id": row.id, "at": row.at, "cells": list(row.cells)} for row in rows],
        "version": version,
        "page": page,
        "open": open,
        "selected": list(before),
        "alt": alt,
    }
    found = _component()(
        data=data,
        key=key,
        default={"selected": {"version": version, "ids": list(before)}},
        on_selected_change=_no_callback,
        on_open_change=opened,
    )
    selected = st.session_state[saved] = _ids(found, version)
    return selected


def _ids(found: Mapping[str, Any], version: int) -> tuple[str, ...]:
    """Return the ids that the browser reports for this version; the selection of an older version is void."""
    selection = found.get("selected") or {}
    return tuple(selection.get("ids") or ()) if selection.get("version") == version else ()


def _no_callback() -> None:
    """Do nothing: Streamlit reruns the fragment after a change of the selection."""


@cache
def _component() -> Any:
    return st.components.v2.component(
        "dead_letter_list", html=_HTML, css=_CSS, js=browser_times.JS + _JS, isolate_styles=False
    )
