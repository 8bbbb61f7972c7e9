// Icons of our own, 16 by 16 in strokes of one weight.

import { h } from '../core/dom.js';

/** @type {Record<string, string[]>} */
const PATHS = {
  home: ['M2.5 7.5 8 3l5.5 4.5', 'M4 7v6h8V7'],
  cluster: ['M8 2.2 13.2 5v6L8 13.8 2.8 11V5Z', 'M2.8 5 8 7.8 13.2 5', 'M8 7.8v6'],
  machine: ['M2.5 3.5h11v4h-11Z', 'M2.5 8.5h11v4h-11Z', 'M5 5.5h.01', 'M5 10.5h.01'],
  node: ['M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11', 'M8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6'],
  people: ['M8 8a2.6 2.6 0 1 0 0-5.2A2.6 2.6 0 0 0 8 8', 'M3 13.5c.5-2.4 2.3-3.6 5-3.6s4.5 1.2 5 3.6'],
  key: ['M5.5 10.5a2.7 2.7 0 1 0 0-5.4 2.7 2.7 0 0 0 0 5.4', 'M8.2 7.8h5.3', 'M11.5 7.8v2.4'],
  settings: ['M2.5 5h6', 'M11.5 5h2', 'M10 3.5v3', 'M2.5 11h2', 'M7.5 11h6', 'M6 9.5v3'],
  search: ['M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9', 'm10.4 10.4 3.1 3.1'],
  plus: ['M8 3v10', 'M3 8h10'],
  minus: ['M3 8h10'],
  more: ['M3.5 8h.01', 'M8 8h.01', 'M12.5 8h.01'],
  close: ['m4 4 8 8', 'm12 4-8 8'],
  copy: ['M5.5 5.5h7v8h-7Z', 'M3.5 10.5v-8h7'],
  sun: ['M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5', 'M8 1.8v1.4', 'M8 12.8v1.4', 'M1.8 8h1.4', 'M12.8 8h1.4', 'm3.6 3.6 1 1', 'm11.4 11.4 1 1', 'm12.4 3.6-1 1', 'm4.6 11.4-1 1'],
  moon: ['M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5Z'],
  density: ['M2.5 4h11', 'M2.5 8h11', 'M2.5 12h11'],
  columns: ['M2.5 3.5h11v9h-11Z', 'M6.2 3.5v9', 'M9.8 3.5v9'],
  shield: ['M8 2.2 13 4v3.6c0 3-2 5-5 6.2-3-1.2-5-3.2-5-6.2V4Z'],
  lock: ['M3.5 7h9v6.5h-9Z', 'M5.5 7V5a2.5 2.5 0 0 1 5 0v2'],
  sheet: ['M3.5 2.5h6l3 3v8h-9Z', 'M6 8h4', 'M6 10.5h4'],
  menu: ['M2.5 4.5h11', 'M2.5 8h11', 'M2.5 11.5h11'],
  out: ['M6.5 2.5h-3v11h3', 'M7 8h6.5', 'm11 5.5 2.5 2.5-2.5 2.5'],
  up: ['m4.5 9.5 3.5-3.5 3.5 3.5'],
  down: ['m4.5 6.5 3.5 3.5 3.5-3.5'],
  right: ['m6.5 4.5 3.5 3.5-3.5 3.5'],
  download: ['M8 2.5v7.5', 'm5 7.5 3 3 3-3', 'M3 13.5h10'],
  import: ['M2.5 8h7', 'm7 5.5 2.5 2.5L7 10.5', 'M9 2.5h4.5v11H9'],
  clock: ['M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11', 'M8 5v3.2l2.2 1.3'],
  bell: ['M4.5 11V7a3.5 3.5 0 0 1 7 0v4', 'M3 11h10', 'M7 13.5h2'],
  refresh: ['M13 8a5 5 0 1 1-1.6-3.7', 'M13 2.5v2.8h-2.8'],
};

/** @param {string} name @param {{size?: number, label?: string}} [options] */
export function icon(name, options = {}) {
  const size = options.size || 16;
  return h(
    'svg',
    { class: 'icon', width: size, height: size, viewBox: '0 0 16 16', 'aria-hidden': options.label ? null : 'true', role: options.label ? 'img' : null, 'aria-label': options.label },
    (PATHS[name] || []).map((d) => h('path', { d })),
  );
}

/** The shape of a state: never colour alone. @param {string} tone */
export function shape(tone) {
  /** @type {Record<string, any>} */
  const shapes = {
    bad: h('path', { d: 'M6 1 11 10.5H1Z', fill: 'currentColor' }),
    warn: h('circle', { cx: 6, cy: 6, r: 4.5, fill: 'currentColor' }),
    move: h('path', { d: 'M6 1.5a4.5 4.5 0 1 1-4.2 2.9', fill: 'none', stroke: 'currentColor', 'stroke-width': 2 }),
    ok: h('path', { d: 'm2 6.2 2.8 2.8L10 3', fill: 'none', stroke: 'currentColor', 'stroke-width': 2 }),
    off: h('circle', { cx: 6, cy: 6, r: 4.2, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5, 'stroke-dasharray': '2 2' }),
  };
  return h('svg', { class: 'shape', width: 12, height: 12, viewBox: '0 0 12 12', 'aria-hidden': 'true' }, shapes[tone] || shapes.off);
}

export const logo = () =>
  h('svg', { class: 'logo-mark', width: 20, height: 20, viewBox: '0 0 20 20', 'aria-hidden': 'true' },
    h('path', { d: 'M4 16V8a6 6 0 0 1 12 0v8' }), h('circle', { cx: 4, cy: 16, r: 1 }), h('circle', { cx: 16, cy: 16, r: 1 }));
