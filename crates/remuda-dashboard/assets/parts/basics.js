// Small things every page is made of.

import { h } from '../core/dom.js';
import { absolute, age, relative } from '../core/time.js';
import { conditionTone, stateOf } from '../core/objects.js';
import { icon, shape } from './icons.js';

/** Times that keep themselves current. All of them share one timer, and none runs while none is shown. */
const clocks = new Set();
let ticking = 0;

class RelativeTime extends HTMLElement {
  static observedAttributes = ['at', 'form'];

  connectedCallback() {
    clocks.add(this);
    this.show();
    if (!ticking) ticking = setInterval(() => document.hidden || clocks.forEach((one) => one.show()), 1000);
  }

  disconnectedCallback() {
    clocks.delete(this);
    if (!clocks.size) {
      clearInterval(ticking);
      ticking = 0;
    }
  }

  attributeChangedCallback() {
    if (this.isConnected) this.show();
  }

  show() {
    const at = this.getAttribute('at') || '';
    const text = this.getAttribute('form') === 'age' ? age(at, Date.now()) : relative(at, Date.now());
    if (this.textContent !== text) this.textContent = text;
    if (!this.title) this.title = absolute(at);
  }
}
customElements.define('r-time', RelativeTime);

/** @param {string | undefined} at */
export const ago = (at) => (at ? h('r-time', { at }) : '');
/** @param {string | undefined} at */
export const ageOf = (at) => (at ? h('r-time', { at, form: 'age' }) : '');

/** @param {string} tone @param {string} word @param {string} [title] */
export const badge = (tone, word, title) => h('span', { class: `badge ${tone}`, title }, shape(tone), word);

/** @param {any} object */
export function stateBadge(object) {
  const state = stateOf(object);
  return badge(state.tone, state.word, state.message || undefined);
}

/**
 * @param {{label: any, icon?: string, run?: (event: Event) => void, href?: string, kind?: string, disabled?: boolean, title?: string, id?: string, type?: string}} options
 */
export function button(options) {
  const content = [options.icon ? icon(options.icon) : null, options.label ? h('span', null, options.label) : null];
  const shared = { class: `button ${options.kind || ''}`, title: options.title, id: options.id, 'aria-label': options.label ? null : options.title };
  if (options.href) return h('a', { ...shared, href: options.href }, content);
  return h('button', { ...shared, type: options.type || 'button', onclick: options.run, disabled: options.disabled }, content);
}

/** @param {{title: any, sub?: any, crumbs?: any, actions?: any, badge?: any}} head */
export const pageHead = (head) =>
  h('header', { class: 'head' },
    h('div', { class: 'head-title' },
      head.crumbs ? h('nav', { class: 'crumbs', 'aria-label': 'Where this is' }, head.crumbs) : null,
      h('div', { class: 'head-line' }, h('h1', { tabindex: -1 }, head.title), head.badge),
      head.sub ? h('p', { class: 'muted' }, head.sub) : null),
    head.actions ? h('div', { class: 'act' }, head.actions) : null);

/** @param {string} title @param {any} body @param {{note?: any, class?: string, actions?: any}} [options] */
export const card = (title, body, options = {}) =>
  h('section', { class: `card ${options.class || ''}` },
    title ? h('div', { class: 'card-head' }, h('h2', null, title, options.note ? h('span', { class: 'muted note' }, options.note) : null), options.actions) : null,
    body);

/** What would be here, and how to get it. @param {{title: string, text?: any, actions?: any, icon?: string}} options */
export const empty = (options) =>
  h('div', { class: 'empty' }, options.icon ? icon(options.icon, { size: 28 }) : null, h('h2', null, options.title), options.text ? h('p', null, options.text) : null,
    options.actions ? h('div', { class: 'act' }, options.actions) : null);

/** What failed, and what happens next. @param {any} error @param {() => void} [retry] */
export function failure(error, retry) {
  const denied = error?.status === 403;
  return h('div', { class: 'empty', role: 'alert' }, shape(denied ? 'off' : 'bad'),
    h('h2', null, denied ? 'This is not for you to see' : error?.status === 404 ? 'This does not exist' : 'This could not be loaded'),
    h('p', null, error?.message || 'unknown error'),
    error?.path ? h('p', { class: 'muted mono small' }, error.path) : null,
    error?.passing ? h('p', { class: 'muted' }, 'It is tried again every few seconds.') : null,
    retry ? button({ label: 'Try now', icon: 'refresh', run: retry }) : null);
}

/** Grey bars in the place of what is coming; after two seconds, a word. @param {number} rows */
export const skeleton = (rows = 5) =>
  h('div', { class: 'skeleton', role: 'status', 'aria-label': 'Loading' },
    Array.from({ length: rows }, (_, place) => h('i', { key: place })), h('p', { class: 'late muted' }, 'Still loading …'));

/** The content of something live in each of its phases. @param {any} live @param {() => any} draw @param {number} [rows] */
export function phase(live, draw, rows) {
  if (live.phase === 'ready') return draw();
  if (live.phase === 'loading') return skeleton(rows);
  return failure(live.error, () => live.refresh());
}

/** The headline of a page whose object is not well. @param {any} object @param {any} [action] */
export function causeLine(object, action) {
  const state = stateOf(object);
  if (!state.message || state.tone === 'ok') return null;
  const code = object?.metadata?.cause?.code;
  return h('div', { class: `cause ${state.tone}`, role: state.tone === 'bad' ? 'alert' : null }, shape(state.tone),
    h('div', null, h('b', null, state.message), code ? h('p', { class: 'muted' }, 'Cause: ', h('span', { class: 'mono' }, code)) : null), action);
}

/** @param {import('../core/objects.js').Bar} bar */
export function machineBarView(bar) {
  const total = Math.max(1, bar.ready + bar.changing + bar.broken + bar.missing);
  const parts = /** @type {[string, number, string][]} */ ([['ok', bar.ready, 'ready'], ['move', bar.changing, 'changing'], ['bad', bar.broken, 'broken'], ['off', bar.missing, 'missing']]);
  const words = parts.filter(([, count]) => count).map(([, count, word]) => `${count} ${word}`).join(', ') || 'none';
  return h('span', { class: 'machines', title: words },
    h('svg', { class: 'bar', width: 92, height: 6, viewBox: '0 0 92 6', role: 'img', 'aria-label': words }, barParts(parts, total)),
    h('span', { class: 'muted small' }, bar.ready >= bar.desired ? String(bar.desired) : `${bar.ready} of ${bar.desired}`));
}

/** @param {[string, number, string][]} parts @param {number} total */
function barParts(parts, total) {
  let x = 0;
  return parts.filter(([, count]) => count).map(([tone, count]) => {
    const width = (count / total) * 92;
    const part = h('rect', { key: tone, class: tone, x, y: 0, width: Math.max(0, width - 1), height: 6, rx: 2 });
    x += width;
    return part;
  });
}

/** Names and values, two by two. @param {[any, any][]} pairs */
export const facts = (pairs) =>
  h('dl', { class: 'facts' }, pairs.filter(([, value]) => value !== '' && value !== null && value !== undefined && value !== false)
    .map(([name, value]) => h('div', { key: String(name) }, h('dt', null, name), h('dd', null, value))));

/** @param {string} text @param {(text: string) => void} copied */
export const copyable = (text, copied) =>
  h('span', { class: 'copyable' }, h('span', { class: 'mono' }, text),
    h('button', { type: 'button', class: 'ghost', title: `Copy ${text}`, 'aria-label': `Copy ${text}`, onclick: () => copied(text) }, icon('copy', { size: 14 })));

/** On a phone not all tabs fit: the one that is open is among those that are seen. @param {HTMLElement} nav */
const shownTab = (nav) => requestAnimationFrame(() => {
  const open = /** @type {HTMLElement | null} */ (nav.querySelector('[aria-current]'));
  if (open) nav.scrollLeft = Math.max(0, open.offsetLeft - nav.offsetLeft + open.offsetWidth - nav.clientWidth + 24);
});

/** @param {[string, any, string][]} tabs id, label, address @param {string} current */
export const tabs = (tabs, current) =>
  h('nav', { class: 'tabs', 'aria-label': 'Parts of this page', ref: shownTab },
    tabs.map(([id, label, href]) => h('a', { key: id, href, 'aria-current': id === current ? 'page' : null }, label)));

/** @param {any[]} conditions */
export const conditionTable = (conditions) =>
  conditions?.length
    ? h('div', { class: 'scroll', tabindex: 0 }, h('table', { class: 'plain' },
        h('thead', null, h('tr', null, ['Condition', 'Status', 'Since', 'Message'].map((name) => h('th', { scope: 'col' }, name)))),
        h('tbody', null, conditions.map((one) => h('tr', { key: one.type },
          h('td', null, one.type), h('td', null, badge(conditionTone(one), one.status)), h('td', { class: 'muted nowrap' }, ago(one.lastTransitionTime)),
          h('td', { class: 'wrap' }, one.message || (one.reason && one.reason !== one.type ? h('span', { class: 'muted' }, one.reason) : '')))))))
    : empty({ title: 'No conditions yet', text: 'Controllers have not looked at this object so far.' });
