// Who did what on this server: the newest lines of the audit log, for those who may read it.

import { get } from '../core/api.js';
import { auditPath, fits, lineOf, toneOf } from '../core/audit.js';
import { h } from '../core/dom.js';
import { clock } from '../core/time.js';
import { badge, button, empty, failure, pageHead, skeleton } from '../parts/basics.js';
import { filterBar } from '../parts/table.js';

const FIRST = 200;
const MOST = 1000;

/** @param {any} ctx */
export function auditPage(ctx) {
  /** @type {any[] | null} */
  let lines = null;
  /** Whether there is nothing before what was read. */
  let complete = false;
  let limit = FIRST;
  let busy = false;
  /** @type {any} */
  let error = null;
  const user = () => ctx.query.get('user') || '';
  let asked = '';
  async function read() {
    busy = true;
    asked = user();
    ctx.redraw();
    try {
      const list = await get(auditPath({ user: asked, limit }));
      lines = list.items.map(lineOf);
      complete = list.complete;
      error = null;
    } catch (failed) {
      error = failed;
    }
    busy = false;
    ctx.redraw();
  }
  read();

  const col = (/** @type {string} */ label, /** @type {string} */ kind = '') => h('th', { scope: 'col', class: kind }, label);

  /** @param {any[]} shown */
  const table = (shown) => h('table', { class: 'rows still audit', 'aria-label': 'Audit log' },
    h('thead', null, h('tr', null, col('Answer', 'c-state'), col('When', 'c-num'), col('Who', 'c-wide'), col('What'), col('From', 'p3 c-num'))),
    h('tbody', null, shown.map((line) => h('tr', { key: line.key },
      h('td', { class: 'c-state' }, badge(toneOf(line), line.code ? String(line.code) : 'none', line.why || undefined)),
      h('td', { class: 'c-num muted', title: line.at }, line.at ? clock(line.at, Date.now()) : ''),
      h('td', { class: 'c-wide' }, h('button', { type: 'button', class: 'link plain-button', title: `Only ${line.who}`, onclick: () => ctx.setQuery({ user: line.who }) }, line.who), line.as ? h('span', { class: 'sub' }, `as ${line.as}`) : null),
      h('td', { class: 'wrap' }, h('b', null, line.verb), ' ', h('span', { class: 'mono small', title: line.what }, line.what), line.code >= 400 && line.why ? h('span', { class: 'sub' }, line.why) : null),
      h('td', { class: 'p3 c-num muted', title: line.agent }, line.from)))));

  return {
    title: 'Audit',
    onQuery: () => { if (asked !== user()) read(); },
    render() {
      const found = { text: ctx.query.get('q') || '', state: ctx.query.get('state') || '' };
      const shown = (lines || []).filter((line) => fits(line, found));
      return [
        pageHead({ title: 'Audit log', sub: 'Who asked for what, and what they were answered. Of the server you are connected to.', actions: [
          lines && !complete && limit < MOST ? button({ label: 'Further back', disabled: busy, run: () => { limit = MOST; read(); } }) : null,
          button({ label: 'Newest', icon: 'refresh', disabled: busy, run: read, id: 'newest' })] }),
        filterBar(ctx, { placeholder: 'Filter', chips: [['changes', 'Changes'], ['refused', 'Refused']], count: lines ? `${shown.length} of ${lines.length}${complete ? '' : ' newest'}` : '', more: user() ? h('button', { type: 'button', class: 'chip', 'aria-pressed': 'true', title: 'Everybody', onclick: () => ctx.setQuery({ user: '' }) }, `Only ${user()}`) : null }),
        h('section', { class: 'card table-card' }, error ? (error.status === 404 ? empty({ title: 'No audit log is kept', text: 'Start the server with --audit-log FILE for one.', icon: 'sheet' }) : failure(error, read)) : !lines ? skeleton(8) : !shown.length ? empty({ title: lines.length ? 'Nothing fits the filter' : 'Nothing was asked yet', icon: 'sheet' }) : table(shown)),
      ];
    },
  };
}
