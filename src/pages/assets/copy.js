// Gives every code block with something to run a button that copies it. Without it, the page works as well.
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

/** Browsers give access to the clipboard on https and localhost only; elsewhere the old way works, or the reader's keys. */
async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return document.execCommand('copy');
  }
}
