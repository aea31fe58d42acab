// The page works without this script. It adds a copy button to every code block that holds something to run.
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

// Marks the section that is being read in the contents beside it.
const contents = new Map([...document.querySelectorAll('.toc a')].map((link) => [link.hash.slice(1), link]));
const headings = [...contents.keys()].map((id) => document.getElementById(id));

function markPlace() {
  const isAtEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
  const passed = headings.filter((heading) => heading.getBoundingClientRect().top < innerHeight / 3);
  const current = (isAtEnd ? headings : passed).at(-1) ?? headings[0];
  for (const [id, link] of contents) {
    if (id !== current.id) link.removeAttribute('aria-current');
    else if (!link.hasAttribute('aria-current')) {
      link.setAttribute('aria-current', 'location');
      const list = link.closest('.toc');
      // Only the list scrolls, and only where it stands beside the text.
      list.scrollTop = link.offsetTop - list.clientHeight / 2;
    }
  }
}

if (headings.length > 0) {
  let isDue = false;
  const onMove = () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      markPlace();
    });
  };
  addEventListener('scroll', onMove, { passive: true });
  addEventListener('resize', onMove);
  markPlace();
}
