// Select a time range of a chart with the pointer, or with Shift and the arrow keys. `range()` describes the slots of the
// chart: the beginning of the first, their length in seconds, their number, and `shift` empty slots before them.
const brushable = (node, { range, selected, select, point }) => {
  const mark = append(node, 'div', 'pc-brush')
  let from = null, to = null, pressedAt = 0, cursor = null
  node.tabIndex = 0
  node.dataset.lmSuppressShortcuts = 'true' // JupyterLab moves to another cell with the arrow keys
  const slot = event => {
    const { number, shift } = range(), box = node.getBoundingClientRect()
    const at = Math.floor((event.clientX - box.left) / box.width * (number + shift)) - shift
    return number ? Math.min(number - 1, Math.max(0, at)) : null
  }
  const times = (one, other) => {
    const { since, step } = range()
    return { since: since + Math.min(one, other) * step, until: since + (Math.max(one, other) + 1) * step, step }
  }
  const draw = () => {
    const { since, step, number, shift } = range(), known = from === null ? selected() : times(from, to)
    const first = known ? Math.max(0, (known.since - since) / step) : 0
    const last = known ? Math.min(number, (known.until - since) / step) : 0
    mark.hidden = !(last > first)
    if (mark.hidden) return
    mark.style.left = `${100 * (first + shift) / (number + shift)}%`
    mark.style.width = `${100 * (last - first) / (number + shift)}%`
  }
  const end = keep => {
    if (keep && from !== null && (keep.moved || selected())) select(keep.moved ? times(from, to) : null)
    from = to = null
    draw()
  }
  node.addEventListener('pointerdown', event => {
    if (event.button || (from = to = slot(event)) === null) return
    pressedAt = event.clientX
    node.setPointerCapture(event.pointerId)
    event.preventDefault() // no selection of text
    node.focus({ preventScroll: true })
  })
  node.addEventListener('pointermove', event => {
    if (from === null) { point?.(slot(event)); return }
    to = slot(event) ?? to
    point?.(to)
    if (Math.abs(event.clientX - pressedAt) > 3) draw()
  })
  node.addEventListener('pointerup', event => end({ moved: Math.abs(event.clientX - pressedAt) > 3 }))
  node.addEventListener('pointercancel', () => end(null))
  node.addEventListener('pointerleave', () => { if (from === null) point?.(null) })
  node.addEventListener('blur', () => { cursor = null; point?.(null) })
  node.addEventListener('keydown', event => {
    const { number, since, step } = range(), move = { ArrowLeft: -1, ArrowRight: 1 }[event.key], known = selected()
    if (event.key === 'Escape' && known) select(null)
    else if (move && number) {
      const before = cursor?.at ?? (known ? Math.floor((known.until - since) / step) - 1 : number - 1)
      const at = Math.min(number - 1, Math.max(0, before + (cursor ? move : 0)))
      const anchor = event.shiftKey ? cursor?.anchor ?? at : at
      cursor = { at, anchor }
      if (event.shiftKey) select(times(anchor, at))
      point?.(at)
    } else return
    event.preventDefault()
    event.stopPropagation()
    draw()
  })
  return draw
}

