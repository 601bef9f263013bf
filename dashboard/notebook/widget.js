// Content of messages is set as text, never as HTML. The browser polls the kernel. An action is sent only right after a
// reply, so that a click on a busy kernel is dropped, with a notice, instead of running much later.
const EVERY = 2000, QUICK = 700, BUSY = 4000, LONG = 15000, LOST = 30000, CONFIRM = 60000
const WAITING = 'Waiting for the kernel …', DROPPED = 'Kernel busy; nothing was done. Click again.'

const append = (parent, tag, name, text) => {
  const node = document.createElement(tag)
  if (name) node.className = name
  if (text !== undefined) node.textContent = text
  parent.append(node)
  return node
}
// A quiet disclosure with the links that copy actions as code. A refresh with the same texts keeps it open.
const copyMenu = parent => {
  const menu = append(parent, 'details', 'pc-code'), summary = append(menu, 'summary', '', '</>')
  const list = append(menu, 'div')
  let shown = ''
  summary.setAttribute('aria-label', 'Copy as code')
  summary.title = 'Copy as code'
  menu.hidden = true
  return groups => {
    const wanted = JSON.stringify(groups)
    if (shown === wanted) return
    shown = wanted
    menu.hidden = !groups.length
    list.replaceChildren()
    for (const [name, texts] of groups) for (const [label, text] of texts) {
      const full = name ? `${name}: ${label}` : label, link = append(list, 'button', 'pc-copy', full)
      link.addEventListener('click', async () => {
        setText(link, await copied(text) ? 'Copied' : 'Copy failed')
        setTimeout(() => setText(link, full), 2000)
      })
    }
  }
}
const setText = (node, text) => { if (node.textContent !== text) node.textContent = text }

export default {
  render({ model, el }) {
    // A notebook also has the static view; it stays visible until the kernel replies, and returns when the widget ends.
    const staticView = '.pc-static-' + model.get('uid'), hiding = append(el, 'style')
    const root = append(el, 'div', model.get('has_static') ? 'pc-monitor pc-waiting' : 'pc-monitor')
    const sentence = append(root, 'div', 'pc-sentence'), alerts = append(root, 'div', 'pc-alerts')
    const head = append(root, 'div', 'pc-head'), readout = append(head, 'span', 'pc-readout pc-quiet')
    const windows = append(head, 'select')
    windows.setAttribute('aria-label', 'Time range')
    for (const name of model.get('windows')) append(windows, 'option', '', name)
    const charts = append(root, 'div', 'pc-charts'), figures = append(root, 'div', 'pc-figures')
    const causes = append(root, 'div', 'pc-causes'), confirmation = append(root, 'div', 'pc-question')
    const actions = append(root, 'div', 'pc-acts'), progress = append(actions, 'progress')
    const message = append(actions, 'span', 'pc-said'), undo = append(actions, 'button', '', 'Undo')
    const replayButtons = {} // actions on a replay that has not ended
    for (const [name, text] of [['decide', 'Review …'], ['pause', 'Pause'], ['resume', 'Resume'], ['cancel', 'Cancel']]) {
      replayButtons[name] = append(actions, 'button', '', text)
    }
    const drawCode = copyMenu(actions)
    const producers = append(root, 'div', 'pc-producers pc-quiet'), age = append(root, 'div', 'pc-age pc-quiet')
    for (const node of [sentence, message, confirmation]) node.setAttribute('role', 'status')
    progress.setAttribute('aria-label', 'Replay progress')
    confirmation.hidden = progress.hidden = undo.hidden = true
    for (const button of Object.values(replayButtons)) button.hidden = true

    let state = model.get('first'), repliedAt = Date.now(), sentAt = 0, resendAfter = LOST, lost = false, visible = true
    let queued = null, confirming = null, operation = '', rows = new Map(), cards = [], hovered = null, timer

    // rendering

    const draw = () => {
      setText(sentence, state.sentence)
      sentence.className = `pc-sentence pc-${state.tone}`
      state.alerts.forEach(({ tone, text, advice }, index) => {
        const line = alerts.children[index] ?? append(alerts, 'div')
        setText(line, text)
        line.className = `pc-${tone}`
        line.title = advice
      })
      while (alerts.children.length > state.alerts.length) alerts.lastChild.remove()
      state.charts.forEach((chart, index) => drawChart(cards[index] ??= newCard(chart), chart))
      state.figures.forEach(({ label, value, note }, index) => {
        const figure = figures.children[index] ?? append(figures, 'div', 'pc-figure')
        if (!figure.firstChild) for (const name of ['pc-label', 'pc-value', 'pc-change']) append(figure, 'span', name)
        setText(figure.children[0], label)
        setText(figure.children[1], value)
        setText(figure.children[2], note)
      })
      setText(producers, state.producers.join('\n'))
      if (windows.value !== state.window && document.activeElement !== windows) windows.value = state.window
      drawCauses()
      drawBrushes()
      setText(age, root.classList.contains('pc-waiting') ? '' : `as of ${state.as_of}`)
    }
    const newCard = ({ name }) => {
      const card = append(charts, 'div', 'pc-chart'), label = append(card, 'div', 'pc-label')
      const value = append(card, 'span', 'pc-value'), change = append(card, 'span', 'pc-change')
      const plot = append(card, 'div', 'pc-plot'), svg = drawing(plot, WIDTH, HEIGHT)
      const ticks = append(plot, 'div'), cross = append(plot, 'div', 'pc-cross'), empty = append(plot, 'div', 'pc-empty')
      plot.setAttribute('role', 'group')
      const brush = brushable(plot, {
        range: () => ({ ...span(), shift: 0 }),
        selected: () => brushed(name),
        select: times => select(times && { chart: name, ...times }),
        point: index => { hovered = index; drawHovered() },
      })
      return { label, value, change, plot, svg, ticks, cross, empty, brush, legend: append(card, 'div', 'pc-legend') }
    }
    const drawChart = (card, { title, value, change, tone, lines, axis, empty }) => {
      card.plot.setAttribute('aria-label', `${title}: Shift and arrow keys select a time range`)
      setText(card.label, title)
      setText(card.value, value)
      setText(card.change, change)
      card.change.className = `pc-change pc-${tone || 'same'}`
      card.svg.setAttribute('aria-label', `${title}: ${value}${change ? `, ${change}` : ''}`)
      setText(card.empty, empty)
      card.empty.hidden = !empty
      card.svg.replaceChildren()
      card.ticks.replaceChildren()
      if (empty) return
      for (const [at, text] of axis.ticks) {
        const up = share(axis, at)
        shape(card.svg, 'path', { class: 'pc-grid', d: `M0 ${(HEIGHT * (1 - up)).toFixed(1)}H${WIDTH}` })
        append(card.ticks, 'span', 'pc-tick pc-y', text).style.top = `${100 * (1 - up)}%`
      }
      const { since, until } = span()
      for (const [at, text] of timeTicks(since, until)) {
        const along = 100 * (at - since) / (until - since)
        shape(card.svg, 'path', { class: 'pc-grid', d: `M${(WIDTH * along / 100).toFixed(1)} ${HEIGHT}v-${HEIGHT}` })
        append(card.ticks, 'span', 'pc-tick pc-x', text).style.left = `${Math.min(93, Math.max(5, along))}%`
      }
      for (const { values, colour } of lines) shape(card.svg, 'path', { class: 'pc-line', stroke: colour, d: pathOf(values, axis) })
    }
    const span = () => {
      const number = Math.max(0, ...state.charts.map(({ lines }) => lines[0]?.values.length ?? 0))
      return { since: state.since, until: state.since + number * state.step, step: state.step, number }
    }
    // The brush belongs to the model, so that all views of the widget show it, and the kernel has it at once.
    const brushed = (chart, group = '') => {
      const brush = model.get('brush') ?? {}
      return brush.chart === chart && (brush.group ?? '') === group ? brush : null
    }
    const select = brush => {
      model.set('brush', brush ?? {})
      model.save_changes()
      drawBrushes()
    }
    const drawBrushes = () => {
      for (const { brush } of [...cards, ...rows.values()]) brush?.()
      drawHovered()
    }
    const selection = () => {
      const { chart, since, until, step } = model.get('brush') ?? {}
      if (!chart) return ''
      const time = at => (chart === 'causes' && step >= 3600 ? new Date(at * 1000).toLocaleString('en-GB') : clock(at))
      return `Selected ${time(since)} to ${time(until)}: monitor.selection.to_frame(). A click on the chart ends it.`
    }
    // The pointer over one chart shows the values of all charts at that time.
    const drawHovered = () => {
      const { number } = span()
      if (hovered !== null && hovered >= number) hovered = null
      setText(readout, hovered === null ? selection() : clock(state.since + hovered * state.step))
      state.charts.forEach(({ lines, legend, unit }, index) => {
        const card = cards[index]
        card.cross.hidden = hovered === null || !lines.length
        if (hovered !== null) card.cross.style.left = `${100 * (hovered + 0.5) / number}%`
        lines.forEach((line, place) => {
          const entry = card.legend.children[place] ?? append(card.legend, 'span')
          if (!entry.firstChild) { append(entry, 'i'); append(entry, 'span') }
          entry.firstChild.style.background = line.colour
          const value = hovered === null ? undefined : line.values[hovered] ?? null
          const name = unit === 'milliseconds' ? line.name : legend[place]
          setText(entry.lastChild, value === undefined ? legend[place] : `${name} ${value === null ? '–' : FORMATS[unit](value)}`)
        })
        while (card.legend.children.length > lines.length) card.legend.lastChild.remove()
      })
    }
    // A row keeps its position while its cause exists, so that a refresh does not move a button under the pointer.
    const drawCauses = () => {
      const all = { fingerprint: '', count: state.dead_total, name: 'All dead letters', error: '', advice: '', safe: true, trend: [] }
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
        row.times = { since: one.trend_since, step: one.trend_step, number: one.trend.length }
        if (one.trend.length) {
          drawTrend(row.trend, one.trend)
          row.holder.setAttribute('aria-label', `${one.name}: Shift and arrow keys select a time range`)
          row.trend.setAttribute('aria-label', one.trend_text)
        }
        row.holder.style.visibility = one.trend.length ? '' : 'hidden'
        row.replay.disabled = !!state.why_not
        row.replay.title = state.why_not
        row.replay.setAttribute('aria-label', `Replay ${one.count}: ${one.name}`)
        row.clear.setAttribute('aria-label', `Clear ${one.count}: ${one.name}`)
      }
      causes.hidden = !rows.size
    }
    const newRow = ({ fingerprint }) => {
      const node = append(causes, 'div', 'pc-cause'), count = append(node, 'b', 'pc-count')
      const holder = append(node, 'div', 'pc-trend'), trend = drawing(holder, TREND_WIDTH, TREND_HEIGHT)
      const text = append(node, 'div', 'pc-what')
      const row = {
        node, count, holder, trend, times: { number: 0 }, name: append(text, 'b'), error: append(text, 'div'),
        advice: append(text, 'div', 'pc-quiet'), safe: append(text, 'div', 'pc-quiet'),
      }
      if (fingerprint) {
        holder.setAttribute('role', 'group')
        row.brush = brushable(holder, {
          range: () => ({ ...row.times, shift: Math.max(0, TREND_BARS - row.times.number) }),
          selected: () => brushed('causes', fingerprint),
          select: times => select(times && { chart: 'causes', group: fingerprint, ...times }),
        })
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
      drawCode(reply.code ?? [])
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
    const confirm = ({ title, lines, yes, act, target, until, shown, code }) => {
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
      if (code.length) copyMenu(buttons)([['', code]])
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

    // life cycle

    const poll = every => { clearInterval(timer); timer = setInterval(tick, every) }
    const observer = new IntersectionObserver(([entry]) => { visible = entry.isIntersecting; if (visible) tick() })
    model.on('msg:custom', onReply)
    model.on('change:brush', drawBrushes)
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
      model.off('change:brush', drawBrushes)
      model.off('comm_live_update', onKernelLost)
    }
  },
}
