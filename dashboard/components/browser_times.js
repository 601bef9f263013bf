// Formats times in the browser's zone and in UTC, for live_dom.js.
const two = number => String(number).padStart(2, '0')
const local = at => {
  const d = new Date(at * 1000), now = new Date()
  const time = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`
  return d.toDateString() === now.toDateString() ? time : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${time}`
}
const utc = at => new Date(at * 1000).toISOString().slice(0, 19).replace('T', ' ') + ' UTC'
