// Handles the keys of a page with a selectable table. Each action presses a button that is on the page.
const TYPING = 'input:not([type=checkbox]), textarea, select, [contenteditable=true], [role=combobox], [role=listbox], [role=option], [role=menu]'
const OWN_ARROWS = '.pc-table tbody tr, [role=radio], [role=slider], [role=tab]'
const shown = element => element && !element.disabled && element.offsetParent !== null
const press = selectors => { const found = selectors.flatMap(one => [...document.querySelectorAll(one)]).find(shown); found?.click(); return Boolean(found) }
const table = data => document.querySelector(data.table)
const currentRow = data => document.activeElement?.closest(`${data.table} tbody tr`) ?? document.querySelector(`${data.table} .pc-selected`)
// A button is pressed only once the server has drawn it for the rows that are checked now, or for the row that is open now.
const act = (data, name) => {
  const { checked, current } = table(data)?.parentElement.pcState ?? {}
  if (!checked || checked.size !== data.selected) return
  if (data.selected) press(data.selection[name])
  else if (current === data.current) press(data.record[name])
}
const step = (data, key) => {
  const next = key === 'ArrowDown'
  if (document.querySelector(data.details)) return press([next ? data.next : data.previous])
  const row = document.querySelector(`${data.table} .pc-selected, ${data.table} tbody tr`)
  row?.querySelector('.pc-row-button')?.focus()
  return Boolean(row)
}
const handle = (data, event) => {
  switch (event.key) {
    case 'r': case 'c': if (!event.repeat) act(data, event.key); return true
    case 'x': if (!event.repeat) currentRow(data)?.querySelector('.pc-check input')?.click(); return true
    case '?': document.querySelector(data.help)?.scrollIntoView({ block: 'center' }); press([data.help]); return true
    case 'ArrowDown': case 'ArrowUp': return !event.target.closest(OWN_ARROWS) && step(data, event.key)
    case 'Escape': return !document.querySelector('[data-testid=stPopoverBody]') && press([data.close])
  }
}
export default function ({ data, parentElement }) {
  const root = parentElement.querySelector('.pc-shortcuts')
  const listening = root.pcData
  root.pcData = data
  root.dataset.selected = data.selected
  root.dataset.current = data.current ?? ''
  if (listening) return
  const listen = event => {
    if (!root.isConnected) return removeEventListener('keydown', listen, true)
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || !event.target.closest || event.target.closest(TYPING)) return
    if (handle(root.pcData, event)) { event.preventDefault(); event.stopImmediatePropagation() } // Streamlit uses r and c as well
  }
  addEventListener('keydown', listen, true)
}
