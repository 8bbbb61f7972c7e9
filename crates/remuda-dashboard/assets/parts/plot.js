// Values over time, and shares of a whole. Drawn in the element itself, read out as a table.

import { h } from '../core/dom.js';
import { axisTop } from '../core/room.js';
import { clock } from '../core/time.js';

/** @typedef {{name: string, form: 'area' | 'line', points: [number, number][]}} Series */
/** @typedef {{label: string, series: Series[], limit?: {name: string, value: number}, word: (value: number) => string, binary?: boolean}} Plotted */

const [WIDTH, HEIGHT] = [320, 112];
const [LEFT, RIGHT, TOP, BOTTOM] = [4, 316, 14, 94];
/** Rows of the table beside it. */
const ROWS = 12;

/**
 * Where values go: the newest to the right, what was before a gap not connected with what came after.
 * @param {[number, number][]} points @param {{from: number, to: number, top: number}} axes @param {number} gap
 * @returns {[number, number][][]}
 */
export function pathOf(points, axes, gap) {
  /** @type {[number, number][][]} */
  const runs = [];
  let before = -Infinity;
  for (const [at, value] of points) {
    const x = axes.to > axes.from ? LEFT + ((at - axes.from) / (axes.to - axes.from)) * (RIGHT - LEFT) : RIGHT;
    const y = BOTTOM - Math.min(1, Math.max(0, value / axes.top)) * (BOTTOM - TOP);
    if (at - before > gap) runs.push([]);
    runs[runs.length - 1].push([Math.round(x * 10) / 10, Math.round(y * 10) / 10]);
    before = at;
  }
  return runs;
}

/** The place of the point that is nearest to a time; -1 if there is none. @param {number[]} times @param {number} at */
export function nearest(times, at) {
  let best = -1;
  for (let place = 0; place < times.length; place += 1) if (best < 0 || Math.abs(times[place] - at) < Math.abs(times[best] - at)) best = place;
  return best;
}

/** A few of many, the first and the last among them. @template T @param {T[]} list @param {number} most @returns {T[]} */
export function thinned(list, most) {
  if (list.length <= most) return list;
  return Array.from({ length: most }, (_, place) => list[Math.round((place * (list.length - 1)) / (most - 1))]);
}

const d = (/** @type {[number, number][]} */ run) => run.map(([x, y], place) => `${place ? 'L' : 'M'}${x} ${y}`).join('');

/** A plot keeps where the pointer is; everything else it is told. */
export class Plot {
  /** @param {() => void} redraw */
  constructor(redraw) {
    this.redraw = redraw;
    /** Time that is looked at; 0 is the newest. */
    this.at = 0;
    /** @type {number[]} */
    this.times = [];
  }

  /** @param {number} at */
  look(at) {
    if (at === this.at) return;
    this.at = at;
    this.redraw();
  }

  /** @param {PointerEvent} event */
  point(event) {
    const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    const share = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (RIGHT - LEFT);
    const [from, to] = [this.times[0], this.times.at(-1) || 0];
    this.look(this.times[nearest(this.times, from + share * (to - from))] || 0);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !this.times.length) return;
    event.preventDefault();
    const place = this.at ? nearest(this.times, this.at) : this.times.length - 1;
    this.look(this.times[Math.max(0, Math.min(this.times.length - 1, place + step))]);
  }

  /** @param {Plotted} given */
  draw(given) {
    const { label, series, limit, word, binary } = given;
    this.times = [...new Set(series.flatMap((one) => one.points.map(([at]) => at)))].sort((a, b) => a - b);
    if (!this.times.length) return null;
    const [from, to] = [this.times[0], this.times[this.times.length - 1]];
    const most = Math.max(...series.flatMap((one) => one.points.map(([, value]) => value)));
    const top = axisTop(most, limit?.value || 0, binary);
    // Looks are missed while a page is not looked at: a gap is drawn as one.
    const gap = 4 * Math.max(15_000, (to - from) / Math.max(1, this.times.length - 1));
    const axes = { from, to, top };
    const now = Date.now();
    const seen = this.times[nearest(this.times, this.at || to)];
    const said = series.map((one) => ({ name: one.name, value: one.points.find(([at]) => at === seen)?.[1] })).filter((one) => one.value !== undefined);
    const text = said.map((one) => `${one.name} ${word(Number(one.value))}`).join(', ');
    const x = to > from ? LEFT + ((seen - from) / (to - from)) * (RIGHT - LEFT) : RIGHT;
    const whole = limit && limit.value <= top ? BOTTOM - (limit.value / top) * (BOTTOM - TOP) : null;
    return h('figure', { class: 'plot', key: label },
      h('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: 0, role: 'slider', 'aria-label': `${label} over time`, 'aria-valuemin': 0, 'aria-valuemax': this.times.length - 1, 'aria-valuenow': nearest(this.times, seen), 'aria-valuetext': `${clock(new Date(seen).toISOString(), now)}: ${text}`,
        onpointermove: (/** @type {PointerEvent} */ event) => this.point(event), onpointerleave: () => this.look(0), onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event), onblur: () => this.look(0) },
        [TOP, (TOP + BOTTOM) / 2, BOTTOM].map((y, place) => h('path', { key: `grid${place}`, class: 'grid-line', d: `M${LEFT} ${y}H${RIGHT}` })),
        series.flatMap((one, place) => pathOf(one.points, axes, gap).flatMap((run, at) => [
          one.form === 'area' && run.length > 1 ? h('path', { key: `a${place} ${at}`, class: `area s${place}`, d: `${d(run)}L${run[run.length - 1][0]} ${BOTTOM}L${run[0][0]} ${BOTTOM}Z` }) : null,
          run.length > 1 ? h('path', { key: `l${place} ${at}`, class: `line s${place}`, d: d(run) }) : h('circle', { key: `c${place} ${at}`, class: `point s${place}`, cx: run[0][0], cy: run[0][1], r: 2.5 }),
        ])),
        whole === null ? null : h('path', { key: 'limit', class: 'limit', d: `M${LEFT} ${whole}H${RIGHT}` }),
        this.at ? h('path', { key: 'cursor', class: 'cursor', d: `M${x} ${TOP}V${BOTTOM}` }) : null,
        h('text', { key: 'top', x: LEFT, y: TOP - 4 }, word(top)),
        h('text', { key: 'from', x: LEFT, y: HEIGHT - 4 }, to > from ? clock(new Date(from).toISOString(), now) : ''),
        h('text', { key: 'to', x: RIGHT, y: HEIGHT - 4, 'text-anchor': 'end' }, this.at ? clock(new Date(seen).toISOString(), now) : 'now')),
      h('figcaption', { class: 'small' }, said.map((one) => h('span', { key: one.name, class: 'key' }, h('i', { class: `s${series.findIndex((each) => each.name === one.name)}` }), `${one.name} ${word(Number(one.value))}`)), limit && whole !== null ? h('span', { class: 'key', key: 'limit' }, h('i', { class: 'limit' }), `${limit.name} ${word(limit.value)}`) : null),
      h('table', { class: 'visually-hidden' }, h('caption', null, label), h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Time'), series.map((one) => h('th', { scope: 'col', key: one.name }, one.name)))),
        h('tbody', null, thinned(this.times, ROWS).map((at) => h('tr', { key: at }, h('th', { scope: 'row' }, clock(new Date(at).toISOString(), now)), series.map((one) => h('td', { key: one.name }, word(one.points.find(([own]) => own === at)?.[1] ?? NaN))))))));
  }
}

/** How much of a whole: what is used within what was asked for. @param {string} label @param {number} asked @param {number | null} used @param {number} whole @param {(value: number) => string} word */
export function share(label, asked, used, whole, word) {
  const of = (/** @type {number} */ part) => (whole > 0 ? Math.min(1, part / whole) * 100 : 0);
  const text = `${used === null ? '' : `${word(used)} used, `}${word(asked)} asked for, of ${word(whole)}`;
  const tone = of(used ?? asked) > 90 ? 'bad' : of(used ?? asked) > 75 ? 'move' : 'ok';
  return h('span', { class: 'share', title: text }, h('svg', { class: 'bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${label}: ${text}` },
    used === null ? h('rect', { key: 'asked', class: tone, x: 0, y: 0, width: of(asked), height: 8 }) : [h('rect', { key: 'asked', class: 'asked', x: 0, y: 0, width: of(asked), height: 8 }), h('rect', { key: 'used', class: tone, x: 0, y: 2, width: of(used), height: 4 })]),
    h('span', { class: 'muted small' }, whole > 0 ? `${Math.round(of(used ?? asked))} %` : '–'));
}
