const copied = async text => {
  try { await navigator.clipboard.writeText(text); return true } catch { /* a page without HTTPS has no clipboard */ }
  const area = Object.assign(document.createElement('textarea'), { value: text })
  area.style.cssText = 'position: fixed; opacity: 0'
  document.body.append(area)
  area.select()
  const done = document.execCommand('copy')
  area.remove()
  return done
}
export default function ({ data, parentElement }) {
  const button = parentElement.querySelector('button')
  button.disabled = !data.text
  button.title = data.tooltip
  if (button.pcText !== data.text) button.textContent = data.label
  button.pcText = data.text
  button.onclick = async () => {
    button.textContent = await copied(data.text) ? 'Copied' : 'Copy failed'
    setTimeout(() => { button.textContent = data.label }, 2000)
  }
}
