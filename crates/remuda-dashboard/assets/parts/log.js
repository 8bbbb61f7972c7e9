// A log that goes on: follow, search, wrap, times, download. Lines are added to the document as they come, and the
// oldest are dropped, so that a day of watching costs what a minute does.

import { ApiError, get, stream } from '../core/api.js';
import { h } from '../core/dom.js';
import { Lines, coloured, comparable, hits, logPath, timed } from '../core/log.js';
import { button } from './basics.js';
import { icon } from './icons.js';
import { save, toast } from './layers.js';

/** Lines that are kept. */
const KEPT = 5000;
/** Lines of the past that are asked for. */
const TAIL = 1000;

/** @typedef {{root: string, namespace: string, pod: string, container: string, previous: boolean}} Source */

export class LogView {
  /** @param {() => void} redraw of the page around it @param {() => boolean} goesOn whether the container still runs */
  constructor(redraw, goesOn) {
    this.redraw = redraw;
    this.goesOn = goesOn;
    this.place = document.createElement('div');
    this.place.className = 'log-lines';
    /** @type {HTMLElement | null} */
    this.box = null;
    /** @type {{time: string, text: string, element: HTMLElement}[]} */
    this.lines = [];
    /** @type {string[]} */
    this.waiting = [];
    this.frame = 0;
    this.last = '';
    this.dropped = 0;
    this.follow = true;
    this.wrap = true;
    this.times = false;
    this.query = '';
    this.found = 0;
    this.at = -1;
    /** @type {'reading' | 'live' | 'ended' | 'failed'} */
    this.phase = 'reading';
    /** @type {any} */
    this.error = null;
    /** @type {Source | null} */
    this.source = null;
    this.abort = new AbortController();
  }

  /** Shows a log, if it is not the one that is shown. @param {Source} source */
  open(source) {
    if (JSON.stringify(source) === JSON.stringify(this.source)) return;
    this.stop();
    this.source = source;
    this.lines = [];
    this.waiting = [];
    this.last = '';
    this.dropped = 0;
    this.found = 0;
    this.at = -1;
    this.place.replaceChildren();
    this.abort = new AbortController();
    this.run(source, this.abort.signal);
  }

  stop() {
    this.abort.abort();
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.source = null;
  }

  /** @param {Source} source @param {AbortSignal} signal */
  async run(source, signal) {
    this.phase = 'reading';
    while (!signal.aborted) {
      const lines = new Lines();
      try {
        await stream(logPath({ ...source, follow: true, tail: TAIL, since: this.last }), signal, (text) => {
          this.error = null;
          if (this.phase !== 'live') {
            this.phase = 'live';
            this.redraw();
          }
          this.add(lines.push(text));
        });
        this.add(lines.end());
        this.error = null;
        this.phase = 'ended';
        if (source.previous || !this.goesOn()) return this.redraw();
      } catch (error) {
        if (signal.aborted) return;
        this.error = error;
        this.phase = 'failed';
        this.redraw();
        // A container that is being made has no log yet; one that is not ours to read will not become so.
        if (error instanceof ApiError && [401, 403, 404].includes(error.status)) return;
      }
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }

  /** @param {string[]} lines */
  add(lines) {
    this.waiting.push(...lines);
    if (this.waiting.length > KEPT) {
      this.dropped += this.waiting.length - KEPT;
      this.waiting = this.waiting.slice(-KEPT);
    }
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.flush();
    });
  }

  flush() {
    const fresh = document.createDocumentFragment();
    for (const raw of this.waiting) {
      const [time, text] = timed(raw);
      // A stream that begins again begins with what was there already.
      const order = comparable(time);
      if (order && this.last && order <= comparable(this.last)) continue;
      if (time) this.last = time;
      const line = { time, text, element: document.createElement('div') };
      line.element.className = 'log-line';
      this.fill(line);
      this.lines.push(line);
      fresh.append(line.element);
    }
    this.waiting = [];
    this.place.append(fresh);
    const over = this.lines.length - KEPT;
    if (over > 0) {
      this.dropped += over;
      for (const line of this.lines.splice(0, over)) line.element.remove();
      if (this.query) this.count();
    }
    if (this.follow) this.toEnd();
    this.redraw();
  }

  /** @param {{time: string, text: string, element: HTMLElement}} line */
  fill(line) {
    const time = document.createElement('time');
    time.textContent = line.time ? `${line.time.slice(0, 23).replace('T', ' ')} ` : '';
    line.element.replaceChildren(time);
    for (const piece of coloured(line.text)) {
      const into = piece.style ? document.createElement('span') : line.element;
      if (piece.style) {
        into.className = piece.style;
        line.element.append(into);
      }
      for (const part of hits(piece.text, this.query)) {
        if (!part.hit) {
          into.append(part.text);
          continue;
        }
        const mark = document.createElement('mark');
        mark.textContent = part.text;
        into.append(mark);
        this.found += 1;
      }
    }
  }

  count() {
    this.found = this.place.getElementsByTagName('mark').length;
  }

  /** @param {string} query */
  search(query) {
    this.query = query;
    this.found = 0;
    this.at = -1;
    for (const line of this.lines) this.fill(line);
    if (query && this.found) this.step(-1);
    this.redraw();
  }

  /** To the next thing that was found, or the one before. @param {number} by */
  step(by) {
    const marks = this.place.getElementsByTagName('mark');
    if (!marks.length) return;
    marks[this.at]?.classList.remove('here');
    this.at = this.at < 0 ? marks.length - 1 : (this.at + by + marks.length) % marks.length;
    marks[this.at].classList.add('here');
    this.follow = false;
    marks[this.at].scrollIntoView({ block: 'center', inline: 'nearest' });
    this.redraw();
  }

  toEnd() {
    if (this.box) this.box.scrollTop = this.box.scrollHeight;
  }

  scrolled() {
    if (!this.box) return;
    const away = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight;
    if (this.follow && away > 40) {
      this.follow = false;
      this.redraw();
    }
  }

  async download() {
    if (!this.source) return;
    const { pod, container, previous } = this.source;
    try {
      save(`${pod}-${container}${previous ? '-previous' : ''}.log`, await get(logPath(this.source), { raw: true }), 'text/plain');
    } catch (error) {
      toast(/** @type {any} */ (error).message, 'bad');
    }
  }

  /** @param {any} more controls of the page @param {string} label */
  draw(more, label) {
    const toggle = (/** @type {string} */ text, /** @type {boolean} */ on, /** @type {() => void} */ run) =>
      h('button', { type: 'button', class: 'chip', 'aria-pressed': String(on), onclick: () => { run(); this.redraw(); } }, text);
    const state = this.phase === 'failed' ? this.error?.message : this.phase === 'reading' ? 'Reading …' : `${this.lines.length} lines${this.dropped ? `, ${this.dropped} older ones not shown` : ''}${this.phase === 'ended' ? ' · the container has ended' : ''}`;
    return h('section', { class: 'card log-card' },
      h('div', { class: 'filters' }, more,
        h('label', { class: 'find-box' }, icon('search'), h('input', {
          id: 'filter', type: 'search', placeholder: 'Search', 'aria-label': 'Search in the log', autocomplete: 'off', spellcheck: 'false', value: this.query,
          oninput: (/** @type {any} */ event) => this.search(event.target.value),
          onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === 'Enter') { event.preventDefault(); this.step(event.shiftKey ? 1 : -1); } },
        }), h('span', { class: 'small nowrap', role: 'status' }, this.query ? (this.found ? `${this.at + 1} of ${this.found}` : 'none') : '')),
        this.query && this.found ? h('span', { class: 'act' }, button({ icon: 'up', label: '', title: 'Earlier', kind: 'square', run: () => this.step(-1) }), button({ icon: 'down', label: '', title: 'Later', kind: 'square', run: () => this.step(1) })) : null,
        h('div', { class: 'chips', role: 'group', 'aria-label': 'How it is shown' },
          toggle('Follow', this.follow, () => { this.follow = !this.follow; if (this.follow) this.toEnd(); }),
          toggle('Wrap', this.wrap, () => { this.wrap = !this.wrap; }),
          toggle('Times', this.times, () => { this.times = !this.times; })),
        h('div', { class: 'act count' }, button({ label: 'Download', icon: 'download', run: () => this.download() }))),
      h('div', { class: `log ${this.wrap ? 'wraps' : ''} ${this.times ? 'times' : ''}`, tabindex: 0, role: 'region', 'aria-label': label, onscroll: () => this.scrolled(),
        ref: (/** @type {HTMLElement} */ el) => { this.box = el; el.append(this.place); queueMicrotask(() => this.follow && this.toEnd()); } }),
      h('p', { class: `small ${this.phase === 'failed' ? 'error' : 'muted'}`, role: 'status' }, state));
  }
}
