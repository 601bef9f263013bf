// Everything of a message is set as text, never as HTML.
const EVERY = 2000, BUSY = 6000, SURE = 5000
const make = (parent, tag, name) => {
  const node = document.createElement(tag)
  if (name) node.className = name
  parent.append(node)
  return node
}
const bars = (svg, sent, failed) => {
  const width = 640, height = 80, top = Math.max(1e-9, ...sent, ...failed), step = width / Math.max(1, sent.length)
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`)
  svg.setAttribute('preserveAspectRatio', 'none')
  svg.replaceChildren()
  sent.forEach((good, place) => {
    for (const [value, colour] of [[good, '#2563eb'], [failed[place], '#dc2626']]) {
      if (!value) continue
      const tall = Math.max(1, (height - 2) * value / top), bar = document.createElementNS(svg.namespaceURI, 'rect')
      const box = { x: place * step, y: height - tall, width: step * 0.8, height: tall, fill: colour }
      for (const [name, v] of Object.entries(box)) bar.setAttribute(name, v)
      svg.append(bar)
    }
  })
}
export default {
  render({ model, el }) {
    const root = make(el, 'div', 'pc-monitor')
    const sentence = make(root, 'div', 'pc-sentence'), tiles = make(root, 'div', 'pc-tiles')
    sentence.setAttribute('role', 'status')
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
    svg.setAttribute('role', 'img')
    svg.setAttribute('aria-label', 'Messages a second: acknowledged blue, failed red')
    root.append(svg)
    const dead = make(root, 'div', 'pc-dead'), acts = make(root, 'div', 'pc-acts')
    const replay = make(acts, 'button'), clear = make(acts, 'button'), said = make(acts, 'span', 'pc-said')
    const age = make(root, 'small', 'pc-age')
    let asked = 0, sure = null, seen = model.get('first')
    const label = (button, words) => {
      const armed = sure && sure.button === button
      button.textContent = armed ? `${words}: sure?` : words
    }
    const draw = () => {
      sentence.textContent = seen.sentence
      sentence.className = `pc-sentence pc-${seen.tone}`
      tiles.replaceChildren()
      for (const [name, value] of seen.tiles) {
        const tile = make(tiles, 'span')
        tile.textContent = name
        make(tile, 'b').textContent = value
      }
      bars(svg, seen.sent, seen.failed)
      dead.textContent = seen.dead.length ? 'Dead letters: ' + seen.dead.map(([t, n]) => `${t} ${n}`).join(', ') : ''
      const number = seen.dead_total || ''
      label(replay, `Replay ${number}`)
      label(clear, `Clear ${number}`)
      replay.disabled = !seen.dead_total || !!seen.why_not
      replay.title = seen.why_not || seen.warning || ''
      clear.disabled = !seen.dead_total
      age.textContent = `as of ${seen.as_of}`
      for (const node of document.querySelectorAll('.pc-static-' + model.get('uid'))) {
        (node.closest('.jp-OutputArea-child') ?? node).style.display = 'none'
      }
    }
    const ask = type => {
      const now = Date.now()
      if (asked && now - asked < (type === 'ask' ? 30000 : 0)) {
        if (now - asked > BUSY) age.textContent = `kernel busy; as of ${seen.as_of}`
        return
      }
      asked = now
      model.send({ type })
    }
    const click = (button, type) => button.addEventListener('click', () => {
      if (!sure || sure.button !== button) {
        sure = { button }
        setTimeout(() => { if (sure && sure.button === button) { sure = null; draw() } }, SURE)
      } else if (!asked || Date.now() - asked < BUSY) {
        sure = null
        asked = 0
        ask(type)
      } else {
        said.textContent = 'The kernel is busy; nothing was done.'
        sure = null
      }
      draw()
    })
    click(replay, 'replay')
    click(clear, 'clear')
    const heard = message => {
      asked = 0
      if (message.said) said.textContent = message.said
      if (message.seen) seen = message.seen
      draw()
    }
    model.on('msg:custom', heard)
    draw()
    const timer = setInterval(() => ask('ask'), EVERY)
    return () => { clearInterval(timer); model.off('msg:custom', heard) }
  },
}
