// What needs me? The fleet at a glance; on an empty server, three ways to begin.

import { get } from '../core/api.js';
import { h } from '../core/dom.js';
import { byName, capacityOf, endings, versionMatrix } from '../core/fleet.js';
import { CLUSTER, MACHINE, MANAGEMENT_CLUSTER, STATE_FILTERS, bytes, mayCreate, nameOf, stateOf } from '../core/objects.js';
import { channels } from '../core/releases.js';
import { to } from '../core/router.js';
import { listPath } from '../core/store.js';
import { absolute } from '../core/time.js';
import { ago, badge, card, empty, facts, pageHead, phase, stateBadge } from '../parts/basics.js';
import { icon, shape } from '../parts/icons.js';
import { share } from '../parts/plot.js';
import { clusterHref } from './clusters.js';

/** More than these are counted and not named. */
const NAMED = 6;
const MANY = 400;
const FIELDS = ['id', 'metadata.name', 'metadata.namespace', 'metadata.state', 'metadata.cause', 'metadata.creationTimestamp', 'spec.kubernetesVersion', 'status.clusterName', 'status.conditions'];
/** Of a cluster that is connected or was: what its nodes have, and its version. */
const MANAGED = ['metadata.name', 'status.nodeCount', 'status.allocatable', 'status.requested', 'status.version.gitVersion'];
/** A cause of the server's: the agent of a cluster is away. */
const DISCONNECTED = 'Disconnected';
const MINUTE = 60_000;

/** @param {string} to_ @param {string} picture @param {string} title @param {string} text */
const door = (to_, picture, title, text) => h('a', { class: 'door', href: to_ }, icon(picture, { size: 24 }), h('h2', null, title), h('p', null, text));

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

  // What changes by the day, or is large, is read now and then instead of with every change.
  /** @type {any[] | null} */
  let management = null;
  /** @type {any[]} */
  let certificates = [];
  /** @type {import('../core/releases.js').Channel[]} */
  let known = [];
  /** @type {any[]} */
  let tokens = [];
  async function look() {
    const read = async (/** @type {string} */ path) => {
      try {
        return (await get(path)).data || [];
      } catch {
        return null;
      }
    };
    const list = (/** @type {import('../core/store.js').Query} */ query, /** @type {number} */ size) => (ctx.app.schema(query.type) ? read(listPath(query, 1, size)) : null);
    // Certificates that end first, of those machines that say when.
    const [clusters, machines, own, releases] = await Promise.all([
      list({ type: MANAGEMENT_CLUSTER, include: MANAGED }, 5000),
      list({ type: MACHINE, filter: ['status.certificatesExpiryDate'], sort: 'status.certificatesExpiryDate', include: ['metadata.name', 'metadata.namespace', 'status.certificatesExpiryDate'] }, 20),
      read('/v3/tokens'), channels(),
    ]);
    management = clusters || management;
    certificates = machines || certificates;
    tokens = own || tokens;
    known = releases.length ? releases : known;
    ctx.redraw();
  }
  look();
  const timer = setInterval(() => document.hidden || look(), MINUTE);
  ctx.onStop(() => clearInterval(timer));

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

  /** @param {import('../core/fleet.js').Ending} one */
  const ending = (one) => h('a', { class: 'need', key: `${one.href} ${one.what} ${one.why}`, href: one.href }, badge(one.past ? 'bad' : 'warn', one.past ? 'Ended' : 'Ends soon'), h('b', null, one.what), h('small', { title: absolute(one.at) }, ago(one.at)), h('p', null, one.why));

  /** @param {import('../core/fleet.js').VersionRow[]} rows */
  function matrix(rows) {
    const distros = ['k3s', 'rke2', 'other'].filter((distro) => rows.some((row) => row.of[distro]));
    const now = Date.now();
    return h('div', { class: 'scroll', tabindex: 0 }, h('table', { class: 'plain matrix', 'aria-label': 'Versions of clusters' }, h('thead', null, h('tr', null, h('th', { scope: 'col', key: 'minor' }, 'Version'), distros.map((distro) => h('th', { scope: 'col', key: distro, class: 'num' }, distro === 'other' ? 'Other' : nameOf(distro))), h('th', { scope: 'col', key: 'ends' }, 'Maintained'))),
      h('tbody', null, rows.map((row) => {
        const ends = Object.values(row.ends).sort()[0];
        return h('tr', { key: row.minor }, h('th', { scope: 'row', key: 'minor' }, row.href ? h('a', { class: 'link', href: row.href }, row.minor) : row.minor), distros.map((distro) => h('td', { key: distro, class: 'num' }, row.of[distro] ? String(row.of[distro]) : h('span', { class: 'muted' }, '–'))),
          h('td', { key: 'ends', title: ends ? absolute(ends) : null }, !ends ? h('span', { class: 'muted' }, '–') : Date.parse(ends) < now ? badge('bad', 'Ended') : h('span', { class: 'muted' }, 'ends ', ago(ends))));
      }))));
  }

  /** @param {any[]} management @param {number} away */
  function capacity(management, away) {
    const { nodes, clusters: told, telling, of } = capacityOf(management);
    if (!nodes) return h('p', { class: 'muted' }, 'No node of a cluster is known yet.');
    const word = (/** @type {string} */ what) => (/** @type {number} */ value) => (what === 'memory' ? bytes(Math.round(value)) || '0 B' : what === 'cpu' ? `${Number(value.toFixed(1))} cores` : String(value));
    return [
      facts([['Nodes', String(nodes)], ['In clusters', String(told)], .../** @type {[string, any][]} */ (of.map(({ what, all }) => [what === 'cpu' ? 'CPU' : what === 'memory' ? 'Memory' : 'Room for Pods', word(what)(all)])), ['Not connected', away ? h('a', { href: `${to('clusters')}?state=broken` }, String(away)) : '']]),
      telling ? h('div', { class: 'shares' }, h('p', { class: 'muted small' }, telling === told ? 'Asked for by Pods' : `Asked for by Pods, in the ${telling} of ${told} clusters that say so`), of.map(({ what, asked, whole }) => h('div', { key: what, class: 'share-line' }, h('span', { class: 'small' }, what === 'cpu' ? 'CPU' : what === 'memory' ? 'Memory' : 'Pods'), share(what === 'cpu' ? 'CPU' : what === 'memory' ? 'Memory' : 'Pods', asked, null, whole, word(what))))) : null,
    ];
  }

  function board() {
    const all = clusters.items.map((/** @type {any} */ one) => /** @type {[any, ReturnType<typeof stateOf>]} */ ([one, stateOf(one)]));
    all.sort((/** @type {any} */ [a, x], /** @type {any} */ [b, y]) => x.rank - y.rank || a.metadata.name.localeCompare(b.metadata.name));
    const of = (/** @type {string[]} */ tones) => all.filter((/** @type {any} */ [, state]) => tones.includes(state.tone)).map((/** @type {any} */ [one]) => one);
    const [bad, moving, fine] = [of(['bad', 'warn']), of(['move']), of(['ok'])];
    const versions = versionMatrix(clusters.items, byName(management || []), known);
    const ends = endings({ machines: certificates, versions, tokens }, Date.now());
    const away = clusters.items.filter((/** @type {any} */ one) => one.metadata.cause?.code === DISCONNECTED).length;
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
          moving.length ? card('Changing', h('div', null, moving.slice(0, NAMED).map(need), moving.length > NAMED ? h('p', { class: 'small' }, h('a', { class: 'link', href: `${to('clusters')}?state=changing` }, `and ${moving.length - NAMED} more`)) : null), { actions: h('a', { class: 'link small', href: to('operations') }, 'Operations') }) : null,
          ends.length ? card('Ends soon', h('div', null, ends.slice(0, NAMED).map(ending), ends.length > NAMED ? h('p', { class: 'muted small' }, `and ${ends.length - NAMED} more`) : null)) : null),
        h('div', null, card('All clusters', [
          // Squares are for the eye and the pointer; the list of clusters is the same for everything else.
          h('div', { class: `herd ${all.length > MANY ? 'small' : ''}`, role: 'img', 'aria-label': `${bad.length} need you, ${moving.length} changing, ${fine.length} ready`, onclick: (/** @type {any} */ event) => { const id = event.target.dataset?.id; if (id) ctx.go(to('clusters', ...id.split('/'))); } },
            all.map((/** @type {any} */ [one, state]) => h('i', { key: one.id, class: state.tone, 'data-id': one.id, title: `${one.metadata.name}: ${state.word}${state.message ? `. ${state.message}` : ''}` }))),
        ], { note: 'worst first' }), versions.length ? card('Versions', matrix(versions)) : null, management ? card('Capacity', capacity(management, away)) : null)),
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
