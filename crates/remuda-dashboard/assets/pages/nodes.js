// What does the cluster itself say? Its nodes, read through the proxy.

import { ApiError, mergePatch, post, v1 } from '../core/api.js';
import { h } from '../core/dom.js';
import { LONGEST, MANAGEMENT_NODE, USUAL, drainOf, drainRequest, offers } from '../core/drain.js';
import { EVENT, NODE, POD, addressOf, bytes, conditionOf, may, quantity, quoted, rolesOf, stateOf } from '../core/objects.js';
import { past, roomOf, takesRoom, total } from '../core/room.js';
import { to } from '../core/router.js';
import { ageOf, badge, button, card, conditionTable, copyable, empty, facts, pageHead, phase, stateBadge, tabs } from '../parts/basics.js';
import { confirm, copy, toast } from '../parts/layers.js';
import { share } from '../parts/plot.js';
import { Table, filterBar, nothing, sortOf } from '../parts/table.js';
import { yamlView } from '../parts/yaml-view.js';
import { objectHref } from '../core/kinds.js';
import { cores, counted, readMetrics, roomReader, roomView, sizes, threePlots } from './explore/overview.js';
import { away, explored, explorer } from './explore/where.js';
import { eventTable } from './parts/evidence.js';

/** @param {any} node */
const address = (node) => addressOf(node, 'ExternalIP') || addressOf(node, 'InternalIP');

/** What a node uses is asked for this often. */
const AGAIN = 15_000;

/** @param {any} node */
export function nodeBadge(node) {
  const ready = conditionOf(node, 'Ready');
  if (ready && ready.status !== 'True') return badge(ready.status === 'Unknown' ? 'off' : 'bad', ready.status === 'Unknown' ? 'Silent' : 'Not ready', ready.message);
  if (node.spec?.unschedulable) return badge('warn', 'Cordoned', 'No new Pods are placed here');
  return ready ? badge('ok', 'Ready') : stateBadge(node);
}

/** @param {string} root @param {string} name @param {boolean} off */
const schedule = (root, name, off) => mergePatch(`${root}/api/v1/nodes/${encodeURIComponent(name)}`, { spec: { unschedulable: off || null } });

/** @param {any} ctx */
export function nodesPage(ctx) {
  const where = explored(ctx);
  const room = roomReader(ctx, where);
  /** @type {Map<string, import('../core/room.js').NodeRoom>} */
  let rooms = new Map();
  const bar = (/** @type {'cpu' | 'memory' | 'pods'} */ what, /** @type {string} */ label, /** @type {(value: number) => string} */ word) => (/** @type {any} */ row) => {
    const one = room.pods && rooms.get(row.metadata.name);
    return one ? share(`${label} of ${one.name}`, one.asked[what], what === 'pods' ? null : one.used && one.used[what], one.has[what], word) : '';
  };
  const table = new Table(ctx);
  const href = (/** @type {any} */ node) => `${to('explore', where.id)}/nodes/${encodeURIComponent(node.metadata.name)}`;
  /** @type {any} */
  let list;
  /** @type {import('../parts/table.js').Column[]} */
  const columns = [
    { id: 'state', label: 'State', class: 'c-state', fixed: true, draw: nodeBadge },
    { id: 'name', label: 'Name', fixed: true, sort: 'metadata.name', draw: (row) => [h('a', { class: 'n', href: href(row) }, row.metadata.name), h('span', { class: 'sub mono' }, address(row))] },
    { id: 'roles', label: 'Roles, version', class: 'c-roles', priority: 2, draw: (row) => [rolesOf(row).join(', ') || 'worker', h('span', { class: 'sub mono' }, row.status?.nodeInfo?.kubeletVersion || '')] },
    { id: 'version', label: 'Version', class: 'c-version', priority: 2, usual: false, sort: 'status.nodeInfo.kubeletVersion', draw: (row) => h('span', { class: 'mono' }, row.status?.nodeInfo?.kubeletVersion || '') },
    { id: 'address', label: 'Address', class: 'c-addr', priority: 2, usual: false, draw: (row) => h('span', { class: 'mono' }, address(row)) },
    { id: 'cpu', label: 'CPU', class: 'c-share', priority: 2, draw: bar('cpu', 'CPU', cores) },
    { id: 'memory', label: 'Memory', class: 'c-share', priority: 3, draw: bar('memory', 'Memory', sizes) },
    { id: 'pods', label: 'Pods', class: 'c-share', priority: 3, draw: bar('pods', 'Pods', counted) },
    { id: 'age', label: 'Age', class: 'c-age', priority: 3, sort: '-metadata.creationTimestamp', draw: (row) => h('span', { class: 'muted' }, ageOf(row.metadata.creationTimestamp)) },
  ];
  /** One action for all that are selected. @param {string} label @param {boolean} off @param {string} text @returns {import('../parts/table.js').Bulk} */
  const bulk = (label, off, text) => ({
    label, may: (row) => (may(row, 'update') || may(row, 'patch')) && Boolean(row.spec?.unschedulable) !== off, run: (row) => schedule(where.root, row.metadata.name, off),
    ask: (rows) => ({ title: `${label} ${rows.length} ${rows.length === 1 ? 'node' : 'nodes'}?`, action: label, body: [h('p', null, text), h('ul', { class: 'mono small' }, rows.slice(0, 12).map((row) => h('li', { key: row.id }, row.metadata.name)), rows.length > 12 ? h('li', null, `and ${rows.length - 12} more`) : null)] }),
  });
  function ask() {
    const q = ctx.query.get('q') || '';
    list?.stop();
    list = ctx.list({ type: NODE, root: where.root, filter: q ? [`metadata.name~${quoted(q)}`] : [], sort: sortOf(columns, ctx.query.get('sort') || '', 'metadata.name') });
  }
  ask();
  return {
    title: () => `Nodes of ${where.name()}`,
    onQuery: ask,
    render: () => explorer(where, { current: 'nodes', head: { title: 'Nodes', sub: 'As the cluster itself knows them. Machines are what they run on.' }, body: () => {
      room.begin();
      rooms = new Map(room.rows(list.items).map((one) => [one.name, one]));
      return [
        filterBar(ctx, { placeholder: 'Filter by name', chips: [], columns: table.chooser('nodes', columns), count: list.phase === 'ready' ? `${list.count} ${list.count === 1 ? 'node' : 'nodes'}` : '' }),
        table.draw({ list, columns, href, label: 'Nodes', name: 'nodes', bulk: [bulk('Cordon', true, 'No new Pods are placed there. Those that run go on.'), bulk('Uncordon', false, 'Pods are placed there again.')], empty: nothing(Boolean(ctx.query.get('q')), ctx, empty({ title: 'No nodes', icon: 'node', text: 'No machine has joined this cluster yet.' })) }),
      ];
    } }),
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
      await schedule(where.root, name, off);
      toast(off ? `${name} takes no new Pods` : `${name} takes Pods again`);
      node.refresh();
    } catch (error) {
      toast(error instanceof ApiError ? error.message : String(error), 'bad');
    }
  }

  // What is offered for it here: a drain goes on when the page is closed.
  const managed = where.management && ctx.app.schema(MANAGEMENT_NODE) ? ctx.list({ type: MANAGEMENT_NODE, filter: [`metadata.namespace=${quoted(where.id)}`, `status.nodeName=${quoted(name)}`] }, { size: 1 }) : null;
  const act = (/** @type {'drain' | 'stopDrain'} */ action, /** @type {any} */ body) => post(`${v1('', MANAGEMENT_NODE, managed.items[0].id)}?action=${action}`, body).then(() => managed.refresh());

  function drain() {
    const given = { deleteLocalData: false, force: false, grace: '', timeout: '' };
    const check = (/** @type {'deleteLocalData' | 'force'} */ field, /** @type {string} */ label) => h('label', { class: 'check' }, h('input', { type: 'checkbox', name: field, onchange: (/** @type {any} */ event) => { given[field] = event.target.checked; } }), label);
    const number = (/** @type {'grace' | 'timeout'} */ field, /** @type {string} */ label, /** @type {string} */ usual, /** @type {string} */ hint) => h('label', { class: 'field' }, h('span', null, label), h('input', { name: field, inputmode: 'numeric', placeholder: usual, autocomplete: 'off', value: given[field], oninput: (/** @type {any} */ event) => { given[field] = event.target.value; } }), h('span', { class: 'hint' }, hint));
    const here = pods.phase === 'ready' ? pods.items.filter((/** @type {any} */ one) => takesRoom(one) && !(one.metadata.ownerReferences || []).some((/** @type {any} */ owner) => owner.kind === 'DaemonSet')).length : null;
    return confirm({
      title: `Drain ${name}?`, danger: true, action: 'Drain',
      body: () => [
        h('p', null, `No new Pods are placed here, and ${here === null ? 'those that run' : here === 1 ? 'the 1 that runs' : `the ${here} that run`} are evicted, as disruption budgets allow. Pods of DaemonSets stay.`),
        check('deleteLocalData', 'Also those that keep data on the node (emptyDir): it is lost'), check('force', 'Also those that nothing makes again'),
        h('div', { class: 'fields two' }, number('grace', 'Seconds for each Pod', 'as it says', 'How long it may take to end.'), number('timeout', 'Seconds in all', String(USUAL), `At most ${LONGEST}; then it has failed.`)),
      ],
      run: async () => { await act('drain', drainRequest(given)); toast(`${name} is being drained`); },
    });
  }

  const stopDrain = () => act('stopDrain', {}).then(() => toast(`${name} is not drained further; it stays cordoned`), (error) => toast(error.message, 'bad'));

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
      const seen = managed?.items[0];
      const drained = drainOf(seen);
      return [
        pageHead({ title: name, crumbs, badge: [nodeBadge(node.item), drained && drained.tone !== 'bad' && off ? badge(drained.tone, drained.word) : null], actions: [
          offers(seen, 'drain') ? button({ label: 'Drain …', id: 'drain', run: drain }) : offers(seen, 'stopDrain') ? button({ label: 'Stop draining', id: 'stop-drain', run: stopDrain }) : null,
          may(node.item, 'update') || may(node.item, 'patch') ? button({ label: off ? 'Uncordon' : 'Cordon', run: () => cordon(!off) }) : null] }),
        drained?.tone === 'bad' ? h('div', { class: 'cause bad', role: 'alert' }, h('div', null, h('b', null, drained.word), h('p', null, drained.why))) : null,
        where.connected() ? null : away(where),
        state.tone === 'bad' && state.message ? h('div', { class: 'cause bad' }, h('div', null, h('b', null, state.message))) : null,
        tabs([['overview', 'Overview', base], ['pods', ['Pods', pods.phase === 'ready' ? h('span', { class: 'muted' }, ` ${pods.count}`) : null], `${base}/pods`], ['conditions', 'Conditions', `${base}/conditions`], ['events', 'Events', `${base}/events`], ['yaml', 'YAML', `${base}/yaml`]], tabNow()),
        body(),
      ];
    },
  };
}
