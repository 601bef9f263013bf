// Everything of a message is set as text, never as HTML. An act is sent only right after the kernel has
// answered, so that a click on a busy kernel is dropped, and said to be, instead of being done much later.
const EVERY = 2000, BUSY = 6000, SURE = 5000, LOST = 30000
const ARCHIVED = 'They go to the archive; producer-core dlq restore brings them back.'

const make = (parent, tag, name) => {
  const node = document.createElement(tag)
  if (name) node.className = name
  parent.append(node)
  return node
}
const say = (node, text) => { if (node.textContent !== text) node.textContent = text }

const bars = (svg, sent, failed) => {
  const width = 640, height = 80, step = width / Math.max(1, sent.length)
  const top = Math.max(1e-9, ...sent.map((good, place) => good + failed[place]))
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`)
  svg.setAttribute('preserveAspectRatio', 'none')
  svg.replaceChildren()
  sent.forEach((good, place) => {
    let foot = height
    for (const [value, colour] of [[good, '#2563eb'], [failed[place], '#dc2626']]) {
      if (!value) continue
      const tall = Math.max(1, (height - 2) * value / top), bar = document.createElementNS(svg.namespaceURI, 'rect')
      foot -= tall
      const box = { x: place * step, y: foot, width: step * 0.8, height: tall, fill: colour }
      for (const [name, v] of Object.entries(box)) bar.setAttribute(name, v)
      svg.append(bar)
    }
  })
}

export default {
  render({ model, el }) {
    const twin = '.pc-static-' + model.get('uid') // hidden while this view lives, back when it goes
    make(el, 'style').textContent = `.jp-OutputArea-child:has(${twin}), ${twin} { display: none }`
    const root = make(el, 'div', 'pc-monitor'), sentence = make(root, 'div', 'pc-sentence')
    const alerts = make(root, 'div', 'pc-alerts'), tiles = make(root, 'div', 'pc-tiles')
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
    root.append(svg)
    const caption = make(root, 'small'), dead = make(root, 'div', 'pc-dead'), acts = make(root, 'div', 'pc-acts')
    const replay = make(acts, 'button'), clear = make(acts, 'button'), said = make(acts, 'span', 'pc-said')
    const age = make(root, 'small', 'pc-age')
    sentence.setAttribute('role', 'status')
    said.setAttribute('role', 'status')
    svg.setAttribute('role', 'img')
    let seen = model.get('first'), asked = 0, armed = null, wanted = null, unsure

    const button = (node, verb) => {
      const name = seen.dead_total ? `${verb} ${seen.dead_total.toLocaleString('en')}` : verb
      say(node, armed === node ? `${name}: sure?` : name)
      node.classList.toggle('pc-sure', armed === node)
    }
    const draw = () => {
      say(sentence, seen.sentence)
      sentence.className = `pc-sentence pc-${seen.tone}`
      say(alerts, seen.alerts.join('\n'))
      tiles.replaceChildren()
      for (const [name, value] of seen.tiles) {
        const tile = make(tiles, 'span')
        tile.textContent = name
        make(tile, 'b').textContent = value
      }
      bars(svg, seen.sent, seen.failed)
      svg.setAttribute('aria-label', seen.caption)
      say(caption, seen.caption)
      say(dead, seen.dead_text)
      button(replay, 'Replay')
      button(clear, 'Clear')
      replay.disabled = !!seen.why_not
      replay.title = seen.why_not
      clear.disabled = !seen.dead_total
      say(age, `as of ${seen.as_of}`)
    }
    const send = message => { asked = Date.now(); model.send(message) }
    const tick = () => {
      const silent = asked ? Date.now() - asked : 0
      if (wanted && Date.now() > wanted.before) {
        wanted = null
        say(said, 'The kernel did not answer; nothing was done.')
      }
      if (!asked || silent > LOST) send({ type: 'ask' })
      else if (silent > BUSY) say(age, `The kernel is busy or gone: no answer for ${Math.round(silent / 1000)} s. As of ${seen.as_of}`)
    }
    const click = (node, type, warning) => node.addEventListener('click', event => {
      if (event.detail > 1) return // a double click is one click
      clearTimeout(unsure)
      if (armed !== node) {
        armed = node
        say(said, warning())
        unsure = setTimeout(() => { armed = null; say(said, ''); draw() }, SURE)
      } else {
        armed = null
        wanted = { type, until: seen.until, before: Date.now() + BUSY }
        say(said, 'Asking the kernel …')
        if (!asked) send({ type: 'ask' })
      }
      draw()
    })
    const heard = message => {
      asked = 0
      if (message.said && !armed) say(said, message.said)
      if (message.seen) seen = message.seen
      draw()
      if (!wanted) return
      const { type, until, before } = wanted
      wanted = null
      if (Date.now() <= before) send({ type, until })
      else say(said, 'The kernel was busy; nothing was done.')
    }
    click(replay, 'replay', () => seen.warning)
    click(clear, 'clear', () => ARCHIVED)
    model.on('msg:custom', heard)
    draw()
    tick()
    const timer = setInterval(tick, EVERY)
    return () => { clearInterval(timer); clearTimeout(unsure); model.off('msg:custom', heard) }
  },
}
