// Objects an object belongs to, is made of and uses.

import { h } from '../../core/dom.js';
import { CLUSTER, MACHINE } from '../../core/objects.js';
import { to } from '../../core/router.js';
import { badge, empty } from '../../parts/basics.js';
import { stateWord } from '../../core/objects.js';

/** A page there is for an object, or nothing. @param {string} type @param {string} id */
export function pageOf(type, id) {
  const [namespace, name] = id.split('/');
  if (!name) return '';
  if (type === CLUSTER) return to('clusters', namespace, name);
  if (type === MACHINE) return to('machines', namespace, name);
  return '';
}

/** What a relationship is called from one end and from the other. @type {Record<string, [string, string]>} */
const WORDS = { owner: ['owned by', 'owns'], creates: ['created by', 'creates'], applies: ['applied by', 'applies'], uses: ['used by', 'uses'], selects: ['selected by', 'selects'], machine: ['machine of', 'has machine'] };

/** @param {string} rel @param {boolean} up */
export const relation = (rel, up) => (Object.hasOwn(WORDS, rel) ? WORDS[rel][up ? 0 : 1] : rel);

/** @param {any} ctx @param {any} object @param {any[]} [more] objects below it that are known already */
export function related(ctx, object, more = []) {
  const rows = (object.metadata.relationships || []).map((/** @type {any} */ one) => ({
    rel: one.rel, type: one.toType || one.fromType || '', id: one.toId || one.fromId || '', up: Boolean(one.fromType), state: one.state, error: one.error, transitioning: one.transitioning,
  })).filter((/** @type {any} */ one) => one.id);
  for (const one of more) {
    if (rows.some((/** @type {any} */ row) => row.id === one.id && row.type === one.type)) continue;
    rows.push({ rel: 'machine', type: one.type, id: one.id, up: false, state: one.metadata.state?.name, error: one.metadata.state?.error, transitioning: one.metadata.state?.transitioning });
  }
  if (!rows.length) return empty({ title: 'No related objects', text: 'Nothing owns this, and it owns nothing.' });
  return h('div', { class: 'scroll', tabindex: 0 }, h('table', { class: 'plain' }, h('thead', null, h('tr', null, ['', 'Kind', 'Name', 'State'].map((name) => h('th', { scope: 'col' }, name)))),
    h('tbody', null, rows.map((/** @type {any} */ row) => {
      const href = pageOf(row.type, row.id);
      return h('tr', { key: `${row.rel} ${row.type} ${row.id}` }, h('td', { class: 'muted' }, relation(row.rel, row.up)), h('td', null, row.type), h('td', { class: 'mono wrap' }, href ? h('a', { class: 'link', href }, row.id) : row.id),
        h('td', null, row.state ? badge(row.error ? 'bad' : row.transitioning ? 'move' : 'ok', row.type === MACHINE && row.state === 'running' ? stateWord('active') : stateWord(row.state)) : ''));
    }))));
}
