// Uses local() and utc() from browser_times.js.
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
