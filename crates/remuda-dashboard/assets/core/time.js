// Times as people say them.

const STEPS = /** @type {const} */ ([
  [60, 1, 's'],
  [3600, 60, 'min'],
  [86400, 3600, 'h'],
  [86400 * 365, 86400, 'd'],
  [Infinity, 86400 * 365, 'y'],
]);

/** @param {number} seconds */
export function span(seconds) {
  const length = Math.max(0, Math.round(Math.abs(seconds)));
  for (const [below, unit, name] of STEPS) if (length < below) return `${Math.floor(length / unit)} ${name}`;
  return '';
}

/** `4 min ago`, `in 2 d`. @param {string | undefined} at @param {number} now */
export function relative(at, now) {
  const time = Date.parse(at || '');
  if (Number.isNaN(time)) return '';
  const seconds = (now - time) / 1000;
  if (Math.abs(seconds) < 5) return 'now';
  return seconds > 0 ? `${span(seconds)} ago` : `in ${span(seconds)}`;
}

/** How old something is. @param {string | undefined} at @param {number} now */
export function age(at, now) {
  const time = Date.parse(at || '');
  return Number.isNaN(time) ? '' : span((now - time) / 1000);
}

/** In the time zone of who looks. @param {string | undefined} at */
export function absolute(at) {
  const time = new Date(at || '');
  return Number.isNaN(time.getTime()) ? '' : time.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
}

/** `12:04` today, otherwise with the date. @param {string} at @param {number} now */
export function clock(at, now) {
  const time = new Date(at);
  const today = new Date(now).toDateString() === time.toDateString();
  const hours = time.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
  return today ? hours : `${time.toLocaleDateString(undefined, { month: 'short', day: 'numeric' })} ${hours}`;
}
