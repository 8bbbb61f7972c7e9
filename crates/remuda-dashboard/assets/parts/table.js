// A table of objects the server filters, sorts and pages: only rows that can be seen exist in the document.

import { h } from '../core/dom.js';
import { isTyping } from '../core/keys.js';
import { button, empty, failure, skeleton } from './basics.js';
import { icon } from './icons.js';
import { confirm, openDialog } from './layers.js';

/**
 * @typedef {{id: string, label: string, draw: (row: any) => any, sort?: string, priority?: 1 | 2 | 3, class?: string, fixed?: boolean, usual?: boolean}} Column
 * @typedef {{label: string, danger?: boolean, may: (row: any) => boolean, ask: (rows: any[]) => {title: string, body: any, action: string, typed?: string}, run: (row: any) => Promise<any>}} Bulk
 * @typedef {{list: any, columns: Column[], href: (row: any) => string, empty: any, label: string, name?: string, bulk?: Bulk[]}} Options
 */

/** Rows beyond the window that are drawn too, so that scrolling finds them there. */
const AROUND = 8;

/** Which rows a window sees. @param {number} top of the rows, seen from the window @param {number} height of the window @param {number} row @param {number} count */
export function visible(top, height, row, count) {
  const first = Math.max(0, Math.floor(-top / row) - AROUND);
  const last = Math.min(count, Math.ceil((height - top) / row) + AROUND);
  return first < last ? [first, last] : [0, Math.min(count, AROUND * 2)];
}

/** Columns that are shown: those one always needs, those that were chosen, or else the usual ones. @param {Column[]} columns @param {string[] | undefined} chosen */
export const shownColumns = (columns, chosen) => columns.filter((one) => one.fixed || (chosen ? chosen.includes(one.id) : one.usual !== false));

export class Table {
  /** @param {any} ctx of its page */
  constructor(ctx) {
    this.ctx = ctx;
    this.cursor = -1;
    this.range = [0, 30];
    this.over = false;
    /** Order of rows while the pointer is over them. @type {string[] | null} */
    this.frozen = null;
    /** @type {HTMLElement | null} */
    this.body = null;
    /** Rows that were chosen, which may be out of sight. @type {Map<string, any>} */
    this.selected = new Map();
    const moved = () => this.moved();
    addEventListener('scroll', moved, { passive: true });
    addEventListener('resize', moved);
    ctx.onStop(() => {
      removeEventListener('scroll', moved);
      removeEventListener('resize', moved);
    });
    ctx.keys([
      { keys: 'j or arrowdown', what: 'next row', run: () => this.step(1) },
      { keys: 'k or arrowup', what: 'previous row', run: () => this.step(-1) },
      { keys: 'enter', what: 'open the row', run: () => this.open(), when: () => this.cursor >= 0 && !document.activeElement?.closest('a,button') },
      { keys: 'x', what: 'select the row', run: () => this.toggle(this.rows()[this.cursor]), when: () => this.cursor >= 0 && Boolean(this.options?.bulk) },
    ]);
  }

  get rowHeight() {
    return this.ctx.app.prefs.density === 'dense' ? 34 : 52;
  }

  moved() {
    if (!this.body || !this.options) return;
    const top = this.body.getBoundingClientRect().top;
    const [from, to] = visible(top, innerHeight, this.rowHeight, this.options.list.count);
    if (from === this.range[0] && to === this.range[1]) return;
    this.range = [from, to];
    this.options.list.need(from, to);
    this.ctx.redraw();
  }

  /** @param {number} by */
  step(by) {
    const count = this.options?.list.count || 0;
    if (!count) return;
    this.cursor = Math.max(0, Math.min(count - 1, this.cursor + by));
    const top = (this.body?.getBoundingClientRect().top || 0) + this.cursor * this.rowHeight;
    if (top < 120) scrollBy(0, top - 120);
    else if (top + this.rowHeight > innerHeight - 20) scrollBy(0, top + this.rowHeight - innerHeight + 20);
    this.ctx.redraw();
  }

  /** What can be done with a row together with others. @param {any} row */
  actions(row) {
    return (this.options?.bulk || []).filter((one) => row && one.may(row));
  }

  /** @param {any} row */
  toggle(row) {
    if (!row || !this.actions(row).length) return;
    if (!this.selected.delete(row.id)) this.selected.set(row.id, row);
    this.ctx.redraw();
  }

  /** Does one thing to all that were chosen; what is refused stays chosen. @param {Bulk} bulk */
  async all(bulk) {
    const rows = [...this.selected.values()].filter(bulk.may);
    await confirm({
      danger: bulk.danger, wide: true, ...bulk.ask(rows),
      run: async () => {
        const ended = await Promise.allSettled(rows.map((row) => bulk.run(row)));
        const refused = ended.flatMap((one, at) => (one.status === 'rejected' ? [`${rows[at].metadata.name}: ${one.reason?.message || one.reason}`] : []));
        rows.forEach((row, at) => ended[at].status === 'fulfilled' && this.selected.delete(row.id));
        this.ctx.redraw();
        if (refused.length) throw new Error(refused.slice(0, 5).join('; '));
      },
    });
  }

  /** The line that says how many are chosen and what can be done with them. */
  chosen() {
    if (!this.selected.size || !this.options?.bulk) return null;
    const rows = [...this.selected.values()];
    return h('div', { class: 'chosen', role: 'status' }, h('b', null, `${rows.length} selected`),
      this.options.bulk.map((one) => {
        const count = rows.filter(one.may).length;
        return count ? button({ label: count === rows.length ? `${one.label} …` : `${one.label} ${count} …`, run: () => this.all(one) }) : null;
      }),
      button({ label: 'Clear', run: () => { this.selected.clear(); this.ctx.redraw(); } }));
  }

  /** A button with which columns are chosen. @param {string} name of the table @param {Column[]} columns */
  chooser(name, columns) {
    const free = columns.filter((one) => !one.fixed);
    if (!free.length) return null;
    return button({ icon: 'columns', label: '', title: 'Choose columns', kind: 'square', run: () => openDialog((close, redraw) => {
      const chosen = this.ctx.app.prefs.columns[name];
      const shown = shownColumns(free, chosen).map((one) => one.id);
      const set = (/** @type {string[] | undefined} */ ids) => { const { [name]: _, ...others } = this.ctx.app.prefs.columns; this.ctx.app.prefer({ columns: ids ? { ...others, [name]: ids } : others }); redraw(); };
      return h('div', null, h('h2', null, 'Columns'), h('div', { class: 'dialog-body' }, free.map((one) => h('label', { class: 'check', key: one.id }, h('input', { type: 'checkbox', name: one.id, checked: shown.includes(one.id), onchange: () => set(shown.includes(one.id) ? shown.filter((id) => id !== one.id) : [...shown, one.id]) }), one.label))),
        h('div', { class: 'act' }, chosen ? button({ label: 'The usual ones', run: () => set(undefined) }) : null, button({ label: 'Done', kind: 'primary', run: () => close() })));
    }, { label: 'Choose columns' }) });
  }

  open() {
    const row = this.rows()[this.cursor];
    if (row && this.options) this.ctx.go(this.options.href(row));
  }

  /** Rows by their place. Under the pointer they keep it. @returns {any[]} */
  rows() {
    const list = this.options?.list;
    if (!list) return [];
    const [from, to] = this.range;
    const rows = [];
    for (let place = from; place < Math.min(to, list.count); place += 1) rows[place] = list.row(place);
    if (!this.frozen) return rows;
    const byId = new Map(list.items.map((/** @type {any} */ row) => [row.id, row]));
    for (let place = from; place < to; place += 1) {
      const held = this.frozen[place];
      if (held && byId.has(held)) rows[place] = byId.get(held);
    }
    return rows;
  }

  /** How many rows are not where the server has them. */
  displaced() {
    if (!this.frozen || !this.options) return 0;
    let count = 0;
    for (let place = this.range[0]; place < this.range[1]; place += 1) {
      const row = this.options.list.row(place);
      if (row && this.frozen[place] && this.frozen[place] !== row.id) count += 1;
    }
    return count;
  }

  /** @param {boolean} over */
  hover(over) {
    this.over = over;
    if (over && this.options) {
      this.frozen = [];
      for (let place = this.range[0]; place < this.range[1]; place += 1) {
        const row = this.options.list.row(place);
        if (row) this.frozen[place] = row.id;
      }
    } else this.frozen = null;
    this.ctx.redraw();
  }

  /** @param {Options} options */
  draw(options) {
    const changed = this.options?.list !== options.list;
    this.options = options;
    const { list } = options;
    const columns = shownColumns(options.columns, options.name ? this.ctx.app.prefs.columns[options.name] : undefined);
    // Who may do nothing with any of them has nothing to select them for.
    const picks = list.items.some((/** @type {any} */ row) => this.actions(row).length);
    const span = columns.length + (picks ? 1 : 0);
    if (changed) {
      this.range = [0, Math.ceil(innerHeight / this.rowHeight) + AROUND];
      this.frozen = null;
      this.cursor = -1;
    }
    if (list.phase === 'loading') return h('section', { class: 'card table-card' }, skeleton(8));
    if (list.phase !== 'ready') return h('section', { class: 'card' }, failure(list.error, () => list.refresh()));
    if (!list.count) return h('section', { class: 'card' }, options.empty);
    const [from, to] = [this.range[0], Math.min(this.range[1], list.count)];
    const rows = this.rows();
    const height = this.rowHeight;
    const displaced = this.displaced();
    const sort = this.ctx.query.get('sort') || '';
    return h('section', { class: 'card table-card', onmouseenter: () => this.hover(true), onmouseleave: () => this.hover(false) },
      displaced ? h('button', { type: 'button', class: 'moved', onclick: () => this.hover(true) }, `${displaced} moved · show the new order`) : null,
      this.chosen(),
      h('table', { class: 'rows', 'aria-label': options.label, 'aria-rowcount': list.count + 1 },
        h('thead', null, h('tr', null, picks ? h('th', { key: 'check', scope: 'col', class: 'c-check' }, h('span', { class: 'visually-hidden' }, 'Select')) : null, columns.map((column) => this.heading(column, sort)))),
        h('tbody', { ref: (/** @type {HTMLElement} */ el) => { this.body = el; queueMicrotask(() => this.moved()); } },
          from > 0 ? h('tr', { key: 'above', class: 'spacer', 'aria-hidden': 'true' }, h('td', { colspan: span, style: { height: `${from * height}px` } })) : null,
          rows.slice(from, to).map((row, at) => this.row(row, from + at, options, columns, picks)),
          to < list.count ? h('tr', { key: 'below', class: 'spacer', 'aria-hidden': 'true' }, h('td', { colspan: span, style: { height: `${(list.count - to) * height}px` } })) : null)));
  }

  /** @param {Column} column @param {string} sort */
  heading(column, sort) {
    const cell = `p${column.priority || 1} ${column.class || ''}`;
    if (!column.sort) return h('th', { key: column.id, scope: 'col', class: cell }, column.label);
    const direction = sort === column.id ? 'ascending' : sort === `-${column.id}` ? 'descending' : null;
    const next = direction === 'ascending' ? `-${column.id}` : direction === 'descending' ? '' : column.id;
    return h('th', { key: column.id, scope: 'col', class: cell, 'aria-sort': direction },
      h('button', { type: 'button', class: 'sort', onclick: () => this.ctx.setQuery({ sort: next }) }, column.label,
        direction ? icon(direction === 'ascending' ? 'up' : 'down', { size: 12 }) : h('span', { class: 'sort-room' })));
  }

  /** @param {any} row @param {number} place @param {Options} options @param {Column[]} columns @param {boolean} picks */
  row(row, place, options, columns, picks) {
    if (!row) {
      return h('tr', { key: `place-${place}`, class: 'waiting', 'aria-rowindex': place + 2 }, picks ? h('td', { key: 'check' }) : null, columns.map((column) =>
        h('td', { key: column.id, class: `p${column.priority || 1} ${column.class || ''}` }, h('i'))));
    }
    const open = (/** @type {MouseEvent} */ event) => {
      if (event.target instanceof Element && event.target.closest('a,button,input,label')) return;
      if (getSelection()?.toString()) return;
      this.ctx.go(options.href(row));
    };
    const picked = this.selected.has(row.id);
    return h('tr', { key: row.id, class: `${place === this.cursor ? 'cursor' : ''} ${picked ? 'picked' : ''}`, 'aria-rowindex': place + 2, onclick: open },
      picks ? h('td', { key: 'check', class: 'c-check' }, this.actions(row).length ? h('label', { class: 'pick' }, h('input', { type: 'checkbox', checked: picked, 'aria-label': `Select ${row.metadata.name}`, onchange: () => this.toggle(row) })) : null) : null,
      columns.map((column) =>
      h('td', { key: column.id, class: `p${column.priority || 1} ${column.class || ''}` }, column.draw(row))));
  }
}

/** The order the server is asked for. @param {Column[]} columns @param {string} wanted @param {string} usual */
export function sortOf(columns, wanted, usual) {
  const down = wanted.startsWith('-');
  const column = columns.find((one) => one.id === wanted.replace(/^-/, ''));
  if (!column?.sort) return usual;
  return column.sort.split(',').map((part) => (down ? (part.startsWith('-') ? part.slice(1) : `-${part}`) : part)).join(',');
}

/**
 * The line above a table: words that filter, and states to choose from.
 * @param {any} ctx @param {{placeholder: string, chips: [string, any][], count: any, more?: any, columns?: any}} options
 */
export function filterBar(ctx, options) {
  const state = ctx.query.get('state') || '';
  return h('div', { class: 'filters' },
    h('label', { class: 'find-box' }, icon('search'), h('input', {
      id: 'filter', type: 'search', placeholder: options.placeholder, 'aria-label': options.placeholder, value: ctx.query.get('q') || '', autocomplete: 'off', spellcheck: 'false',
      oninput: (/** @type {any} */ event) => { const q = event.target.value; ctx.later('q', 40, () => ctx.setQuery({ q })); },
      onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === 'Escape' && isTyping(event.target)) /** @type {HTMLElement} */ (event.target).blur(); },
    }), h('kbd', null, '/')),
    options.more,
    h('div', { class: 'chips', role: 'group', 'aria-label': 'State' }, options.chips.map(([id, label]) =>
      h('button', { key: id, type: 'button', class: 'chip', 'aria-pressed': String(state === id), onclick: () => ctx.setQuery({ state: state === id ? '' : id }) }, label))),
    h('span', { class: 'muted small count' }, options.count),
    options.columns);
}

/** @param {boolean} filtered @param {any} ctx @param {any} otherwise */
export const nothing = (filtered, ctx, otherwise) =>
  filtered ? empty({ title: 'Nothing fits the filter', actions: h('button', { type: 'button', class: 'button', onclick: () => ctx.setQuery({ q: '', state: '' }) }, 'Clear the filter') }) : otherwise;
