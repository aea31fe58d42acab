// What the pages do beyond being read; each of them works without it.
import './copy.js';
import './forms.js';
import './log.js';
import './refresh.js';
import './runs.js';
import './time.js';
