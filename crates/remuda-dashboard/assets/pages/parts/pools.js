// Pools of a cluster with their machines, and how many there are to be.

import { h } from '../../core/dom.js';
import { addressOf, machineBar, nameOf, poolOf, rolesOf } from '../../core/objects.js';
import { to } from '../../core/router.js';
import { ageOf, badge, button, card, empty, machineBarView, phase, stateBadge } from '../../parts/basics.js';
import { confirm, toast } from '../../parts/layers.js';
import { nameCell } from '../clusters.js';

/** Why a pool cannot have one machine fewer; empty if it can. @param {any[]} pools @param {number} place */
export function keepsLast(pools, place) {
  const pool = pools[place];
  if ((pool.quantity ?? 1) <= 0) return 'The pool is empty.';
  for (const [role, word] of [['etcdRole', 'etcd'], ['controlPlaneRole', 'control plane']]) {
    if (!pool[role]) continue;
    const left = pools.reduce((sum, one, at) => sum + (one[role] ? (one.quantity ?? 1) - (at === place ? 1 : 0) : 0), 0);
    if (left < 1) return `This is the last ${word} machine.`;
  }
  return '';
}

/** @param {any[]} machines */
export const machineTable = (machines) =>
  h('table', { class: 'rows', 'aria-label': 'Machines' }, h('thead', null, h('tr', null,
    h('th', { scope: 'col', class: 'c-state' }, 'State'), h('th', { scope: 'col' }, 'Machine'), h('th', { scope: 'col', class: 'p2 c-addr' }, 'Address'), h('th', { scope: 'col', class: 'p2 c-roles' }, 'Roles'), h('th', { scope: 'col', class: 'p3 c-version' }, 'Version'), h('th', { scope: 'col', class: 'p3 c-age' }, 'Age'))),
  h('tbody', null, machines.map((one) => h('tr', { key: one.id },
    h('td', { class: 'c-state' }, stateBadge(one)), h('td', null, nameCell(one, to('machines', one.metadata.namespace, one.metadata.name))),
    h('td', { class: 'p2 mono' }, addressOf(one, 'ExternalIP') || addressOf(one, 'InternalIP')), h('td', { class: 'p2' }, rolesOf(one).join(', ')), h('td', { class: 'p3 mono' }, one.status?.nodeInfo?.kubeletVersion || ''), h('td', { class: 'p3 muted' }, ageOf(one.metadata.creationTimestamp))))));

/** @param {{ctx: any, cluster: any, machines: any, deployments: any, scale: ((place: number, quantity: number) => Promise<any>) | null}} given */
export function poolsView(given) {
  const { ctx, cluster, machines, deployments, scale } = given;
  const pools = cluster.spec?.rkeConfig?.machinePools || [];
  const busy = (ctx.busy ??= new Set());

  /** @param {number} place @param {number} by */
  async function change(place, by) {
    const pool = pools[place];
    const wanted = (pool.quantity ?? 1) + by;
    const run = async () => {
      busy.add(pool.name);
      ctx.redraw();
      try {
        await scale?.(place, wanted);
      } finally {
        busy.delete(pool.name);
        ctx.redraw();
      }
    };
    if (by < 0) {
      confirm({ title: `One machine fewer in ${pool.name}?`, danger: true, action: 'Remove one machine', body: h('p', null, `The pool will have ${wanted}. A machine is drained and deleted, with all that is on its disk.`), run });
      return;
    }
    try {
      await run();
    } catch (error) {
      toast(/** @type {any} */ (error).message, 'bad');
    }
  }

  return phase(machines, () => {
    if (!pools.length) return machines.count ? h('section', { class: 'card table-card' }, machineTable(machines.items)) : card('', empty({ title: 'No machines yet', text: 'Machines appear here as they register.', icon: 'machine' }));
    return pools.map((/** @type {any} */ pool, /** @type {number} */ place) => {
      const own = machines.items.filter((/** @type {any} */ one) => poolOf(one) === pool.name);
      const sets = deployments.items.filter((/** @type {any} */ one) => one.metadata.name === `${cluster.metadata.name}-${pool.name}`);
      const roles = [pool.etcdRole && 'etcd', pool.controlPlaneRole && 'control plane', pool.workerRole && 'worker'].filter(Boolean).join(', ');
      const last = keepsLast(pools, place);
      return h('section', { class: 'pool', key: pool.name },
        h('div', { class: 'pool-head' }, h('h2', null, pool.name), h('span', { class: 'muted' }, `${nameOf(String(pool.machineConfigRef?.kind || '').replace(/Config$/, ''))} · ${roles}`), pool.paused ? badge('off', 'Paused') : null,
          sets.length ? machineBarView(machineBar(sets)) : h('span', { class: 'machines' }),
          scale ? h('span', { class: 'scale', role: 'group', 'aria-label': `Machines of ${pool.name}` },
            button({ icon: 'minus', label: '', title: last || `One fewer in ${pool.name}`, disabled: Boolean(last) || busy.has(pool.name), kind: 'square', run: () => change(place, -1) }),
            h('b', null, String(pool.quantity ?? 1)),
            button({ icon: 'plus', label: '', title: `One more in ${pool.name}`, disabled: busy.has(pool.name), kind: 'square', run: () => change(place, 1) })) : null),
        h('div', { class: 'card table-card' }, own.length ? machineTable(own) : h('p', { class: 'muted pool-empty' }, 'This pool is empty.')));
    });
  }, 6);
}
