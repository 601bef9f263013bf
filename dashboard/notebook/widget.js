// Everything of a message is set as text, never as HTML. The browser asks; an act is sent only right after the
// kernel has answered, so that a click on a busy kernel is dropped, and said to be, instead of being done much later.
const EVERY = 2000, QUICK = 700, BUSY = 4000, LONG = 15000, LOST = 30000, QUESTION = 60000
const BLUE = '#2563eb', RED = '#dc2626', WIDE = 640, TALL = 96

const make = (parent, tag, name, text) => {
  const node = document.createElement(tag)
  if (name) node.className = name
  if (text !== undefined) node.textContent = text
  parent.append(node)
  return node
}
const say = (node, text) => { if (node.textContent !== text) node.textContent = text }
const rate = value => `${value >= 100 ? Math.round(value).toLocaleString('en') : +value.toFixed(1)} /s`
const clock = seconds => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false })
const ago = seconds => seconds < 90 ? `${seconds} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min`
  : seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`

const bars = (svg, { sent, failed }, top) => {
  const step = WIDE / Math.max(1, sent.length)
  svg.replaceChildren()
  sent.forEach((good, place) => {
    let foot = TALL
    for (const [value, colour] of [[good, BLUE], [failed[place], RED]]) {
      if (!value) continue
      const tall = Math.max(1.5, TALL * value / top), bar = document.createElementNS(svg.namespaceURI, 'rect')
      foot -= tall
      const box = { x: place * step, y: foot, width: Math.max(step * 0.85, 0.5), height: tall, fill: colour }
      for (const [name, v] of Object.entries(box)) bar.setAttribute(name, v)
      svg.append(bar)
    }
  })
}

export default {
  render({ model, el }) {
    // A still picture stands beside us in a notebook: it stays until the kernel answers, and is back when we go.
    const twin = '.pc-static-' + model.get('uid'), hiding = make(el, 'style')
    const root = make(el, 'div', model.get('twin') ? 'pc-monitor pc-waiting' : 'pc-monitor'), sentence = make(root, 'div', 'pc-sentence')
    const alerts = make(root, 'div', 'pc-lines pc-alerts'), producers = make(root, 'div', 'pc-lines pc-quiet')
    const tiles = make(root, 'div', 'pc-tiles')
    const head = make(root, 'div', 'pc-head'), legend = make(head, 'span', 'pc-legend')
    for (const [name, colour] of [['acknowledged', BLUE], ['failed', RED]]) {
      make(legend, 'i').style.background = colour
      make(legend, 'span', '', name)
    }
    const readout = make(head, 'span', 'pc-readout pc-quiet'), windows = make(head, 'select')
    windows.setAttribute('aria-label', 'Time range')
    for (const name of model.get('windows')) make(windows, 'option', '', name)
    const plot = make(root, 'div', 'pc-plot'), topmost = make(plot, 'span', 'pc-top pc-quiet')
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
    plot.append(svg)
    const axis = make(root, 'div', 'pc-axis pc-quiet'), from = make(axis, 'span'), to = make(axis, 'span', '', 'now')
    const causes = make(root, 'div', 'pc-causes'), question = make(root, 'div', 'pc-question')
    const acts = make(root, 'div', 'pc-acts'), progress = make(acts, 'progress')
    const said = make(acts, 'span', 'pc-said'), undo = make(acts, 'button', '', 'Undo')
    const ways = {} // what may be done about a replay that has not ended
    for (const [name, text] of [['decide', 'Decide …'], ['pause', 'Pause'], ['resume', 'Resume'], ['cancel', 'Cancel']]) {
      ways[name] = make(acts, 'button', '', text)
    }
    const age = make(root, 'div', 'pc-age pc-quiet')
    for (const node of [sentence, said, question]) node.setAttribute('role', 'status')
    svg.setAttribute('role', 'img')
    svg.setAttribute('viewBox', `0 0 ${WIDE} ${TALL}`)
    svg.setAttribute('preserveAspectRatio', 'none')
    progress.setAttribute('aria-label', 'Replay')
    question.hidden = progress.hidden = undo.hidden = true
    for (const way of Object.values(ways)) way.hidden = true

    let seen = model.get('first'), heardAt = Date.now(), asked = 0, patience = LOST, gone = false, shown = true
    let wanted = null, asking = null, following = '', rows = new Map(), hovered = null, timer

    // what is shown

    const draw = () => {
      say(sentence, seen.sentence)
      sentence.className = `pc-sentence pc-${seen.tone}`
      seen.alerts.forEach((text, place) => say(alerts.children[place] ?? make(alerts, 'div'), text))
      while (alerts.children.length > seen.alerts.length) alerts.lastChild.remove()
      say(producers, seen.producers.join('\n'))
      seen.tiles.forEach(([name, value], place) => {
        const tile = tiles.children[place] ?? make(tiles, 'span')
        if (!tile.firstChild) { make(tile, 'span'); make(tile, 'b') }
        say(tile.firstChild, name)
        say(tile.lastChild, value)
      })
      const { sent, failed, step } = seen.series
      const top = Math.max(1e-9, ...sent.map((good, place) => (good ?? 0) + (failed[place] ?? 0)))
      bars(svg, seen.series, top)
      svg.setAttribute('aria-label', seen.caption)
      say(topmost, top > 1e-6 ? rate(top) : '')
      say(from, `${ago(sent.length * step)} ago`)
      if (windows.value !== seen.window && document.activeElement !== windows) windows.value = seen.window
      read()
      list()
      say(age, root.classList.contains('pc-waiting') ? '' : `as of ${seen.as_of}`)
    }
    const read = () => {
      const { since, step, sent, failed } = seen.series, place = hovered
      const known = place !== null && sent[place] !== undefined && sent[place] !== null
      say(readout, place === null ? '' : known
        ? `${clock(since + place * step)}: ${rate(sent[place])}, failed ${rate(failed[place] ?? 0)}`
        : `${clock(since + place * step)}: nothing written`)
    }
    // A row stays where it is while its cause is there: a refresh must not move a button under the pointer.
    const list = () => {
      const whole = { mark: '', count: seen.dead_total, name: 'All dead letters', error: '', advice: '', safe: true }
      const wish = seen.dead_total && (seen.causes.length !== 1 || seen.others) ? [...seen.causes, whole] : seen.causes
      for (const [mark, row] of rows) if (!wish.some(one => one.mark === mark)) { row.node.remove(); rows.delete(mark) }
      for (const one of wish) {
        const row = rows.get(one.mark) ?? fresh(one)
        if (one.mark === '') causes.append(row.node)
        say(row.count, one.count.toLocaleString('en'))
        say(row.name, one.name)
        say(row.error, one.error)
        say(row.advice, one.advice)
        say(row.safe, one.mark && !one.safe ? 'Some may be on the broker already; a replay looks for them first.' : '')
        row.replay.disabled = !!seen.why_not
        row.replay.title = seen.why_not
        row.replay.setAttribute('aria-label', `Replay ${one.count}: ${one.name}`)
        row.clear.setAttribute('aria-label', `Clear ${one.count}: ${one.name}`)
      }
      causes.hidden = !rows.size
    }
    const fresh = ({ mark }) => {
      const node = make(causes, 'div', 'pc-cause'), count = make(node, 'b', 'pc-count'), what = make(node, 'div', 'pc-what')
      const row = { node, count, name: make(what, 'b'), error: make(what, 'div'), advice: make(what, 'div', 'pc-quiet'), safe: make(what, 'div', 'pc-quiet') }
      row.replay = make(node, 'button', '', 'Replay')
      row.clear = make(node, 'button', '', 'Clear')
      row.replay.addEventListener('click', () => prepare('replay', mark))
      row.clear.addEventListener('click', () => prepare('clear', mark))
      rows.set(mark, row)
      return row
    }

    // asking the kernel: one question at a time

    const send = message => {
      asked = Date.now()
      try { model.send({ ...message, window: windows.value || seen.window }) } catch { lost() }
    }
    const lost = () => { gone = true; clearInterval(timer); say(age, `The kernel is gone: run the cell again. As of ${seen.as_of}`) }
    const tick = () => {
      if (gone) return
      const silent = asked ? Date.now() - asked : 0
      if (wanted && Date.now() > wanted.before) {
        wanted = null
        say(said, 'Kernel busy: nothing was done. Click again.')
      }
      if (silent > patience) { patience *= 2; send({ type: 'ask' }) } // a lost message; few of them, however long a cell runs
      else if (silent > BUSY) {
        const known = silent > LONG ? 'Kernel busy, or restarted (then run the cell again)' : 'Kernel busy'
        say(age, `${known}: no answer for ${Math.round((Date.now() - heardAt) / 1000)} s. As of ${seen.as_of}`)
      }
      else if (!asked && shown && !document.hidden) send({ type: 'ask' })
      if (asking && Date.now() > asking.before) leave()
    }
    const want = (message, words) => {
      wanted = { message, before: Date.now() + BUSY }
      say(said, words)
      if (!asked) send({ type: 'ask' })
    }
    const heard = answer => {
      asked = 0
      heardAt = Date.now()
      gone = false
      patience = LOST
      if (root.classList.replace('pc-waiting', 'pc-live')) {
        hiding.textContent = `.jp-OutputArea-child:has(${twin}), ${twin} { display: none }`
      }
      if (answer.seen) seen = answer.seen
      following = answer.following ?? ''
      draw()
      if (answer.said) say(said, answer.said)
      progress.hidden = (answer.progress ?? null) === null
      for (const [name, way] of Object.entries(ways)) way.hidden = !(answer.ways ?? []).includes(name)
      if (!progress.hidden) progress.value = answer.progress
      undo.hidden = !answer.undo
      if (answer.question) ask(answer.question)
      pace(progress.hidden ? EVERY : QUICK)
      if (!wanted) return
      const { message, before } = wanted
      wanted = null
      if (Date.now() <= before) send({ ...message, at: seen.now })
      else say(said, 'Kernel busy: nothing was done. Click again.')
    }

    // acts: the first click asks what it would do, the second does it

    const prepare = (act, mark) => want({ type: 'prepare', act, mark, until: seen.until }, 'Asking the kernel …')
    const ask = ({ title, lines, yes, act, mark, until, shown: number }) => {
      leave()
      say(said, '')
      question.hidden = false // before the focus: what is hidden takes none
      make(question, 'b', '', title)
      for (const line of lines) make(question, 'div', '', line)
      const buttons = make(question, 'div', 'pc-acts')
      if (yes) {
        const sure = make(buttons, 'button', 'pc-sure', yes)
        sure.addEventListener('click', () => { leave(); want({ type: act, mark, until, shown: number }, 'Asking the kernel …') })
        sure.focus({ preventScroll: true })
      }
      make(buttons, 'button', '', yes ? 'Leave them' : 'Close').addEventListener('click', leave)
      asking = { before: Date.now() + QUESTION }
    }
    const leave = () => { asking = null; question.replaceChildren(); question.hidden = true }
    question.addEventListener('keydown', event => { if (event.key === 'Escape') { event.stopPropagation(); leave() } })
    ways.decide.addEventListener('click', () => prepare('go', following)) // another may be followed when it is heard
    for (const name of ['pause', 'resume', 'cancel']) {
      ways[name].addEventListener('click', () => want({ type: name, mark: following }, 'Asking the kernel …'))
    }
    undo.addEventListener('click', () => want({ type: 'undo' }, 'Asking the kernel …'))
    windows.addEventListener('change', () => { if (!asked) send({ type: 'ask' }) })
    plot.addEventListener('pointermove', event => {
      const box = svg.getBoundingClientRect(), { sent } = seen.series
      hovered = Math.min(sent.length - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * sent.length)))
      read()
    })
    plot.addEventListener('pointerleave', () => { hovered = null; read() })

    // a life

    const pace = every => { clearInterval(timer); timer = setInterval(tick, every) }
    const watch = new IntersectionObserver(([entry]) => { shown = entry.isIntersecting; if (shown) tick() })
    model.on('msg:custom', heard)
    model.on('comm_live_update', lost)
    draw()
    tick()
    pace(EVERY)
    watch.observe(root)
    return () => {
      clearInterval(timer)
      watch.disconnect()
      hiding.remove()
      model.off('msg:custom', heard)
      model.off('comm_live_update', lost)
    }
  },
}
