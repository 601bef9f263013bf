// Uses local() and utc() from browser_times.js.
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
