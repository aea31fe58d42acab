// Buttons that copy the text of an element. Without a clipboard, on plain http of another machine, they select it.
for (const button of document.querySelectorAll('button[data-copy]')) {
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener('click', async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = 'Selected: press Ctrl+C';
    }
    setTimeout(() => {
      button.textContent = label;
    }, 2000);
  });
}
