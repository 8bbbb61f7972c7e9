// What is going on? Everything that is under way in all clusters, or failed last.

import { h } from '../core/dom.js';
import { CLUSTER, CONTROL_PLANE, MACHINE, MACHINE_DEPLOYMENT, clusterNameOf, machineBar, quoted } from '../core/objects.js';
import { operationsOf } from '../core/operations.js';
import { to } from '../core/router.js';
import { ago, badge, empty, machineBarView, pageHead, phase } from '../parts/basics.js';
import { filterBar, nothing } from '../parts/table.js';
import { clusterHref } from './clusters.js';

const CLUSTERS = ['id', 'metadata', 'spec.kubernetesVersion', 'spec.rkeConfig.etcdSnapshotCreate', 'spec.rkeConfig.etcdSnapshotRestore', 'spec.rkeConfig.rotateCertificates', 'status.conditions'];
const PLANES = ['metadata.name', 'metadata.namespace', 'status.appliedSpec.kubernetesVersion', 'status.certificateRotationGeneration', 'status.etcdSnapshotCreate', 'status.etcdSnapshotCreatePhase', 'status.etcdSnapshotRestore', 'status.etcdSnapshotRestorePhase', 'status.rotateEncryptionKeysPhase', 'status.waitingFor'];
/** Those in which something may be under way: of thousands that are well, none is asked for. */
const MOVING = ['metadata.state.transitioning=true', 'metadata.state.error=true', 'metadata.deletionTimestamp'];
const CLUSTER_FILTER = [[...MOVING, ...['etcdSnapshotCreate', 'etcdSnapshotRestore', 'rotateCertificates', 'rotateEncryptionKeys'].map((field) => `spec.rkeConfig.${field}.generation`)].join(',')];
const PLANE_FILTER = [[...MOVING, ...['etcdSnapshotCreate', 'etcdSnapshotRestore', 'rotateCertificates', 'rotateEncryptionKeys'].map((field) => `spec.${field}.generation`), 'status.rotateEncryptionKeysPhase'].join(',')];
/** Clusters whose machines are counted. */
const COUNTED = 150;

/** @param {any} ctx */
export function operationsPage(ctx) {
  const clusters = ctx.list({ type: CLUSTER, filter: CLUSTER_FILTER, include: CLUSTERS, exclude: ['metadata.relationships', 'metadata.annotations', 'metadata.labels'], sort: 'metadata.name' }, { size: 5000 });
  const planes = ctx.app.schema(CONTROL_PLANE) ? ctx.list({ type: CONTROL_PLANE, filter: PLANE_FILTER, include: PLANES }, { size: 5000 }) : null;
  /** @type {any} */
  let pools = null;
  let poolsOf = '';

  /** Pools of the clusters in which something is under way. @param {import('../core/operations.js').Operation[]} all */
  function askPools(all) {
    const names = [...new Set(all.map((one) => one.cluster.metadata.name))].slice(0, COUNTED).sort();
    const key = names.join(',');
    if (key === poolsOf || !key || !ctx.app.schema(MACHINE_DEPLOYMENT)) return;
    poolsOf = key;
    const before = pools;
    pools = ctx.list({ type: MACHINE_DEPLOYMENT, filter: [`spec.clusterName in (${names.map(quoted).join(',')})`] }, { size: 1000 });
    before?.stop();
  }

  /** @param {any} cluster */
  function machines(cluster) {
    if (pools?.phase !== 'ready') return null;
    const own = pools.items.filter((/** @type {any} */ one) => clusterNameOf(one) === cluster.metadata.name && one.metadata.namespace === cluster.metadata.namespace);
    return own.length ? machineBarView(machineBar(own)) : null;
  }

  /** @param {import('../core/operations.js').Operation} one */
  const row = (one) => h('tr', { key: one.id }, h('td', { class: 'c-state' }, badge(one.tone, one.tone === 'bad' ? 'Failed' : 'Under way', one.message || undefined)),
    h('td', null, h('a', { class: 'n', href: clusterHref(one.cluster) }, one.cluster.metadata.name), h('span', { class: 'sub phone' }, `${one.what}: ${one.phase}`), h('span', { class: one.message ? `why ${one.tone}` : 'sub', title: one.message || null }, one.message || one.cluster.metadata.namespace)),
    h('td', { class: 'p2 c-wide' }, one.what, h('span', { class: 'sub' }, one.phase)),
    h('td', { class: 'p3 c-provider' }, one.machines.length ? one.machines.map((name, at) => [at ? ', ' : null, ctx.app.schema(MACHINE) ? h('a', { class: 'link', href: to('machines', one.cluster.metadata.namespace, name) }, name) : name]) : h('span', { class: 'muted' }, '–')),
    h('td', { class: 'p2 c-machines' }, machines(one.cluster)), h('td', { class: 'p3 c-num muted' }, ago(one.since)));

  return {
    title: 'Operations',
    render() {
      // Without control planes it is not known which of what was asked for is done.
      const known = clusters.phase === 'ready' && planes?.phase !== 'loading';
      const all = known ? operationsOf(clusters.items, planes?.items || []) : [];
      askPools(all);
      const [q, state] = [(ctx.query.get('q') || '').toLowerCase(), ctx.query.get('state') || ''];
      const shown = all.filter((one) => `${one.cluster.metadata.name} ${one.what}`.toLowerCase().includes(q) && (!state || one.tone === state));
      const head = (/** @type {string} */ label, /** @type {string} */ kind = '') => h('th', { scope: 'col', class: kind, key: label }, label);
      return [
        pageHead({ title: 'Operations', sub: 'What is under way in all clusters, or failed last.' }),
        filterBar(ctx, { placeholder: 'Filter by cluster or kind', chips: [['bad', 'Failed'], ['move', 'Under way']], count: known ? `${shown.length} of ${all.length}` : '' }),
        h('section', { class: 'card table-card' }, phase(clusters.phase === 'ready' && !known ? planes : clusters, () => (shown.length ? h('table', { class: 'rows still', 'aria-label': 'Operations' }, h('thead', null, h('tr', null, head('State', 'c-state'), head('Cluster'), head('Operation', 'p2 c-wide'), head('Waits for', 'p3 c-provider'), head('Machines', 'p2 c-machines'), head('Since', 'p3 c-num'))), h('tbody', null, shown.map(row)))
          : nothing(Boolean(q || state), ctx, empty({ title: 'Nothing is under way', icon: 'refresh', text: 'Clusters that are made, changed, upgraded, restored or deleted appear here while it lasts.' }))))),
      ];
    },
  };
}
