// A form that is on its way is not sent again by a second click.

/** The click on "stop" of a browser says nothing to the page: after this long, in milliseconds, a form may be sent again. */
const SENT_MS = 10_000;

document.addEventListener('submit', (event) => {
  const form = event.target;
  if (form.method !== 'post') return;
  if (form.dataset.sent === undefined) {
    form.dataset.sent = '';
    setTimeout(() => delete form.dataset.sent, SENT_MS);
  } else event.preventDefault();
});

// The page may come back as it was left.
addEventListener('pageshow', () => {
  for (const form of document.forms) delete form.dataset.sent;
});
