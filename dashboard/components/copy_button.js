export default function ({ data, parentElement }) {
  const button = parentElement.querySelector('button')
  button.disabled = !data.text
  button.title = data.tooltip
  if (button.pcText !== data.text) button.textContent = data.label
  button.pcText = data.text
  button.onclick = async () => {
    button.textContent = await copied(data.text) ? 'Copied' : 'Copy failed'
    setTimeout(() => { button.textContent = data.label }, 2000)
  }
}
