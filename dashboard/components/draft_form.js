// Text fields that report their texts while the user types. The texts stay in the page when the connection is cut or the form
// is drawn anew, and are reported again until the server has saved them.
const states = new Map() // by form: Streamlit can replace the elements, but loads this module once
const start = form => {
  const state = { client: crypto.getRandomValues(new Uint32Array(4)).join('-'), number: 0, stamp: 0, timer: 0, wait: 0, typed: false, texts: {}, focused: null }
  states.set(form, state)
  return state
}
const field = ({ name, label, rows, placeholder }, state) => {
  const box = document.createElement('label')
  box.append(Object.assign(document.createElement('span'), { textContent: label }))
  const input = document.createElement(rows > 1 ? 'textarea' : 'input')
  Object.assign(input, { name, placeholder, spellcheck: false, autocomplete: 'off' })
  if (rows > 1) input.rows = rows; else input.type = 'text'
  input.addEventListener('input', () => type(state, input))
  input.addEventListener('focus', () => { state.focused = input })
  input.addEventListener('blur', () => {
    // The removal of an element ends its focus too, while it still counts as connected.
    setTimeout(() => { if (state.focused === input && input.isConnected && document.activeElement !== input) state.focused = null })
    if (state.typed) report(state)
  })
  box.append(input)
  return box
}
const type = (state, { name, value }) => {
  state.texts[name] = value
  state.typed = true
  state.wait = 5 * state.data.delay
  reportIn(state, state.data.delay)
}
const reportIn = (state, delay) => { clearTimeout(state.timer); state.timer = setTimeout(() => report(state), delay) }
// A repeated report keeps its number, so that a session saves it once.
const report = state => {
  if (!state.root.isConnected) return // the form reports when it is drawn again
  if (state.typed) state.number += 1
  state.typed = false
  reportIn(state, state.wait)
  state.wait = Math.min(2 * state.wait, 60_000)
  state.setStateValue('typed', { form: state.data.form, client: state.client, number: state.number, stamp: state.stamp, texts: { ...state.texts } })
}
// Return whether the server's texts include all that was typed here, or replace it because another page saved later.
const isSaved = ({ client, number, stamp, typed }, data) =>
  !typed && (data.client === client ? data.number >= number : number === 0 || data.stamp !== stamp)
const write = (root, texts) => {
  for (const input of root.querySelectorAll('input, textarea')) if (input.value !== texts[input.name]) input.value = texts[input.name]
}
// Return the focus to where the user typed, unless it is elsewhere by now.
const focusAgain = (root, before) => {
  const input = [...root.querySelectorAll('input, textarea')].find(one => one.name === before?.name)
  if (!input || document.activeElement !== document.body) return
  input.focus({ preventScroll: true })
  input.setSelectionRange(before.selectionStart, before.selectionEnd)
}
export default function ({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector('.pc-draft-form')
  const state = states.get(data.form) ?? start(data.form)
  const fields = JSON.stringify([data.form, data.fields.map(({ name, label, rows }) => [name, label, rows])])
  const isNew = root.pcFields !== fields
  const server = Object.fromEntries(data.fields.map(({ name, text }) => [name, text]))
  Object.assign(state, { data, root, setStateValue })
  if (isNew) root.replaceChildren(...data.fields.map(one => field(one, state)))
  root.pcFields = fields
  const saved = isSaved(state, data)
  state.texts = saved ? server : { ...server, ...state.texts }
  state.stamp = data.stamp
  write(root, state.texts)
  if (saved) clearTimeout(state.timer)
  else if (isNew) {
    reportIn(state, data.delay)
    focusAgain(root, state.focused)
  }
}
