// All machines one may see, of all clusters.

import { del, v1 } from '../core/api.js';
import { h } from '../core/dom.js';
import { CLUSTER, MACHINE, STATE_FILTERS, addressOf, clusterNameOf, may, poolOf, quoted, rolesOf } from '../core/objects.js';
import { to } from '../core/router.js';
import { ageOf, empty, pageHead, stateBadge } from '../parts/basics.js';
import { Table, filterBar, nothing, sortOf } from '../parts/table.js';
import { WORST_FIRST, nameCell } from './clusters.js';

/** @param {any} machine */
const hrefOf = (machine) => to('machines', machine.metadata.namespace, machine.metadata.name);

/** @param {any} ctx */
export function machinesPage(ctx) {
  const none = empty({ title: 'No machines yet', icon: 'machine', text: 'Machines of clusters you may see appear here. Imported clusters have none: their nodes are managed elsewhere.' });
  // Who may read no cluster is not told of the kind, and asking would be refused.
  if (!ctx.app.schema(MACHINE)) return { title: 'Machines', render: () => [pageHead({ title: 'Machines' }), none] };
  const table = new Table(ctx);
  /** @type {any} */
  let list;
  const broken = ctx.list({ type: MACHINE, filter: STATE_FILTERS.broken, include: ['metadata.name'] }, { size: 1 });
  const changing = ctx.list({ type: MACHINE, filter: STATE_FILTERS.changing, include: ['metadata.name'] }, { size: 1 });

  /** @type {import('../parts/table.js').Column[]} */
  const columns = [
    { id: 'state', label: 'State', class: 'c-state', fixed: true, sort: WORST_FIRST, draw: stateBadge },
    { id: 'name', label: 'Name', fixed: true, sort: 'metadata.name', draw: (row) => nameCell(row, hrefOf(row)) },
    { id: 'cluster', label: 'Cluster', class: 'c-cluster', priority: 2, sort: 'spec.clusterName,metadata.name', draw: (row) => [ctx.app.schema(CLUSTER) ? h('a', { class: 'n', href: to('clusters', row.metadata.namespace, clusterNameOf(row)) }, clusterNameOf(row)) : clusterNameOf(row), poolOf(row) ? h('span', { class: 'sub' }, poolOf(row)) : null] },
    { id: 'address', label: 'Address', class: 'c-addr', priority: 2, draw: (row) => h('span', { class: 'mono' }, addressOf(row, 'ExternalIP') || addressOf(row, 'InternalIP')) },
    { id: 'roles', label: 'Roles', class: 'c-roles', priority: 3, draw: (row) => rolesOf(row).join(', ') },
    { id: 'version', label: 'Version', class: 'c-version', priority: 3, draw: (row) => h('span', { class: 'mono' }, row.status?.nodeInfo?.kubeletVersion || row.spec?.version || '') },
    { id: 'node', label: 'Node', class: 'c-cluster', priority: 3, usual: false, sort: 'status.nodeRef.name', draw: (row) => row.status?.nodeRef?.name || '' },
    { id: 'system', label: 'System', class: 'c-cluster', priority: 3, usual: false, draw: (row) => row.status?.nodeInfo?.osImage || '' },
    { id: 'provider', label: 'Provider id', class: 'c-cluster', priority: 3, usual: false, draw: (row) => h('span', { class: 'mono', title: row.spec?.providerID || null }, row.spec?.providerID || '') },
    { id: 'age', label: 'Age', class: 'c-age', priority: 3, sort: '-metadata.creationTimestamp', draw: (row) => h('span', { class: 'muted' }, ageOf(row.metadata.creationTimestamp)) },
  ];

  /** @type {import('../parts/table.js').Bulk[]} */
  const bulk = [{
    label: 'Delete', danger: true, may: (row) => may(row, 'remove') && !row.metadata.deletionTimestamp, run: (row) => del(v1('', MACHINE, row.id)),
    ask: (rows) => ({ title: `Delete ${rows.length} ${rows.length === 1 ? 'machine' : 'machines'}?`, action: 'Delete', typed: 'delete', body: [h('p', null, 'Each is drained, its server is deleted with all that is on it, and its pool makes another.'), h('ul', { class: 'mono small' }, rows.slice(0, 12).map((row) => h('li', { key: row.id }, row.metadata.name)), rows.length > 12 ? h('li', null, `and ${rows.length - 12} more`) : null)] }),
  }];

  function ask() {
    const q = ctx.query.get('q') || '';
    const filter = [...(STATE_FILTERS[ctx.query.get('state') || ''] || [])];
    if (q) filter.push(`metadata.name~${quoted(q)}`);
    list?.stop();
    list = ctx.list({ type: MACHINE, filter, sort: sortOf(columns, ctx.query.get('sort') || '', WORST_FIRST) });
  }
  ask();

  return {
    title: 'Machines',
    onQuery: ask,
    render() {
      const filtered = Boolean(ctx.query.get('q') || ctx.query.get('state'));
      const number = (/** @type {any} */ one) => (one.phase === 'ready' ? String(one.count) : '');
      return [
        pageHead({ title: 'Machines', sub: 'A machine is a server and what runs Kubernetes on it. Once it has joined, its cluster knows it as a node.' }),
        filterBar(ctx, { placeholder: 'Filter by name', chips: [['broken', `Needs you ${number(broken)}`], ['changing', `Changing ${number(changing)}`], ['ready', 'Ready']], count: list.phase === 'ready' ? `${list.count} ${list.count === 1 ? 'machine' : 'machines'}` : '', columns: table.chooser('machines', columns) }),
        table.draw({ list, columns, name: 'machines', bulk, href: hrefOf, label: 'Machines', empty: nothing(filtered, ctx, none) }),
      ];
    },
  };
}
