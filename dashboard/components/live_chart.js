let loading
// Pages that start with a chart request the script in their head already.
const load = () => window.Plotly ? Promise.resolve(window.Plotly) : (loading ??= new Promise((resolve, reject) => {
  const file = 'PLOTLY_JS', requested = document.querySelector(`script[src$="${file}"]`)
  const script = requested ?? document.createElement('script')
  script.addEventListener('load', () => resolve(window.Plotly))
  script.addEventListener('error', () => { loading = undefined; script.remove(); reject() })
  if (requested) return
  script.src = new URL('app/static/' + file, document.baseURI).href
  document.head.append(script)
}))
// One chart is drawn at a time, so that the browser shows the first while it draws the second.
const queue = []
const runNext = () => {
  try { queue[0]() } finally {
    queue.shift()
    if (queue.length) setTimeout(runNext)
  }
}
const enqueue = draw => { if (queue.push(draw) === 1) runNext() }
// uirevision does not keep the zoom: each refresh moves the range, and Plotly applies a changed range.
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
    plot.pcDragging = true
    const stop = () => setTimeout(() => { plot.pcDragging = false; plot.pcDraw?.() })
    addEventListener('pointerup', stop, { once: true })
    addEventListener('pointercancel', stop, { once: true })
  })
}
// Estimates the rows of the legend. Each row adds its height to the chart, so that a narrow chart stays readable.
const legendRows = (plot, figure) => {
  if (figure.layout.showlegend === false || figure.data.length < 2) return 1
  const longest = Math.max(...figure.data.map(line => (line.name ?? '').length))
  const perRow = Math.max(1, Math.floor((plot.clientWidth - 68) / (44 + 7 * longest)))
  return Math.ceil(figure.data.length / perRow)
}
// Figures are in UTC and are shown in the browser's local time, with the UTC offset in the hover label. The current
// offset applies to the whole chart, so that no hour appears twice when daylight saving time ends.
const offset = () => -new Date().getTimezoneOffset()
const zone = minutes => {
  if (!minutes) return 'UTC'
  const absolute = Math.abs(minutes), rest = absolute % 60
  return 'UTC' + (minutes > 0 ? '+' : '-') + Math.floor(absolute / 60) + (rest ? ':' + String(rest).padStart(2, '0') : '')
}
const UTC = /^\d{4}-\d\d-\d\dT[\d:.]+(\+00:00|Z)$/
const local = (value, minutes) => Array.isArray(value) ? value.map(one => local(one, minutes))
  : typeof value === 'string' && UTC.test(value) ? new Date(Date.parse(value) + minutes * 60000).toISOString().slice(0, -1) : value
const toLocal = figure => {
  const minutes = offset(), withZone = text => text?.replaceAll('UTC', zone(minutes))
  for (const trace of figure.data) {
    trace.x = local(trace.x, minutes)
    if (typeof trace.hovertemplate === 'string') trace.hovertemplate = withZone(trace.hovertemplate)
    trace.uid ??= trace.name // a line hidden in the legend stays hidden when other lines appear or disappear
  }
  for (const shape of [...(figure.layout.shapes ?? []), ...(figure.layout.annotations ?? [])])
    for (const name of ['x', 'x0', 'x1']) if (name in shape) shape[name] = local(shape[name], minutes)
  const axis = figure.layout.xaxis
  if (axis) Object.assign(axis, { range: local(axis.range, minutes), hoverformat: withZone(axis.hoverformat) })
  return figure
}
// Restores the hover label after a redraw, which removes it.
const restoreHover = (plot, Plotly) => {
  const pointer = plot.pcPointer, area = plot.querySelector('.nsewdrag')
  if (!pointer || !area || !plot.matches(':hover')) return
  const box = area.getBoundingClientRect()
  Plotly.Fx.hover(plot, { xpx: pointer.x - box.left, ypx: pointer.y - box.top }, 'xy')
}
const draw = (plot, data, css, Plotly) => {
  const value = name => css.getPropertyValue(name).trim()
  const parsed = JSON.parse(data.spec)
  if (parsed.data.length && data.marks?.length)
    parsed.layout.shapes = [...(parsed.layout.shapes ?? []), ...structuredClone(data.marks)]
  const figure = toLocal(parsed), layout = figure.layout
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
  drawn.then(() => restoreHover(plot, Plotly))
}
export default function ({ data, parentElement }) {
  const plot = parentElement.querySelector('.live-plot')
  const css = getComputedStyle(parentElement.host ?? parentElement)
  plot.setAttribute('role', 'img') // together with its label, because an image without a name is an accessibility error
  plot.setAttribute('aria-label', data.alt)
  plot.style.minHeight ||= data.height + 'px'
  load().then(Plotly => {
    const pending = plot.pcDraw
    plot.pcDraw = () => { plot.pcDraw = null; draw(plot, data, css, Plotly) }
    // A redraw waits until the pointer button is released, because it would abort a drag.
    if (!pending) enqueue(() => { if (!plot.pcDragging && plot.isConnected) plot.pcDraw?.() })
  }).catch(() => { plot.textContent = data.alt + ' (plotly.js could not be loaded)' })
}
