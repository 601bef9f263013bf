// Makes the rows of a table in a tree selectable by their data-key: one by a click, any number by checkboxes.
const findBody = nodes => {
  for (const node of nodes) {
    const body = node[0] === 'tbody' ? node : Array.isArray(node) && findBody(node[2])
    if (body) return body
  }
}
const scrollToDetails = (selector, tries) => {
  const details = document.querySelector(selector)
  if (details) details.scrollIntoView({ block: 'start' }); else if (tries) setTimeout(scrollToDetails, 100, selector, tries - 1)
}
const ROW = 'tbody tr'
const selectRows = (root, data, browser) => {
  const first = !root.pcState
  const state = root.pcState ??= start(root, data.selection)
  const { version, page, current } = data.selection
  const turned = state.page !== page
  if (state.version !== version) state.checked.clear()
  if (state.received !== current) state.current = current
  Object.assign(state, { data, browser, version, page, received: current })
  if (first) update(root, data.tree); else keepPlace(root, turned, () => redraw(root, state, turned))
  mark(root, state)
  if (first && data.selection.details) root.querySelector('.pc-selected')?.scrollIntoView({ block: 'nearest' })
}
const start = (root, { version, page, current, checked }) => {
  const state = { version, page, current, received: current, checked: new Set(checked), expanded: false }
  root.onclick = event => {
    if (event.target.closest('.pc-toggle')) { state.expanded = !state.expanded; mark(root, state) }
    const row = event.target.closest(ROW)
    const repeated = event.detail > 1 // the second click of a double click
    if (row && !repeated && !event.target.closest('.pc-check') && !String(getSelection())) toggle(root, state, row.dataset.key)
  }
  root.onchange = ({ target }) => {
    for (const row of target.closest('thead') ? root.querySelectorAll(ROW) : [target.closest(ROW)])
      target.checked ? state.checked.add(row.dataset.key) : state.checked.delete(row.dataset.key)
    mark(root, state)
    state.browser.setStateValue('checked', { version: state.version, ids: [...state.checked] })
  }
  root.onkeydown = event => {
    const step = { ArrowDown: 'nextElementSibling', ArrowUp: 'previousElementSibling' }[event.key]
    let row = step && event.target.closest(ROW)?.[step]
    while (row?.hidden) row = row[step]
    if (!row) return
    row.querySelector(event.target.matches('input') ? 'input' : 'button').focus()
    event.preventDefault()
    if (state.current && state.data.selection.details) toggle(root, state, row.dataset.key) // open details follow the arrow keys
  }
  root.onmouseleave = () => { if (!state.data.selection.scrolls) { redraw(root, state); mark(root, state) } }
  return state
}
const toggle = (root, state, key) => {
  const { details } = state.data.selection
  state.current = state.current === key ? null : key
  state.browser.setTriggerValue('current', { id: state.current, at: Date.now() })
  mark(root, state)
  if (!state.current || !details) return
  if (innerWidth <= 640) return scrollToDetails(details, 40) // on a phone the details are below the list
  const box = root.firstElementChild, reduced = matchMedia('(prefers-reduced-motion: reduce)').matches
  if (box.getBoundingClientRect().top > 0.3 * innerHeight) box.scrollIntoView({ behavior: reduced ? 'auto' : 'smooth', block: 'start' })
}
const redraw = (root, { data }, turned) => {
  const known = new Map([...root.querySelectorAll(ROW)].map((row, index) => [row.dataset.key, index]))
  const body = findBody(data.tree), position = node => known.get(keyOf(node)) ?? known.size, rows = body[2]
  // The order does not change while the pointer is over the list, so that a click hits the intended row.
  if (!data.selection.scrolls && root.matches(':hover')) body[2] = [...rows].sort((a, b) => position(a) - position(b))
  update(root, data.tree)
  body[2] = rows
  if (known.size && !turned)
    for (const row of root.querySelectorAll(ROW)) if (!known.has(row.dataset.key)) row.classList.add('pc-new')
}
// New rows above do not move the row under the pointer, so that a click hits the intended row.
const keepPlace = (root, turned, draw) => {
  const box = root.firstElementChild
  const head = box.querySelector('thead').offsetHeight, keep = !turned && (box.matches(':hover') || box.scrollTop > 0)
  const visible = keep ? [...root.querySelectorAll(ROW)].filter(row => row.offsetTop + row.offsetHeight > box.scrollTop + head) : []
  const before = new Map(visible.map(row => [row, row.offsetTop]))
  draw()
  const anchor = visible.find(row => row.isConnected)
  if (turned) box.scrollTop = 0
  else if (anchor) box.scrollTop += anchor.offsetTop - before.get(anchor)
}
const mark = (root, { current, checked, expanded, data }) => {
  const rows = [...root.querySelectorAll(ROW)], { collapsed } = data.selection
  rows.forEach((row, index) => {
    const on = row.dataset.key === current, button = row.querySelector('button'), box = row.querySelector('.pc-check input')
    row.classList.toggle('pc-selected', on)
    row.hidden = Boolean(collapsed) && !expanded && index >= collapsed && !on
    button.setAttribute(button.hasAttribute('aria-pressed') ? 'aria-pressed' : 'aria-expanded', on)
    if (box) box.checked = checked.has(row.dataset.key)
  })
  const all = root.querySelector('thead .pc-check input'), count = rows.filter(row => checked.has(row.dataset.key)).length
  if (all) { all.checked = count > 0 && count === rows.length; all.indeterminate = count > 0 && !all.checked }
  const texts = root.querySelector('.pc-toggle')?.children
  if (texts) { texts[0].hidden = expanded; texts[1].hidden = !expanded }
}
