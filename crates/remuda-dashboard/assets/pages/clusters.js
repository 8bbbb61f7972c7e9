// Which of mine? The list of clusters.

import { del, v1 } from '../core/api.js';
import { h } from '../core/dom.js';
import { CLUSTER, MACHINE_DEPLOYMENT, STATE_FILTERS, clusterNameOf, distroOf, machineBar, may, mayCreate, nameOf, providerOf, quoted, stateOf } from '../core/objects.js';
import { to } from '../core/router.js';
import { ageOf, button, empty, machineBarView, pageHead, stateBadge } from '../parts/basics.js';
import { Table, filterBar, nothing, sortOf } from '../parts/table.js';

/** Broken first, then what changes, then by name. */
export const WORST_FIRST = '-metadata.state.error,-metadata.state.transitioning,metadata.name';

/** @param {any} cluster */
export const clusterHref = (cluster) => to('clusters', cluster.metadata.namespace, cluster.metadata.name);

/** Name and, below it, why it is not well. @param {any} object @param {string} href */
export function nameCell(object, href) {
  const state = stateOf(object);
  return [h('a', { class: 'n', href }, object.metadata.name), state.message && state.tone !== 'ok' ? h('span', { class: `why ${state.tone}`, title: state.message }, state.message) : null];
}

/** @param {any} ctx */
export function clustersPage(ctx) {
  const table = new Table(ctx);
  /** @type {any} */
  let list;
  /** @type {any} */
  let pools = null;
  let poolsOf = '';
  const counts = ['broken', 'changing', 'ready'].map((id) => [id, ctx.list({ type: CLUSTER, filter: STATE_FILTERS[id], include: ['metadata.name'] }, { size: 1 })]);

  /** @type {import('../parts/table.js').Column[]} */
  const columns = [
    { id: 'state', label: 'State', class: 'c-state', fixed: true, sort: WORST_FIRST, draw: stateBadge },
    { id: 'name', label: 'Name', fixed: true, sort: 'metadata.name', draw: (row) => nameCell(row, clusterHref(row)) },
    { id: 'provider', label: 'Provider', class: 'c-provider', priority: 2, draw: (row) => [providerOf(row), h('span', { class: 'sub' }, nameOf(distroOf(row.spec?.kubernetesVersion)))] },
    { id: 'version', label: 'Version', class: 'c-version', priority: 2, sort: 'spec.kubernetesVersion', draw: (row) => h('span', { class: 'mono' }, row.spec?.kubernetesVersion || '') },
    { id: 'machines', label: 'Machines', class: 'c-machines', priority: 2, draw: (row) => machines(row) },
    { id: 'namespace', label: 'Workspace', class: 'c-provider', priority: 3, usual: false, sort: 'metadata.namespace,metadata.name', draw: (row) => row.metadata.namespace },
    { id: 'id', label: 'Cluster id', class: 'c-provider', priority: 3, usual: false, draw: (row) => h('span', { class: 'mono' }, row.status?.clusterName || '') },
    { id: 'age', label: 'Age', class: 'c-age', priority: 3, sort: '-metadata.creationTimestamp', draw: (row) => h('span', { class: 'muted' }, ageOf(row.metadata.creationTimestamp)) },
  ];

  /** @param {any} row */
  function machines(row) {
    if (!pools || pools.phase !== 'ready') return null;
    const own = pools.items.filter((/** @type {any} */ one) => clusterNameOf(one) === row.metadata.name && one.metadata.namespace === row.metadata.namespace);
    return own.length ? machineBarView(machineBar(own)) : h('span', { class: 'muted' }, '–');
  }

  function ask() {
    const q = ctx.query.get('q') || '';
    const version = ctx.query.get('version') || '';
    const filter = [...(STATE_FILTERS[ctx.query.get('state') || ''] || [])];
    if (q) filter.push(`metadata.name~${quoted(q)}`);
    if (version) filter.push(`spec.kubernetesVersion~${quoted(version)}`);
    list?.stop();
    list = ctx.list({ type: CLUSTER, filter, sort: sortOf(columns, ctx.query.get('sort') || '', WORST_FIRST) });
  }
  ask();

  /** Pools of the clusters that are looked at, and of no others. */
  function askPools() {
    const names = list.items.map((/** @type {any} */ one) => one.metadata.name).slice(0, 150).sort();
    const key = names.join(',');
    if (key === poolsOf || !key || !ctx.app.schema(MACHINE_DEPLOYMENT)) return;
    poolsOf = key;
    const before = pools;
    pools = ctx.list({ type: MACHINE_DEPLOYMENT, filter: [`spec.clusterName in (${names.map(quoted).join(',')})`] }, { size: 1000 });
    before?.stop();
  }

  return {
    title: 'Clusters',
    onQuery: ask,
    render() {
      if (list.phase === 'ready') askPools();
      const create = mayCreate(ctx.app.schema(CLUSTER));
      const of = (/** @type {string} */ id) => counts.find(([name]) => name === id)?.[1];
      const number = (/** @type {string} */ id) => (of(id)?.phase === 'ready' ? String(of(id).count) : '');
      const filtered = Boolean(ctx.query.get('q') || ctx.query.get('state') || ctx.query.get('version'));
      const version = ctx.query.get('version');
      return [
        pageHead({
          title: 'Clusters',
          sub: h('span', null, `${number('broken') || '–'} need you · ${number('changing') || '–'} changing · ${number('ready') || '–'} ready`),
          actions: create ? [button({ label: 'Import', icon: 'import', href: `${to('create')}?kind=import` }), button({ label: 'Create cluster', icon: 'plus', kind: 'primary', href: to('create') })] : null,
        }),
        filterBar(ctx, {
          placeholder: 'Filter by name',
          chips: [['broken', `Needs you ${number('broken')}`], ['changing', `Changing ${number('changing')}`], ['ready', `Ready ${number('ready')}`]],
          count: [version ? h('button', { type: 'button', class: 'chip', 'aria-pressed': 'true', onclick: () => ctx.setQuery({ version: '' }) }, `${version} ×`) : null, list.phase === 'ready' ? ` ${list.count} ${list.count === 1 ? 'cluster' : 'clusters'}` : ''],
          columns: table.chooser('clusters', columns),
        }),
        table.draw({
          list, columns, name: 'clusters', href: clusterHref, label: 'Clusters',
          bulk: [{
            label: 'Delete', danger: true, may: (row) => may(row, 'remove') && !row.metadata.deletionTimestamp && row.metadata.name !== 'local', run: (row) => del(v1('', CLUSTER, row.id)),
            ask: (rows) => ({ title: `Delete ${rows.length} ${rows.length === 1 ? 'cluster' : 'clusters'}?`, action: 'Delete clusters', typed: 'delete', body: [h('p', null, 'All machines that were made for them and everything on those, snapshots on their disks included, will be gone. Imported clusters go on without us.'), h('ul', { class: 'mono small' }, rows.slice(0, 12).map((row) => h('li', { key: row.id }, row.id)), rows.length > 12 ? h('li', null, `and ${rows.length - 12} more`) : null)] }),
          }],
          empty: nothing(filtered, ctx, empty({
            title: 'No clusters yet', icon: 'cluster',
            text: create ? 'Clusters you create, import or are given a role in appear here.' : 'Clusters you are given a role in appear here.',
            actions: create ? button({ label: 'Create cluster', kind: 'primary', icon: 'plus', href: to('create') }) : null,
          })),
        }),
      ];
    },
  };
}
