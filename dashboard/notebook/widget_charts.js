// The charts of the widget. The kernel sends lines and axes as values; the time axis is in the browser's zone. The widget
// puts this file before widget.js.
const WIDTH = 240, HEIGHT = 92, TREND_WIDTH = 96, TREND_HEIGHT = 24, TREND_BARS = 16, TICKS = 3
const SPACINGS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 259200, 604800]

const clock = seconds => new Date(seconds * 1000).toLocaleTimeString([], { hourCycle: 'h23' })
const drawing = (parent, width, height, name) => {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
  if (name) svg.setAttribute('class', name)
  svg.setAttribute('role', 'img')
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`)
  svg.setAttribute('preserveAspectRatio', 'none')
  parent.append(svg)
  return svg
}
const shape = (svg, tag, attributes) => {
  const node = document.createElementNS(svg.namespaceURI, tag)
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value)
  svg.append(node)
}
const compact = value => value >= 100 ? Math.round(value).toLocaleString('en') : `${+value.toFixed(1)}`
const FORMATS = {
  rate: value => `${compact(value)}/s`,
  percent: value => `${value < 10 ? +value.toFixed(2) : +value.toFixed(1)}%`,
  milliseconds: value => value >= 1000 ? `${+(value / 1000).toFixed(1)} s` : value >= 10 ? `${Math.round(value)} ms` : `${+value.toFixed(1)} ms`,
}
const share = ({ low, high, log }, value) => {
  const of = log ? one => Math.log10(Math.max(one, low)) : one => one
  return (of(value) - of(low)) / ((of(high) - of(low)) || 1)
}
const pathOf = (values, axis) => {
  const step = WIDTH / Math.max(1, values.length), runs = []
  let run = null
  values.forEach((value, index) => {
    if (value === null) { run = null; return }
    if (!run) runs.push(run = [])
    run.push(`${((index + 0.5) * step).toFixed(1)} ${(HEIGHT * (1 - share(axis, value))).toFixed(1)}`)
  })
  return runs.map(one => one.length > 1 ? `M${one.join('L')}` : `M${one[0]}h${Math.max(step / 2, 4).toFixed(1)}`).join('')
}
const timeTicks = (since, until) => {
  const spacing = SPACINGS.find(one => (until - since) / one <= TICKS) ?? SPACINGS.at(-1)
  const shift = -60 * new Date(since * 1000).getTimezoneOffset(), ticks = []
  const text = at => spacing < 60 ? clock(at) : spacing < 43200 ? clock(at).slice(0, -3)
    : new Date(at * 1000).toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })
  for (let at = Math.ceil((since + shift) / spacing) * spacing - shift; at <= until; at += spacing) ticks.push([at, text(at)])
  return ticks
}
const drawTrend = (svg, counts) => {
  const most = Math.max(1, ...counts), slots = Math.max(counts.length, TREND_BARS), width = TREND_WIDTH / slots
  svg.replaceChildren()
  counts.forEach((count, index) => {
    if (!count) return
    const height = 3 + (TREND_HEIGHT - 3) * count / most
    shape(svg, 'rect', { x: (slots - counts.length + index) * width, y: TREND_HEIGHT - height, width: Math.max(width - 0.6, 1), height })
  })
}

