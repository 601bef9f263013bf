(() => {
  const placeholder = document.createElement('div'), drawn = () => document.querySelector(DRAWN)
  placeholder.id = 'pc-first'
  placeholder.innerHTML = PLACEHOLDER
  document.body.prepend(placeholder)
  const timer = setTimeout(() => { placeholder.querySelectorAll('p')[2].textContent = DELAYED }, DELAYED_AFTER)
  const observer = new MutationObserver(() => {
    if (drawn()) { observer.disconnect(); clearTimeout(timer); placeholder.remove() }
  })
  observer.observe(document.getElementById('root'), { childList: true, subtree: true })
})()
