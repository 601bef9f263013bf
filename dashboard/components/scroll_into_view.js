export default function ({ data, parentElement }) {
  const target = parentElement.querySelector('.pc-scroll-target')
  if (target.pcDone) return
  target.pcDone = true
  const { top } = target.getBoundingClientRect()
  const visible = top >= 0 && top < innerHeight - data.margin
  if (!data.enabled || data.only_hidden && visible) return
  const reduced = matchMedia('(prefers-reduced-motion: reduce)').matches
  setTimeout(() => target.scrollIntoView({ behavior: reduced ? 'auto' : 'smooth', block: 'start' }), 150)
}
