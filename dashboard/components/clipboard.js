// Copies a text. Components that copy put this file before their own.
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
