"""A live chart: Plotly redraws in place, so zoom, hover and legend survive each refresh, and it needs no network.

`st.plotly_chart` of Streamlit 1.67 hashes the figure into the element's id, so new data is a new element.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

from producer_core.dashboard.charts.chart import RenderedChart, rendered
from producer_core.dashboard.server.command import PLOTLY_JS

_JS = r"""
let loading
// The page that opens with a chart asks for it in its head already; then it is on its way.
const load = () => window.Plotly ? Promise.resolve(window.Plotly) : (loading ??= new Promise((ok, no) => {
  const file = 'PLOTLY_JS', known = document.querySelector(`script[src$="${file}"]`)
  const script = known ?? document.createElement('script')
  script.addEventListener('load', () => ok(window.Plotly))
  script.addEventListener('error', () => { loading = undefined; script.remove(); no() })
  if (known) return
  script.src = new URL('app/static/' + file, document.baseURI).href
  document.head.append(script)
}))
// One chart at a time, so that the browser shows the first while it draws the second.
const waiting = []
const inTurn = () => {
  try { waiting[0]() } finally {
    waiting.shift()
    if (waiting.length) setTimeout(inTurn)
  }
}
const soon = act => { if (waiting.push(act) === 1) inTurn() }
// uirevision alone keeps no zoom here: the range moves on with each refresh, which Plotly takes for a new wish.
const listen = plot => {
  if (plot.pcListens) return
  plot.pcListens = true
  plot.on('plotly_relayout', event => {
    for (const axis of ['xaxis', 'yaxis']) {
      if (axis + '.range[0]' in event) plot.pcZoom[axis] = [event[axis + '.range[0]'], event[axis + '.range[1]']]
      if (event[axis + '.autorange']) delete plot.pcZoom[axis]
    }
  })
  plot.on('plotly_doubleclick', () => setTimeout(() => { plot.pcZoom = {} }))
  plot.addEventListener('pointermove', event => { plot.pcPointer = { x: event.clientX, y: event.clientY } })
  plot.addEventListener('pointerleave', () => { plot.pcPointer = null })
  plot.addEventListener('pointerdown', () => {
    plot.pcDrags = true
    const over = () => setTimeout(() => { plot.pcDrags = false; plot.pcDraw?.() })
    addEventListener('pointerup', over, { once: true })
    addEventListener('pointercancel', over, { once: true })
  })
}
// About how many rows the legend takes: each gets its own height, so that a narrow chart stays readable.
const legendRows = (plot, figure) => {
  if (figure.layout.showlegend === false || figure.data.length < 2) return 1
  const longest = Math.max(...figure.data.map(line => (line.name ?? '').length))
  const perRow = Math.max(1, Math.floor((plot.clientWidth - 68) / (44 + 7 * longest)))
  return Math.ceil(figure.data.length / perRow)
}
// Figures are in UTC; a viewer reads his own time, with its distance from UTC under the pointer. One distance for the
// whole chart, that of now, so that no hour comes twice where clocks are put back.
const offset = () => -new Date().getTimezoneOffset()
const zone = minutes => {
  if (!minutes) return 'UTC'
  const far = Math.abs(minutes), rest = far % 60
  return 'UTC' + (minutes > 0 ? '+' : '-') + Math.floor(far / 60) + (rest ? ':' + String(rest).padStart(2, '0') : '')
}
const UTC = /^\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)$/
const local = (value, minutes) => Array.isArray(value) ? value.map(one => local(one, minutes))
  : typeof value === 'string' && UTC.test(value) ? new Date(Date.parse(value) + minutes * 60000).toISOString().slice(0, -1) : value
const toLocal = figure => {
  const minutes = offset(), named = text => text?.replaceAll('UTC', zone(minutes))
  for (const trace of figure.data) {
    trace.x = local(trace.x, minutes)
    if (typeof trace.hovertemplate === 'string') trace.hovertemplate = named(trace.hovertemplate)
    trace.uid ??= trace.name // what the legend hid stays hidden, whatever comes or goes beside it
  }
  for (const shape of [...(figure.layout.shapes ?? []), ...(figure.layout.annotations ?? [])])
    for (const name of ['x', 'x0', 'x1']) if (name in shape) shape[name] = local(shape[name], minutes)
  const axis = figure.layout.xaxis
  if (axis) Object.assign(axis, { range: local(axis.range, minutes), hoverformat: named(axis.hoverformat) })
  return figure
}
// A pointer that rests on the chart keeps its label: drawing again takes it away, so it is put back where it was.
const keepHover = (plot, Plotly) => {
  const at = plot.pcPointer, lines = plot.querySelector('.nsewdrag')
  if (!at || !lines || !plot.matches(':hover')) return
  const box = lines.getBoundingClientRect()
  Plotly.Fx.hover(plot, { xpx: at.x - box.left, ypx: at.y - box.top }, 'xy')
}
const draw = (plot, data, css, Plotly) => {
  const value = name => css.getPropertyValue(name).trim()
  const figure = toLocal(JSON.parse(data.spec)), layout = figure.layout
  layout.template = undefined
  const text = value('--st-text-color') || 'currentColor'
  const grid = value('--st-border-color-light') || value('--st-border-color') || 'rgba(128,128,128,0.2)'
  layout.paper_bgcolor = layout.plot_bgcolor = 'rgba(0,0,0,0)'
  layout.font = { color: text, family: value('--st-font') || 'sans-serif', size: 12 }
  layout.hoverlabel = { bgcolor: value('--st-background-color') || '#fff', font: { color: text } }
  layout.colorway = value('--st-chart-categorical-colors').split(',').map(c => c.trim()).filter(Boolean)
  layout.height = data.height + 19 * (legendRows(plot, figure) - 1)
  plot.style.minHeight = layout.height + 'px'
  for (const axis of ['xaxis', 'yaxis']) Object.assign(layout[axis] ??= {}, { gridcolor: grid, linecolor: grid })
  if (plot.pcRevision !== layout.uirevision) { plot.pcRevision = layout.uirevision; plot.pcZoom = {} }
  for (const [axis, range] of Object.entries(plot.pcZoom)) Object.assign(layout[axis], { range: [...range], autorange: false })
  const drawn = Plotly.react(plot, figure.data, layout, { responsive: true, displaylogo: false, displayModeBar: false })
  listen(plot)
  drawn.then(() => keepHover(plot, Plotly))
}
export default function ({ data, parentElement }) {
  const plot = parentElement.querySelector('.live-plot')
  const css = getComputedStyle(parentElement.host ?? parentElement)
  plot.setAttribute('role', 'img') // with its name, never a moment without
  plot.setAttribute('aria-label', data.alt)
  plot.style.minHeight ||= data.height + 'px'
  load().then(Plotly => {
    const due = plot.pcDraw
    plot.pcDraw = () => { plot.pcDraw = null; draw(plot, data, css, Plotly) }
    // While a button is held it waits until that is let go: a drag that is drawn over ends nowhere.
    if (!due) soon(() => { if (!plot.pcDrags && plot.isConnected) plot.pcDraw?.() })
  }).catch(() => { plot.textContent = data.alt + ' (plotly.js could not be loaded)' })
}
"""


@cache
def _component() -> Any:
    return st.components.v2.component(
        "live_plotly",
        html="<div class='live-plot' style='width:100%'></div>",
        js=_JS.replace("PLOTLY_JS", PLOTLY_JS),
        isolate_styles=False,
    )


def live_plotly(figure: Any, *, key: str, alt: str) -> None:
    """Draw a Plotly figure, or one that is drawn already, under a stable key; `alt` says in words what it shows."""
    spec, height = figure if isinstance(figure, RenderedChart) else rendered(figure)
    _component()(data={"spec": spec, "alt": alt, "height": height}, key=key)
