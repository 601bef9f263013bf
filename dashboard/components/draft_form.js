// Text fields that report their texts while the user types. The texts stay in the page when the connection is cut, and are
// reported again until the server has saved them.
const field = ({ name, label, rows, placeholder }, state) => {
  const box = document.createElement('label')
  box.append(Object.assign(document.createElement('span'), { textContent: label }))
  const input = document.createElement(rows > 1 ? 'textarea' : 'input')
  Object.assign(input, { name, placeholder, spellcheck: false, autocomplete: 'off' })
  if (rows > 1) input.rows = rows; else input.type = 'text'
  input.addEventListener('input', () => { clearTimeout(state.timer); state.timer = setTimeout(() => report(state), state.data.delay) })
  input.addEventListener('blur', () => { if (state.timer) report(state) })
  box.append(input)
  return box
}
const inputs = state => [...state.root.querySelectorAll('input, textarea')]
const texts = state => Object.fromEntries(inputs(state).map(input => [input.name, input.value]))
const report = state => {
  clearTimeout(state.timer)
  state.timer = 0
  state.number += 1
  state.browser.setStateValue('typed', { form: state.data.form, client: state.client, number: state.number, stamp: state.stamp, texts: texts(state) })
}
const write = (state, fields) => {
  for (const { name, text } of fields) {
    const input = inputs(state).find(one => one.name === name)
    if (input && input.value !== text) input.value = text
  }
}
const start = (root, data) => {
  const state = { root, data, number: 0, timer: 0, client: crypto.getRandomValues(new Uint32Array(4)).join('-'), names: '' }
  root.pcState = state
  return state
}
export default function ({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector('.pc-draft-form')
  const names = JSON.stringify([data.form, data.fields.map(({ name, label, rows }) => [name, label, rows])])
  const state = root.pcState?.names === names ? root.pcState : start(root, data)
  const first = state.names !== names
  Object.assign(state, { data, browser: { setStateValue }, names })
  if (first) root.replaceChildren(...data.fields.map(one => field(one, state)))
  const own = data.client === state.client
  if (first || (!own && data.stamp !== state.stamp && !state.timer)) write(state, data.fields)
  const unsaved = own ? data.number < state.number : data.stamp === state.stamp && state.number > 0
  state.stamp = data.stamp
  if (!first && unsaved && !state.timer) state.timer = setTimeout(() => report(state), 5 * data.delay)
}
