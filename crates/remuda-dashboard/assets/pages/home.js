// What needs me? The fleet at a glance; on an empty server, three ways to begin.

import { h } from '../core/dom.js';
import { CLUSTER, MACHINE, STATE_FILTERS, distroOf, mayCreate, minorOf, providerOf, stateOf, compareVersions } from '../core/objects.js';
import { to } from '../core/router.js';
import { ago, card, empty, pageHead, phase, stateBadge } from '../parts/basics.js';
import { icon, shape } from '../parts/icons.js';
import { clusterHref } from './clusters.js';

/** More than these are counted and not named. */
const NAMED = 6;
const MANY = 400;
const FIELDS = ['id', 'metadata.name', 'metadata.namespace', 'metadata.state', 'metadata.cause', 'metadata.creationTimestamp', 'spec.kubernetesVersion', 'status.conditions'];

/** @param {string} to_ @param {string} picture @param {string} title @param {string} text */
const door = (to_, picture, title, text) => h('a', { class: 'door', href: to_ }, icon(picture, { size: 24 }), h('h2', null, title), h('p', null, text));

/** How many clusters have which minor version. @param {any[]} clusters @returns {[string, number][]} newest first */
export function versionMatrix(clusters) {
  /** @type {Map<string, number>} */
  const found = new Map();
  for (const one of clusters) {
    const minor = minorOf(one.spec?.kubernetesVersion);
    if (minor) found.set(minor, (found.get(minor) || 0) + 1);
  }
  return [...found].sort(([a], [b]) => compareVersions(a, b));
}

/** Since when something is as it is. @param {any} object */
export function since(object) {
  const times = (object?.status?.conditions || []).filter((/** @type {any} */ one) => one.error || one.transitioning || one.status !== 'True').map((/** @type {any} */ one) => one.lastTransitionTime || '').sort();
  return times.at(-1) || object?.metadata?.creationTimestamp;
}

/** @param {any} ctx */
export function homePage(ctx) {
  const clusters = ctx.list({ type: CLUSTER, include: FIELDS, sort: 'metadata.name' }, { size: 5000 });
  const machines = ctx.app.schema(MACHINE) ? ctx.list({ type: MACHINE, include: ['metadata.name'] }, { size: 1 }) : null;
  const brokenMachines = ctx.app.schema(MACHINE) ? ctx.list({ type: MACHINE, filter: STATE_FILTERS.broken, include: ['metadata.name'] }, { size: 1 }) : null;

  /** @param {any} one */
  const need = (one) => h('a', { class: 'need', key: one.id, href: clusterHref(one) }, stateBadge(one), h('b', null, one.metadata.name),
    h('small', null, ago(since(one))), h('p', null, stateOf(one).message || 'No cause is known yet.'));

  function first() {
    if (!mayCreate(ctx.app.schema(CLUSTER))) return empty({ title: 'No clusters yet', icon: 'cluster', text: 'Clusters you are given a role in appear here.' });
    return [h('p', { class: 'muted lead' }, 'There are no clusters yet. Begin with one of these.'), h('div', { class: 'doors3' },
      door(`${to('create')}?kind=local`, 'cluster', 'A cluster on this host', 'Three small machines made of Linux namespaces. Nothing else is needed; ready in seconds.'),
      door(`${to('create')}?kind=custom`, 'machine', 'Servers you have', 'Run one command on each of them; they install K3s or RKE2 and join.'),
      door(`${to('create')}?kind=import`, 'import', 'A cluster that exists', 'Apply one manifest in it. It is then seen and reached from here.'))];
  }

  function board() {
    const all = clusters.items.map((/** @type {any} */ one) => /** @type {[any, ReturnType<typeof stateOf>]} */ ([one, stateOf(one)]));
    all.sort((/** @type {any} */ [a, x], /** @type {any} */ [b, y]) => x.rank - y.rank || a.metadata.name.localeCompare(b.metadata.name));
    const of = (/** @type {string[]} */ tones) => all.filter((/** @type {any} */ [, state]) => tones.includes(state.tone)).map((/** @type {any} */ [one]) => one);
    const [bad, moving, fine] = [of(['bad', 'warn']), of(['move']), of(['ok'])];
    const versions = versionMatrix(clusters.items);
    const tile = (/** @type {string} */ tone, /** @type {any} */ count, /** @type {string} */ word, /** @type {string} */ href) =>
      h('a', { class: 'tile', href, key: word }, h('b', null, String(count)), h('span', { class: 'tile-word' }, h('span', { class: `${tone} bare` }, shape(tone)), word));
    return [
      h('div', { class: 'tiles' },
        tile('bad', bad.length, 'need you', `${to('clusters')}?state=broken`), tile('move', moving.length, 'changing', `${to('clusters')}?state=changing`), tile('ok', fine.length, 'ready', `${to('clusters')}?state=ready`),
        machines?.phase === 'ready' ? tile(brokenMachines?.count ? 'bad' : 'ok', machines.count, brokenMachines?.count ? `machines, ${brokenMachines.count} broken` : 'machines', to('machines')) : null),
      h('div', { class: 'grid' },
        h('div', null,
          card('Needs you', bad.length ? h('div', null, bad.slice(0, NAMED).map(need), bad.length > NAMED ? h('p', { class: 'small' }, h('a', { class: 'link', href: `${to('clusters')}?state=broken` }, `and ${bad.length - NAMED} more`)) : null)
            : h('p', { class: 'need-none' }, h('span', { class: 'ok bare' }, shape('ok')), 'Nothing waits for you.')),
          moving.length ? card('Changing', h('div', null, moving.slice(0, NAMED).map(need))) : null),
        card('All clusters', [
          // Squares are for the eye and the pointer; the list of clusters is the same for everything else.
          h('div', { class: `herd ${all.length > MANY ? 'small' : ''}`, role: 'img', 'aria-label': `${bad.length} need you, ${moving.length} changing, ${fine.length} ready`, onclick: (/** @type {any} */ event) => { const id = event.target.dataset?.id; if (id) ctx.go(to('clusters', ...id.split('/'))); } },
            all.map((/** @type {any} */ [one, state]) => h('i', { key: one.id, class: state.tone, 'data-id': one.id, title: `${one.metadata.name}: ${state.word}${state.message ? `. ${state.message}` : ''}` }))),
          h('p', { class: 'versions' }, versions.map(([minor, count]) => h('a', { key: minor, href: `${to('clusters')}?version=${encodeURIComponent(`${minor}.`)}` }, `${minor} · ${count}`))),
        ], { note: 'worst first' })),
    ];
  }

  return {
    title: 'Home',
    render() {
      const count = clusters.phase === 'ready' ? clusters.count : null;
      return [pageHead({ title: count === 0 ? 'Welcome to Remuda' : 'Home', sub: count ? `${count} ${count === 1 ? 'cluster' : 'clusters'}` : null }), phase(clusters, () => (clusters.count ? board() : first()), 6)];
    },
  };
}
