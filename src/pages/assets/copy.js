// Adds a copy button to every code block that holds something to run. The page works without it.
const status = document.createElement('p');
status.setAttribute('role', 'status');
status.className = 'skip';
document.body.append(status);

for (const block of document.querySelectorAll('.code')) {
  const pre = block.querySelector('pre');
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    const isCopied = await copy(pre);
    button.textContent = isCopied ? 'Copied' : 'Press Ctrl+C';
    status.textContent = isCopied ? 'The code is copied.' : 'The code is selected; press Ctrl+C.';
    setTimeout(() => {
      button.textContent = 'Copy';
      status.textContent = '';
    }, 2000);
  });
  block.append(button);
}

/** Browsers offer the clipboard API on https and localhost only; elsewhere the old command works, or the keyboard. */
async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return document.execCommand('copy');
  }
}
