// Uses local() and utc() from browser_times.js, and selectRows() from row_selection.js.
const ALLOWED = /^(class|href|title|role|scope|colspan|tabindex|type|id|datetime|viewBox|width|height|d|x|y|x1|x2|y1|y2|r|cx|cy|points|fill|stroke|stroke-width|preserveAspectRatio|aria-[a-z]+|data-[a-z]+)$/
const TAGS = /^(div|span|p|a|b|strong|small|h2|h3|dl|dt|dd|ul|ol|li|table|thead|tbody|tr|th|td|time|button|input|code|details|summary|svg|g|path|rect|circle|line|polyline|title)$/
const SVG = new Set(['svg', 'g', 'path', 'rect', 'circle', 'line', 'polyline'])
const safe = (name, value) => name !== 'href' || /^(\.\/|[a-z-]+([?#]|$)|#)/.test(value)
const make = (node, parent) => {
  if (typeof node === 'string') return document.createTextNode(node)
  const tag = TAGS.test(node[0]) ? node[0] : 'span'
  const svg = SVG.has(tag) || parent.namespaceURI === 'http://www.w3.org/2000/svg'
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag)
  element.pcTag = node[0]
  return element
}
// Attributes that are not from a tree stay, such as the state that row_selection.js shows.
const setAttributes = (element, attributes) => {
  const before = element.pcAttributes ?? {}
  for (const name in before) if (!(name in attributes)) element.removeAttribute(name)
  for (const [name, value] of Object.entries(attributes))
    if (ALLOWED.test(name) && safe(name, value) && before[name] !== value) element.setAttribute(name, value)
  element.pcAttributes = attributes
}
const setText = (parent, text) => { if (parent.textContent !== text) parent.textContent = text }
// An element with a data-at shows that time, in seconds since 1970, in the browser's zone.
const showTime = (element, { 'data-at': at, title }) => {
  const full = utc(at) + (title ? '. ' + title : '')
  setText(element, local(at))
  if (element.title !== full) element.title = full
}
const keyOf = node => typeof node === 'string' ? null : node[1]['data-key'] ?? null
// A child with a data-key is reused by its key, any other child by its position.
const update = (parent, nodes) => {
  const keyed = new Map()
  for (const child of parent.children) if (child.dataset?.key) keyed.set(child.dataset.key, child)
  const keys = new Set(nodes.map(keyOf)) // removed first, because a row that moves loses the focus
  for (const [key, child] of keyed) if (!keys.has(key)) child.remove()
  let next = parent.firstChild
  for (const node of nodes) {
    const key = keyOf(node)
    let child = key === null ? next : keyed.get(key)
    const reusable = child && (typeof node === 'string' ? child.nodeType === 3 : child.pcTag === node[0] && (key !== null || !child.dataset?.key))
    if (!reusable) { child = make(node, parent); parent.insertBefore(child, next) }
    else if (child !== next) parent.insertBefore(child, next)
    else next = next.nextSibling
    if (typeof node === 'string') { if (child.data !== node) child.data = node }
    else {
      setAttributes(child, node[1])
      if ('data-at' in node[1]) showTime(child, node[1]); else update(child, node[2])
    }
  }
  while (next) { const following = next.nextSibling; next.remove(); next = following }
}
export default function ({ data, parentElement, ...browser }) {
  const root = parentElement.querySelector('.pc-live')
  if (data.selection) selectRows(root, data, browser); else update(root, data.tree)
}
