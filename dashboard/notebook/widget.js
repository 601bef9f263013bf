// Content of messages is set as text, never as HTML. The browser polls the kernel. An action is sent only right after a
// reply, so that a click on a busy kernel is dropped, with a notice, instead of running much later.
const EVERY = 2000, QUICK = 700, BUSY = 4000, LONG = 15000, LOST = 30000, CONFIRM = 60000
const BLUE = '#2563eb', RED = '#dc2626', WIDTH = 640, HEIGHT = 96
const WAITING = 'Waiting for the kernel …', DROPPED = 'Kernel busy; nothing was done. Click again.'

const append = (parent, tag, name, text) => {
  const node = document.createElement(tag)
  if (name) node.className = name
  if (text !== undefined) node.textContent = text
  parent.append(node)
  return node
}
const setText = (node, text) => { if (node.textContent !== text) node.textContent = text }
const rate = value => `${value >= 100 ? Math.round(value).toLocaleString('en') : +value.toFixed(1)}/s`
const clock = seconds => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false })
const duration = seconds => seconds < 90 ? `${seconds} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min`
  : seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`

const drawBars = (svg, { sent, failed }, top) => {
  const step = WIDTH / Math.max(1, sent.length)
  svg.replaceChildren()
  sent.forEach((delivered, index) => {
    let bottom = HEIGHT
    for (const [value, colour] of [[delivered, BLUE], [failed[index], RED]]) {
      if (!value) continue
      const height = Math.max(1.5, HEIGHT * value / top), bar = document.createElementNS(svg.namespaceURI, 'rect')
      bottom -= height
      const box = { x: index * step, y: bottom, width: Math.max(step * 0.85, 0.5), height, fill: colour }
      for (const [name, v] of Object.entries(box)) bar.setAttribute(name, v)
      svg.append(bar)
    }
  })
}

export default {
  render({ model, el }) {
    // A notebook also has the static view; it stays visible until the kernel replies, and returns when the widget ends.
    const staticView = '.pc-static-' + model.get('uid'), hiding = append(el, 'style')
    const root = append(el, 'div', model.get('has_static') ? 'pc-monitor pc-waiting' : 'pc-monitor')
    const sentence = append(root, 'div', 'pc-sentence')
    const alerts = append(root, 'div', 'pc-lines pc-alerts'), producers = append(root, 'div', 'pc-lines pc-quiet')
    const tiles = append(root, 'div', 'pc-tiles')
    const head = append(root, 'div', 'pc-head'), legend = append(head, 'span', 'pc-legend')
    for (const [name, colour] of [['acknowledged', BLUE], ['failed', RED]]) {
      append(legend, 'i').style.background = colour
      append(legend, 'span', '', name)
    }
    const readout = append(head, 'span', 'pc-readout pc-quiet'), windows = append(head, 'select')
    windows.setAttribute('aria-label', 'Time range')
    for (const name of model.get('windows')) append(windows, 'option', '', name)
    const plot = append(root, 'div', 'pc-plot'), maximum = append(plot, 'span', 'pc-top pc-quiet')
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
    plot.append(svg)
    const axis = append(root, 'div', 'pc-axis pc-quiet'), from = append(axis, 'span'), to = append(axis, 'span', '', 'now')
    const causes = append(root, 'div', 'pc-causes'), confirmation = append(root, 'div', 'pc-question')
    const actions = append(root, 'div', 'pc-acts'), progress = append(actions, 'progress')
    const message = append(actions, 'span', 'pc-said'), undo = append(actions, 'button', '', 'Undo')
    const replayButtons = {} // actions on a replay that has not ended
    for (const [name, text] of [['decide', 'Review …'], ['pause', 'Pause'], ['resume', 'Resume'], ['cancel', 'Cancel']]) {
      replayButtons[name] = append(actions, 'button', '', text)
    }
    const age = append(root, 'div', 'pc-age pc-quiet')
    for (const node of [sentence, message, confirmation]) node.setAttribute('role', 'status')
    svg.setAttribute('role', 'img')
    svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`)
    svg.setAttribute('preserveAspectRatio', 'none')
    progress.setAttribute('aria-label', 'Replay progress')
    confirmation.hidden = progress.hidden = undo.hidden = true
    for (const button of Object.values(replayButtons)) button.hidden = true

    let state = model.get('first'), repliedAt = Date.now(), sentAt = 0, resendAfter = LOST, lost = false, visible = true
    let queued = null, confirming = null, operation = '', rows = new Map(), hovered = null, timer

    // rendering

    const draw = () => {
      setText(sentence, state.sentence)
      sentence.className = `pc-sentence pc-${state.tone}`
      state.alerts.forEach((text, index) => setText(alerts.children[index] ?? append(alerts, 'div'), text))
      while (alerts.children.length > state.alerts.length) alerts.lastChild.remove()
      setText(producers, state.producers.join('\n'))
      state.tiles.forEach(([name, value], index) => {
        const tile = tiles.children[index] ?? append(tiles, 'span')
        if (!tile.firstChild) { append(tile, 'span'); append(tile, 'b') }
        setText(tile.firstChild, name)
        setText(tile.lastChild, value)
      })
      const { sent, failed, step } = state.series
      const top = Math.max(1e-9, ...sent.map((delivered, index) => (delivered ?? 0) + (failed[index] ?? 0)))
      drawBars(svg, state.series, top)
      svg.setAttribute('aria-label', state.caption)
      setText(maximum, top > 1e-6 ? rate(top) : '')
      setText(from, `${duration(sent.length * step)} ago`)
      if (windows.value !== state.window && document.activeElement !== windows) windows.value = state.window
      drawReadout()
      drawCauses()
      setText(age, root.classList.contains('pc-waiting') ? '' : `as of ${state.as_of}`)
    }
    const drawReadout = () => {
      const { since, step, sent, failed } = state.series, index = hovered
      const known = index !== null && sent[index] !== undefined && sent[index] !== null
      setText(readout, index === null ? '' : known
        ? `${clock(since + index * step)}: ${rate(sent[index])}, failed ${rate(failed[index] ?? 0)}`
        : `${clock(since + index * step)}: no data`)
    }
    // A row keeps its position while its cause exists, so that a refresh does not move a button under the pointer.
    const drawCauses = () => {
      const all = { fingerprint: '', count: state.dead_total, name: 'All dead letters', error: '', advice: '', safe: true }
      const shown = state.dead_total && (state.causes.length !== 1 || state.others) ? [...state.causes, all] : state.causes
      for (const [fingerprint, row] of rows) {
        if (!shown.some(one => one.fingerprint === fingerprint)) { row.node.remove(); rows.delete(fingerprint) }
      }
      for (const one of shown) {
        const row = rows.get(one.fingerprint) ?? newRow(one)
        if (one.fingerprint === '') causes.append(row.node)
        setText(row.count, one.count.toLocaleString('en'))
        setText(row.name, one.name)
        setText(row.error, one.error)
        setText(row.advice, one.advice)
        setText(row.safe, one.fingerprint && !one.safe ? `${one.count === 1 ? 'May' : 'Some may'} already be on the broker; a replay checks first.` : '')
        row.replay.disabled = !!state.why_not
        row.replay.title = state.why_not
        row.replay.setAttribute('aria-label', `Replay ${one.count}: ${one.name}`)
        row.clear.setAttribute('aria-label', `Clear ${one.count}: ${one.name}`)
      }
      causes.hidden = !rows.size
    }
    const newRow = ({ fingerprint }) => {
      const node = append(causes, 'div', 'pc-cause'), count = append(node, 'b', 'pc-count')
      const text = append(node, 'div', 'pc-what')
      const row = {
        node, count, name: append(text, 'b'), error: append(text, 'div'),
        advice: append(text, 'div', 'pc-quiet'), safe: append(text, 'div', 'pc-quiet'),
      }
      row.replay = append(node, 'button', '', 'Replay')
      row.clear = append(node, 'button', '', 'Clear')
      row.replay.addEventListener('click', () => prepare('replay', fingerprint))
      row.clear.addEventListener('click', () => prepare('clear', fingerprint))
      rows.set(fingerprint, row)
      return row
    }

    // messages to the kernel, one at a time

    const send = content => {
      sentAt = Date.now()
      try { model.send({ ...content, window: windows.value || state.window }) } catch { onKernelLost() }
    }
    const onKernelLost = () => {
      lost = true
      clearInterval(timer)
      setText(age, `Kernel disconnected; run the cell again. As of ${state.as_of}`)
    }
    const tick = () => {
      if (lost) return
      const silent = sentAt ? Date.now() - sentAt : 0
      if (queued && Date.now() > queued.before) {
        queued = null
        setText(message, DROPPED)
      }
      if (silent > resendAfter) { resendAfter *= 2; send({ type: 'refresh' }) } // a lost message; rare even for a long cell
      else if (silent > BUSY) {
        const known = silent > LONG ? 'Kernel busy or restarted (if restarted, run the cell again)' : 'Kernel busy'
        setText(age, `${known}: no reply for ${Math.round((Date.now() - repliedAt) / 1000)} s. As of ${state.as_of}`)
      }
      else if (!sentAt && visible && !document.hidden) send({ type: 'refresh' })
      if (confirming && Date.now() > confirming.before) dismiss()
    }
    const request = content => {
      queued = { content, before: Date.now() + BUSY }
      setText(message, WAITING)
      if (!sentAt) send({ type: 'refresh' })
    }
    const onReply = reply => {
      sentAt = 0
      repliedAt = Date.now()
      lost = false
      resendAfter = LOST
      if (root.classList.replace('pc-waiting', 'pc-live')) {
        hiding.textContent = `.jp-OutputArea-child:has(${staticView}), ${staticView} { display: none }`
      }
      if (reply.state) state = reply.state
      operation = reply.operation ?? ''
      draw()
      if (reply.message) setText(message, reply.message)
      progress.hidden = (reply.progress ?? null) === null
      for (const [name, button] of Object.entries(replayButtons)) button.hidden = !(reply.actions ?? []).includes(name)
      if (!progress.hidden) progress.value = reply.progress
      undo.hidden = !reply.undo
      if (reply.confirmation) confirm(reply.confirmation)
      poll(progress.hidden ? EVERY : QUICK)
      if (!queued) return
      const { content, before } = queued
      queued = null
      if (Date.now() <= before) send({ ...content, at: state.now })
      else setText(message, DROPPED)
    }

    // actions: the first click opens the confirmation, the second runs the action

    const prepare = (act, target) => request({ type: 'prepare', act, target, until: state.until })
    const confirm = ({ title, lines, yes, act, target, until, shown }) => {
      dismiss()
      setText(message, '')
      confirmation.hidden = false // before focus(), which ignores hidden elements
      append(confirmation, 'b', '', title)
      for (const line of lines) append(confirmation, 'div', '', line)
      const buttons = append(confirmation, 'div', 'pc-acts')
      if (yes) {
        const run = append(buttons, 'button', 'pc-sure', yes)
        run.addEventListener('click', () => { dismiss(); request({ type: act, target, until, shown }) })
        run.focus({ preventScroll: true })
      }
      append(buttons, 'button', '', yes ? 'Not now' : 'Close').addEventListener('click', dismiss)
      confirming = { before: Date.now() + CONFIRM }
    }
    const dismiss = () => { confirming = null; confirmation.replaceChildren(); confirmation.hidden = true }
    confirmation.addEventListener('keydown', event => { if (event.key === 'Escape') { event.stopPropagation(); dismiss() } })
    replayButtons.decide.addEventListener('click', () => prepare('go', operation)) // the kernel checks that it is still shown
    for (const name of ['pause', 'resume', 'cancel']) {
      replayButtons[name].addEventListener('click', () => request({ type: name, target: operation }))
    }
    undo.addEventListener('click', () => request({ type: 'undo' }))
    windows.addEventListener('change', () => { if (!sentAt) send({ type: 'refresh' }) })
    plot.addEventListener('pointermove', event => {
      const box = svg.getBoundingClientRect(), { sent } = state.series
      hovered = Math.min(sent.length - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * sent.length)))
      drawReadout()
    })
    plot.addEventListener('pointerleave', () => { hovered = null; drawReadout() })

    // life cycle

    const poll = every => { clearInterval(timer); timer = setInterval(tick, every) }
    const observer = new IntersectionObserver(([entry]) => { visible = entry.isIntersecting; if (visible) tick() })
    model.on('msg:custom', onReply)
    model.on('comm_live_update', onKernelLost)
    draw()
    tick()
    poll(EVERY)
    observer.observe(root)
    return () => {
      clearInterval(timer)
      observer.disconnect()
      hiding.remove()
      model.off('msg:custom', onReply)
      model.off('comm_live_update', onKernelLost)
    }
  },
}
