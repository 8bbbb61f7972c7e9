// What does the cluster itself say? Its nodes, read through the proxy.

import { ApiError, mergePatch } from '../core/api.js';
import { h } from '../core/dom.js';
import { EVENT, NODE, POD, addressOf, bytes, conditionOf, may, quantity, quoted, rolesOf, stateOf } from '../core/objects.js';
import { past, roomOf, total } from '../core/room.js';
import { to } from '../core/router.js';
import { ageOf, badge, button, card, conditionTable, copyable, empty, facts, pageHead, phase, stateBadge, tabs } from '../parts/basics.js';
import { copy, toast } from '../parts/layers.js';
import { Table, filterBar, nothing, sortOf } from '../parts/table.js';
import { yamlView } from '../parts/yaml-view.js';
import { objectHref } from '../core/kinds.js';
import { readMetrics, roomView, threePlots } from './explore/overview.js';
import { away, explored, explorer } from './explore/where.js';
import { eventTable } from './parts/evidence.js';

/** What a node uses is asked for this often. */
const AGAIN = 15_000;

/** @param {any} node */
export function nodeBadge(node) {
  const ready = conditionOf(node, 'Ready');
  if (ready && ready.status !== 'True') return badge(ready.status === 'Unknown' ? 'off' : 'bad', ready.status === 'Unknown' ? 'Silent' : 'Not ready', ready.message);
  if (node.spec?.unschedulable) return badge('warn', 'Cordoned', 'No new Pods are placed here');
  return ready ? badge('ok', 'Ready') : stateBadge(node);
}

/** @param {any} ctx */
export function nodesPage(ctx) {
  const where = explored(ctx);
  const table = new Table(ctx);
  const href = (/** @type {any} */ node) => `${to('explore', where.id)}/nodes/${encodeURIComponent(node.metadata.name)}`;
  /** @type {any} */
  let list;
  /** @type {import('../parts/table.js').Column[]} */
  const columns = [
    { id: 'state', label: 'State', class: 'c-state', draw: nodeBadge },
    { id: 'name', label: 'Name', sort: 'metadata.name', draw: (row) => h('a', { class: 'n', href: href(row) }, row.metadata.name) },
    { id: 'roles', label: 'Roles', class: 'c-roles', priority: 2, draw: (row) => rolesOf(row).join(', ') || 'worker' },
    { id: 'version', label: 'Version', class: 'c-version', priority: 2, sort: 'status.nodeInfo.kubeletVersion', draw: (row) => h('span', { class: 'mono' }, row.status?.nodeInfo?.kubeletVersion || '') },
    { id: 'address', label: 'Address', class: 'c-addr', priority: 2, draw: (row) => h('span', { class: 'mono' }, addressOf(row, 'ExternalIP') || addressOf(row, 'InternalIP')) },
    { id: 'cpu', label: 'CPU, memory', class: 'c-num', priority: 3, draw: (row) => [`${row.status?.allocatable?.cpu || '–'} cores`, h('span', { class: 'sub' }, bytes(quantity(row.status?.allocatable?.memory)))] },
    { id: 'age', label: 'Age', class: 'c-age', priority: 3, sort: '-metadata.creationTimestamp', draw: (row) => h('span', { class: 'muted' }, ageOf(row.metadata.creationTimestamp)) },
  ];
  function ask() {
    const q = ctx.query.get('q') || '';
    list?.stop();
    list = ctx.list({ type: NODE, root: where.root, filter: q ? [`metadata.name~${quoted(q)}`] : [], sort: sortOf(columns, ctx.query.get('sort') || '', 'metadata.name') });
  }
  ask();
  return {
    title: () => `Nodes of ${where.name()}`,
    onQuery: ask,
    render: () => explorer(where, { current: 'nodes', head: { title: 'Nodes', sub: 'As the cluster itself knows them. Machines are what they run on.' }, body: () => [
      filterBar(ctx, { placeholder: 'Filter by name', chips: [], count: list.phase === 'ready' ? `${list.count} ${list.count === 1 ? 'node' : 'nodes'}` : '' }),
      table.draw({ list, columns, href, label: 'Nodes', empty: nothing(Boolean(ctx.query.get('q')), ctx, empty({ title: 'No nodes', icon: 'node', text: 'No machine has joined this cluster yet.' })) }),
    ] }),
  };
}

/** @param {any} ctx */
export function nodePage(ctx) {
  const where = explored(ctx);
  const { name } = ctx.params;
  const tabNow = () => ctx.params.tab || 'overview';
  const base = `${to('explore', where.id)}/nodes/${encodeURIComponent(name)}`;
  const node = ctx.object({ type: NODE, id: name, root: where.root });
  const pods = ctx.list({ type: POD, root: where.root, filter: [`spec.nodeName=${quoted(name)}`], sort: 'metadata.namespace,metadata.name' }, { size: 500 });
  /** @type {any} */
  let events = null;
  const askEvents = () => (events ??= ctx.list({ type: EVENT, root: where.root, filter: [`involvedObject.name=${quoted(name)}`], sort: '-lastTimestamp' }, { size: 200 }));

  const plots = threePlots(ctx.redraw);
  const key = `${where.id} ${name}`;
  /** @type {any[] | null} */
  let metrics = null;
  const roomNow = () => roomOf([node.item], pods.items, metrics);
  async function sample() {
    if (document.hidden) return;
    if (!node.item || pods.phase !== 'ready' || !where.schemas) return ctx.later('sample', 500, sample);
    metrics = await readMetrics(where, name);
    const { asked, used } = total(roomNow());
    past.add(key, { at: Date.now(), asked, used });
    ctx.redraw();
  }
  sample();
  const timer = setInterval(sample, AGAIN);
  ctx.onStop(() => clearInterval(timer));

  /** @param {boolean} off */
  async function cordon(off) {
    try {
      await mergePatch(`${where.root}/api/v1/nodes/${encodeURIComponent(name)}`, { spec: { unschedulable: off || null } });
      toast(off ? `${name} takes no new Pods` : `${name} takes Pods again`);
      node.refresh();
    } catch (error) {
      toast(error instanceof ApiError ? error.message : String(error), 'bad');
    }
  }

  function overview() {
    const { nodeInfo = {} } = node.item.status || {};
    return [
      card('', facts([
        ['Roles', rolesOf(node.item).join(', ') || 'worker'], ['Version', h('span', { class: 'mono' }, nodeInfo.kubeletVersion || '')], ['Internal address', addressOf(node.item, 'InternalIP') ? copyable(addressOf(node.item, 'InternalIP'), copy) : ''], ['External address', addressOf(node.item, 'ExternalIP') ? copyable(addressOf(node.item, 'ExternalIP'), copy) : ''],
        ['System', nodeInfo.osImage], ['Kernel', nodeInfo.kernelVersion], ['Runtime', nodeInfo.containerRuntimeVersion], ['Architecture', nodeInfo.architecture], ['Age', ageOf(node.item.metadata.creationTimestamp)],
      ])),
      card('Room', pods.phase === 'ready' ? roomView(plots, total(roomNow()), past.of(key)) : phase(pods, () => null, 2), { note: metrics?.length ? 'what is used and asked for, of what the node has' : 'what Pods have asked for, of what the node has' }),
      card('Taints', node.item.spec?.taints?.length ? h('ul', { class: 'mono' }, node.item.spec.taints.map((/** @type {any} */ one) => h('li', { key: one.key + one.effect }, `${one.key}${one.value ? `=${one.value}` : ''}:${one.effect}`))) : h('p', { class: 'muted' }, 'None: any Pod may be placed here.')),
    ];
  }

  const podTable = () => pods.count ? h('div', { class: 'scroll', tabindex: 0 }, h('table', { class: 'plain' }, h('thead', null, h('tr', null, ['State', 'Namespace', 'Name', 'Age'].map((label) => h('th', { scope: 'col' }, label)))),
    h('tbody', null, pods.items.map((/** @type {any} */ one) => h('tr', { key: one.id }, h('td', null, stateBadge(one)), h('td', null, one.metadata.namespace), h('td', { class: 'mono wrap' }, h('a', { class: 'link', href: objectHref(where.id, POD, one.id) }, one.metadata.name)), h('td', { class: 'muted' }, ageOf(one.metadata.creationTimestamp))))))) : empty({ title: 'No Pods run here' });

  function body() {
    switch (tabNow()) {
      case 'pods': return card('', phase(pods, podTable));
      case 'conditions': return card('', conditionTable(node.item.status?.conditions));
      case 'events': return card('', phase(askEvents(), () => eventTable(events.items)));
      case 'yaml': return yamlView(node.item);
      default: return overview();
    }
  }

  return {
    title: name,
    render() {
      const crumbs = where.crumbs(' / ', h('a', { href: `${to('explore', where.id)}/nodes` }, 'Nodes'));
      if (!node.item) return [pageHead({ title: name, crumbs }), where.connected() ? null : away(where), phase(node, () => null)];
      const off = Boolean(node.item.spec?.unschedulable);
      const state = stateOf(node.item);
      return [
        pageHead({ title: name, crumbs, badge: nodeBadge(node.item), actions: may(node.item, 'update') || may(node.item, 'patch') ? button({ label: off ? 'Uncordon' : 'Cordon', run: () => cordon(!off) }) : null }),
        where.connected() ? null : away(where),
        state.tone === 'bad' && state.message ? h('div', { class: 'cause bad' }, h('div', null, h('b', null, state.message))) : null,
        tabs([['overview', 'Overview', base], ['pods', ['Pods', pods.phase === 'ready' ? h('span', { class: 'muted' }, ` ${pods.count}`) : null], `${base}/pods`], ['conditions', 'Conditions', `${base}/conditions`], ['events', 'Events', `${base}/events`], ['yaml', 'YAML', `${base}/yaml`]], tabNow()),
        body(),
      ];
    },
  };
}
