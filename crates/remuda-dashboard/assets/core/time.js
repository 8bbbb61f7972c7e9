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

/** The zone times are shown in; that of the browser without one. @type {string | undefined} */
let zone;

/** A zone that is none is left out. @param {string} name */
export function inZone(name) {
  try {
    zone = name ? new Intl.DateTimeFormat(undefined, { timeZone: name }).resolvedOptions().timeZone : undefined;
  } catch {
    zone = undefined;
  }
}

/** In the time zone of who looks. @param {string | undefined} at */
export function absolute(at) {
  const time = new Date(at || '');
  return Number.isNaN(time.getTime()) ? '' : time.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium', timeZone: zone });
}

/** `12:04` today, otherwise with the date. @param {string} at @param {number} now */
export function clock(at, now) {
  const time = new Date(at);
  const day = (/** @type {Date} */ one) => one.toLocaleDateString('en', { timeZone: zone });
  const hours = time.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23', timeZone: zone });
  return day(new Date(now)) === day(time) ? hours : `${time.toLocaleDateString(undefined, { month: 'short', day: 'numeric', timeZone: zone })} ${hours}`;
}
