// Shows times in the reader's zone: the exact one of an age on hover, and clock times of a log as they are there.
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'long' });

/** Call it for what is put into the page later, too. */
export function localizeTimes(root) {
  for (const time of root.querySelectorAll('time[datetime]')) {
    const date = new Date(time.dateTime);
    if (time.dataset.clock === undefined) time.title = exact.format(date);
    else time.textContent = clock(date);
  }
}

/** The time of a line of a log. @param ms milliseconds since the epoch */
export function timeElement(ms) {
  const element = document.createElement('time');
  element.dateTime = new Date(ms).toISOString();
  element.className = 'log-time';
  element.dataset.clock = '';
  return element;
}

function clock(date) {
  const pad = (value, length = 2) => String(value).padStart(length, '0');
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

localizeTimes(document);
