"""A list of dead letters, chosen by their ids: rows may come and go under a click, and no other letter is meant.

`st.dataframe` reports the positions of selected rows, which are other letters after the next refresh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import streamlit as st

_HTML = "<div class='pc-letters' role='region' tabindex='0'></div>"

_JS = """
const make = (name, text, cls) => {
  const node = document.createElement(name)
  if (text !== undefined) node.textContent = text
  if (cls) node.className = cls
  return node
}
export default function ({ data, parentElement, setStateValue }) {
  const box = parentElement.querySelector('.pc-letters')
  const state = box.pcState ??= { chosen: new Set(), open: null, version: data.version }
  box.setAttribute('aria-label', data.alt)
  const ids = new Set(data.rows.map(row => row.id))
  const before = state.chosen.size
  if (state.version !== data.version) { state.version = data.version; state.chosen.clear() }
  for (const id of [...state.chosen]) if (!ids.has(id)) state.chosen.delete(id)
  state.tell = () => setStateValue('chosen', [...state.chosen])
  state.look = id => { state.open = state.open === id ? null : id; setStateValue('open', state.open); mark() }
  if (state.chosen.size !== before) state.tell()

  let table = box.querySelector('table')
  if (!table) {
    table = box.appendChild(make('table'))
    const head = table.appendChild(make('thead')).appendChild(make('tr'))
    const all = make('input'); all.type = 'checkbox'; all.setAttribute('aria-label', 'Select all that are listed')
    all.onchange = () => {
      for (const row of table.tBodies[0].rows) all.checked ? state.chosen.add(row.dataset.id) : state.chosen.delete(row.dataset.id)
      mark(); state.tell()
    }
    head.appendChild(make('th')).append(all)
    for (const name of data.columns) head.append(make('th', name))
    table.append(make('tbody'))
  }
  const body = table.tBodies[0], known = new Map([...body.rows].map(row => [row.dataset.id, row]))
  const mark = () => {
    for (const row of body.rows) {
      row.cells[0].firstChild.checked = state.chosen.has(row.dataset.id)
      row.classList.toggle('pc-open', row.dataset.id === state.open)
    }
    const all = table.tHead.rows[0].cells[0].firstChild
    all.checked = body.rows.length > 0 && state.chosen.size === body.rows.length
    all.indeterminate = state.chosen.size > 0 && !all.checked
  }
  for (const [id, row] of known) if (!ids.has(id)) row.remove()
  let place = body.firstChild
  for (const item of data.rows) {
    let row = known.get(item.id)
    if (!row) {
      row = make('tr'); row.dataset.id = item.id
      const check = make('input'); check.type = 'checkbox'; check.setAttribute('aria-label', 'Select ' + item.id)
      check.onchange = () => { check.checked ? state.chosen.add(item.id) : state.chosen.delete(item.id); mark(); state.tell() }
      row.appendChild(make('td')).append(check)
      item.cells.forEach((text, index) => {
        const cell = row.appendChild(make('td'))
        if (index) { cell.textContent = cell.title = text; return }
        const look = make('button', text, 'pc-look'); look.type = 'button'; look.title = 'Look inside'
        cell.append(look)
      })
      row.onclick = event => { if (!event.target.closest('td:first-child')) state.look(item.id) }
    } else item.cells.forEach((text, index) => {
      const cell = index ? row.cells[index + 1] : row.cells[1].firstChild
      if (cell.textContent !== text) { cell.textContent = text; if (index) cell.title = text }
    })
    if (row !== place) body.insertBefore(row, place); else place = place.nextSibling
  }
  mark()
}
"""


class Row(NamedTuple):
    """One letter: its id, and its cells as text."""

    id: str
    cells: tuple[str, ...]


class Chosen(NamedTuple):
    """What a person has chosen: letters by id, and the one to look into."""

    ids: tuple[str, ...]
    open: str | None


def letter_list(columns: Sequence[str], rows: Sequence[Row], *, key: str, version: int, alt: str) -> Chosen:
    """Draw the list; a new `version` drops what was chosen."""
    data = {
        "columns": list(columns),
        "rows": [{"id": row.id, "cells": list(row.cells)} for row in rows],
        "version": version,
        "alt": alt,
    }
    found = _component()(
        data=data,
        key=key,
        default={"chosen": [], "open": None},
        on_chosen_change=_nothing,
        on_open_change=_nothing,
    )
    return _chosen(found, {row.id for row in rows})


def _chosen(found: Mapping[str, Any], listed: set[str]) -> Chosen:
    return Chosen(tuple(one for one in found.get("chosen") or () if one in listed), found.get("open"))


def _nothing() -> None:
    """A change of the list reruns its fragment; there is nothing else to do."""


@cache
def _component() -> Any:
    return st.components.v2.component("letter_list", html=_HTML, js=_JS, isolate_styles=False)
