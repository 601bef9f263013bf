// A quiet button whose menu copies texts. The menu is a popover, which no container cuts off.
const SHOWN = 2000
export default function ({ data, parentElement }) {
  const button = parentElement.querySelector('button'), menu = parentElement.querySelector('[popover]')
  const items = () => [...menu.querySelectorAll('button')]
  const names = JSON.stringify(data.groups.map(({ name, texts }) => [name, ...texts.map(([label]) => label)]))
  if (menu.pcNames !== names) { // a refresh with the same names keeps an open menu, its focus and its scroll position
    menu.pcNames = names
    menu.replaceChildren(...data.groups.map(({ name, texts }) => {
      const group = document.createElement('div'), title = document.createElement('div')
      group.setAttribute('role', 'group')
      group.setAttribute('aria-label', name)
      title.className = 'pc-copy-title'
      title.setAttribute('aria-hidden', 'true')
      title.textContent = name
      group.append(title, ...texts.map(([label]) => {
        const item = Object.assign(document.createElement('button'), { type: 'button', textContent: label, tabIndex: -1 })
        item.setAttribute('role', 'menuitem')
        return item
      }))
      return group
    }))
  }
  items().forEach((item, number) => { item.pcText = data.groups.flatMap(({ texts }) => texts)[number][1] })
  if (button.pcReady) return
  button.pcReady = true
  const close = () => { menu.hidePopover(); button.focus() }
  const say = (text, label) => { button.textContent = text; button.setAttribute('aria-label', label) }
  button.addEventListener('click', () => menu.togglePopover())
  menu.addEventListener('toggle', ({ newState }) => {
    button.setAttribute('aria-expanded', String(newState === 'open'))
    if (newState !== 'open') return
    const at = button.getBoundingClientRect(), { offsetWidth: width, offsetHeight: height } = menu
    const below = at.bottom + 4 + height <= innerHeight
    menu.style.left = `${Math.max(8, Math.min(at.left, innerWidth - width - 8))}px`
    menu.style.top = `${below ? at.bottom + 4 : Math.max(8, at.top - height - 4)}px`
    items()[0]?.focus()
  })
  menu.addEventListener('keydown', event => {
    const all = items(), place = all.indexOf(document.activeElement)
    const next = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: all.length - 1 }[event.key]
    if (next !== undefined) all.at(next % all.length).focus()
    else if (event.key === 'Escape' || event.key === 'Tab') close()
    else { event.stopPropagation(); return } // the keys of the page do not act while the menu is open
    event.preventDefault()
    event.stopPropagation()
  })
  menu.addEventListener('click', async event => {
    const item = event.target.closest('[role="menuitem"]')
    if (!item) return
    const done = await copied(item.pcText)
    close()
    say(done ? 'Copied' : 'Copy failed', done ? 'Copied' : 'Copy failed')
    setTimeout(() => say(button.pcLabel, button.pcName), SHOWN)
  })
  const scrolled = event => { // the button moves away from its menu
    if (!menu.isConnected) removeEventListener('scroll', scrolled, true)
    else if (!menu.contains(event.target) && menu.matches(':popover-open')) menu.hidePopover()
  }
  addEventListener('scroll', scrolled, true)
  button.pcLabel = button.textContent
  button.pcName = button.getAttribute('aria-label')
}
