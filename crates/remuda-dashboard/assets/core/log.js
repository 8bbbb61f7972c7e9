// Logs: lines out of a stream, their times and colours. Nothing here touches the document.

/** A line that never ends is cut here. */
const LONGEST = 16_384;

/** Makes lines of pieces of text. */
export class Lines {
  constructor() {
    this.rest = '';
  }

  /** @param {string} text @returns {string[]} lines that are complete */
  push(text) {
    const parts = (this.rest + text).split('\n');
    this.rest = parts.pop() || '';
    if (this.rest.length > LONGEST) {
      parts.push(this.rest);
      this.rest = '';
    }
    return parts.map((line) => line.replace(/\r$/, '').slice(0, LONGEST));
  }

  /** What came after the last end of a line. @returns {string[]} */
  end() {
    const rest = this.rest;
    this.rest = '';
    return rest ? [rest] : [];
  }
}

/** The time the kubelet writes before a line, and the line. @param {string} line @returns {[string, string]} */
export function timed(line) {
  const found = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ?/.exec(line);
  return found ? [found[1], line.slice(found[0].length)] : ['', line];
}

/** Times to compare: all digits of the fraction are there. @param {string} time */
export function comparable(time) {
  const found = /^(.{19})(?:\.(\d+))?/.exec(time);
  return found ? `${found[1]}.${(found[2] || '').padEnd(9, '0')}` : '';
}

const COLOURS = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];

/**
 * Text with the colours that terminals would show; other instructions to a terminal are left out.
 * @param {string} line
 * @returns {{text: string, style: string}[]}
 */
export function coloured(line) {
  /** @type {{text: string, style: string}[]} */
  const pieces = [];
  let colour = '';
  let bold = false;
  let at = 0;
  const add = (/** @type {string} */ text) => {
    const clean = text.replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, '');
    if (clean) pieces.push({ text: clean, style: [colour && `a-${colour}`, bold && 'a-bold'].filter(Boolean).join(' ') });
  };
  // CSI sequences, OSC sequences up to their end, and single letters after an escape.
  for (const found of line.matchAll(/\u001b(?:\[([0-9;?]*)([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g)) {
    add(line.slice(at, found.index));
    at = found.index + found[0].length;
    if (found[2] !== 'm') continue;
    for (const code of (found[1] || '0').split(';').map(Number)) {
      if (code === 0) [colour, bold] = ['', false];
      else if (code === 1) bold = true;
      else if (code === 22) bold = false;
      else if (code === 39) colour = '';
      else if (code >= 30 && code <= 37) colour = COLOURS[code - 30];
      else if (code >= 90 && code <= 97) colour = COLOURS[code - 90];
    }
  }
  add(line.slice(at));
  return pieces;
}

/** Text in parts that match and parts that do not, in any case. @param {string} text @param {string} query @returns {{text: string, hit: boolean}[]} */
export function hits(text, query) {
  if (!query) return [{ text, hit: false }];
  const [low, wanted] = [text.toLowerCase(), query.toLowerCase()];
  // Letters whose lower case is longer would move everything behind them.
  if (low.length !== text.length) return [{ text, hit: false }];
  const parts = [];
  let at = 0;
  for (let found = low.indexOf(wanted); found >= 0; found = low.indexOf(wanted, at)) {
    if (found > at) parts.push({ text: text.slice(at, found), hit: false });
    parts.push({ text: text.slice(found, found + wanted.length), hit: true });
    at = found + wanted.length;
  }
  if (at < text.length) parts.push({ text: text.slice(at), hit: false });
  return parts;
}

/** @param {{root: string, namespace: string, pod: string, container: string, previous?: boolean, follow?: boolean, tail?: number, since?: string}} what */
export function logPath(what) {
  const search = new URLSearchParams({ container: what.container, timestamps: 'true' });
  if (what.previous) search.set('previous', 'true');
  if (what.follow && !what.previous) search.set('follow', 'true');
  if (what.since) search.set('sinceTime', what.since);
  else if (what.tail) search.set('tailLines', String(what.tail));
  return `${what.root}/api/v1/namespaces/${encodeURIComponent(what.namespace)}/pods/${encodeURIComponent(what.pod)}/log?${search}`;
}
