// The command palette: go to anything, do anything one may.

import { get } from '../core/api.js';
import { h } from '../core/dom.js';
import { CLUSTER, MACHINE, quoted } from '../core/objects.js';
import { to } from '../core/router.js';
import { listPath } from '../core/store.js';
import { icon } from './icons.js';
import { openDialog } from './layers.js';

/** @typedef {{label: string, note?: string, icon: string, run: () => void}} Command */

/** Letters of the query, in their order; those that begin words and stand together count for more. @param {string} query @param {string} text */
export function score(query, text) {
  const [wanted, given] = [query.toLowerCase().trim(), text.toLowerCase()];
  if (!wanted) return 1;
  const place = given.indexOf(wanted);
  if (place === 0) return 100;
  if (place > 0) return /\W/.test(given[place - 1]) ? 80 : 60;
  let at = 0;
  let points = 20;
  for (const letter of wanted.replaceAll(' ', '')) {
    const found = given.indexOf(letter, at);
    if (found < 0) return 0;
    points -= Math.min(3, found - at);
    at = found + 1;
  }
  return Math.max(1, points);
}

/** @param {any} app */
export function openPalette(app) {
  let query = '';
  let place = 0;
  /** @type {Command[]} */
  let found = [];
  let timer = 0;
  let asked = 0;

  /** Objects whose name fits, from the server. @param {() => void} redraw */
  const look = (redraw) => {
    clearTimeout(timer);
    const text = query.trim();
    if (!text) {
      found = [];
      return;
    }
    const turn = (asked += 1);
    timer = setTimeout(async () => {
      const types = /** @type {[string, string, string][]} */ ([[CLUSTER, 'clusters', 'cluster'], [MACHINE, 'machines', 'machine']]);
      const lists = await Promise.all(types.filter(([type]) => app.schema(type)).map(async ([type, page, picture]) => {
        try {
          const list = await get(listPath({ type, filter: [`metadata.name~${quoted(text)}`], sort: 'metadata.name' }, 1, 8));
          return list.data.map((/** @type {any} */ one) => ({
            label: one.metadata.name,
            note: `${picture} in ${one.metadata.namespace}`,
            icon: picture,
            run: () => app.go(to(page, one.metadata.namespace, one.metadata.name)),
          }));
        } catch {
          return [];
        }
      }));
      if (turn !== asked) return;
      found = lists.flat();
      redraw();
    }, 120);
  };

  openDialog((close, redraw) => {
    const commands = app.commands().map((/** @type {Command} */ one) => [score(query, one.label), one])
      .filter((/** @type {[number, Command]} */ [points]) => points > 0)
      .sort((/** @type {[number, Command]} */ a, /** @type {[number, Command]} */ b) => b[0] - a[0])
      .map((/** @type {[number, Command]} */ [, one]) => one);
    /** @type {Command[]} */
    const all = [...found, ...commands].slice(0, 12);
    place = Math.max(0, Math.min(place, all.length - 1));
    const take = (/** @type {Command | undefined} */ one) => {
      if (!one) return;
      close();
      one.run();
    };
    const pressed = (/** @type {KeyboardEvent} */ event) => {
      const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
      if (step && all.length) {
        event.preventDefault();
        place = (place + step + all.length) % all.length;
        redraw();
      } else if (event.key === 'Enter') {
        event.preventDefault();
        take(all[place]);
      }
    };
    return h('div', { class: 'palette-box', onkeydown: pressed },
      h('div', { class: 'palette-find' }, icon('search'), h('input', {
        autofocus: true, type: 'text', role: 'combobox', 'aria-expanded': 'true', 'aria-controls': 'palette-list', 'aria-activedescendant': all.length ? `palette-${place}` : null,
        'aria-label': 'Find clusters, machines, actions', placeholder: 'Find clusters, machines, actions …', autocomplete: 'off', spellcheck: 'false', value: query,
        oninput: (/** @type {any} */ event) => { query = event.target.value; place = 0; look(redraw); redraw(); },
      })),
      h('ul', { id: 'palette-list', role: 'listbox', 'aria-label': 'Found' }, all.map((one, at) =>
        h('li', { key: `${one.icon} ${one.label} ${one.note || ''}`, id: `palette-${at}`, role: 'option', 'aria-selected': String(at === place), onclick: () => take(one), onmousemove: () => { if (place !== at) { place = at; redraw(); } } },
          icon(one.icon), h('span', null, one.label), one.note ? h('span', { class: 'muted small' }, one.note) : null))),
      all.length ? null : h('p', { class: 'muted palette-none' }, 'Nothing is called that.'));
  }, { label: 'Command palette', class: 'palette' });
}
