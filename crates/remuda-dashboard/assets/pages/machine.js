// Which step, with what output? One machine.

import { del, mayDo, v1 } from '../core/api.js';
import { h } from '../core/dom.js';
import { CLUSTER, EVENT, MACHINE, MANAGEMENT_CLUSTER, addressOf, clusterNameOf, may, plain, poolOf, quoted, rolesOf, stepsOf } from '../core/objects.js';
import { logQuery, planQuery } from '../core/plan.js';
import { to } from '../core/router.js';
import { toYaml } from '../core/yaml.js';
import { ageOf, ago, button, card, causeLine, conditionTable, copyable, empty, facts, pageHead, phase, stateBadge, tabs } from '../parts/basics.js';
import { shape } from '../parts/icons.js';
import { confirm, copy, openMenu, save, toast } from '../parts/layers.js';
import { flag, tools, yamlView } from '../parts/yaml-view.js';
import { eventTable, timeline } from './parts/evidence.js';
import { driverLog, planView } from './parts/plan.js';
import { related } from './parts/related.js';

/** From nothing to a node, step by step. @param {any} machine */
export function stepList(machine) {
  const steps = stepsOf(machine);
  const now = steps.findIndex((step) => !step.done);
  return h('ol', { class: 'steps' }, steps.map((step, place) => {
    const tone = step.done ? 'ok' : step.failed ? 'bad' : place === now ? 'move' : 'off';
    return h('li', { class: 'step', key: step.type, 'aria-current': place === now ? 'step' : null }, h('span', { class: `${tone} bare` }, shape(tone)),
      h('div', null, h('b', null, step.name), step.message && place >= now ? h('p', null, step.message) : null), h('span', { class: 'muted small nowrap' }, step.done ? ago(step.at) : ''));
  }));
}

/** @param {any} ctx */
export function machinePage(ctx) {
  const { namespace, name } = ctx.params;
  const tabNow = () => ctx.params.tab || 'overview';
  const base = to('machines', namespace, name);
  const machine = ctx.object({ type: MACHINE, id: `${namespace}/${name}` });
  const events = ctx.app.schema(EVENT) ? ctx.list({ type: EVENT, namespace, filter: [`involvedObject.name=${quoted(name)}`], sort: '-lastTimestamp' }, { size: 200 }) : null;
  /** @type {any} */
  let cluster = null;
  /** Whether the caller may look at plans and at logs, which are in Secrets and ConfigMaps. */
  const mayRead = { secrets: false, configmaps: false };
  for (const resource of /** @type {const} */ (['secrets', 'configmaps'])) if (ctx.app.schema(resource.slice(0, -1))) mayDo('', { verb: 'list', resource, namespace }).then((answer) => { mayRead[resource] = answer; ctx.redraw(); }, () => {});
  /** @type {any} */
  let plans = null;
  /** @type {any} */
  let logs = null;
  const plan = planView(ctx.redraw);
  const server = () => machine.item?.spec?.infrastructureRef?.name || '';
  ctx.keys([{ keys: 'y', what: 'YAML', run: () => ctx.go(`${base}/yaml`) }]);

  const remove = () => confirm({
    title: `Delete ${name}?`, danger: true, action: 'Delete machine',
    body: h('p', null, `The node is drained, then the server goes with all that is on its disk.${poolOf(machine.item) ? ` Pool ${poolOf(machine.item)} makes another one in its place.` : ''}`),
    run: async () => {
      await del(v1('', MACHINE, `${namespace}/${name}`));
      toast(`${name} is being deleted`);
    },
  });

  function overview() {
    const item = machine.item;
    const id = cluster?.item?.status?.clusterName;
    const node = item.status?.nodeRef?.name;
    const info = item.status?.nodeInfo || {};
    const reachable = id && ctx.app.schema(MANAGEMENT_CLUSTER);
    return [
      card('', facts([
        ['Cluster', h('a', { href: to('clusters', namespace, clusterNameOf(item)) }, clusterNameOf(item))], ['Pool', poolOf(item)], ['Roles', rolesOf(item).join(', ')],
        ['Node', node ? (reachable ? h('a', { class: 'wrap', href: `${to('explore', id)}/nodes/${encodeURIComponent(node)}` }, node) : node) : 'not joined yet'],
        ['Internal address', addressOf(item, 'InternalIP') ? copyable(addressOf(item, 'InternalIP'), copy) : ''], ['External address', addressOf(item, 'ExternalIP') ? copyable(addressOf(item, 'ExternalIP'), copy) : ''],
        ['Version', info.kubeletVersion ? h('span', { class: 'mono' }, info.kubeletVersion) : ''], ['System', info.osImage], ['Kernel', info.kernelVersion], ['Runtime', info.containerRuntimeVersion],
        ['Provider id', item.spec?.providerID ? h('span', { class: 'mono' }, item.spec.providerID) : ''], ['Made of', item.spec?.infrastructureRef ? `${item.spec.infrastructureRef.kind} ${item.spec.infrastructureRef.name}` : ''], ['Age', ageOf(item.metadata.creationTimestamp)],
      ])),
      h('div', { class: 'grid' }, card('Steps', stepList(item)), card('Timeline', timeline([item], events?.items || []))),
      tools([`remuda why${flag(namespace)} ${name}`, `remuda machine logs${flag(namespace)} ${name}`, `kubectl get machines.cluster.x-k8s.io -n ${namespace} ${name} -o yaml`], v1('', `${MACHINE}s`, `${namespace}/${name}`)),
    ];
  }

  function body() {
    const item = machine.item;
    switch (tabNow()) {
      case 'plan':
        if (!mayRead.secrets) return empty({ title: 'Plans are not for you to see', icon: 'lock' });
        plans ??= ctx.list(planQuery(namespace, name), { size: 2 });
        return plan(plans);
      case 'log':
        if (!mayRead.configmaps) return empty({ title: 'Logs of machines are not for you to see', icon: 'lock' });
        logs ??= ctx.list(logQuery(namespace, server()), { size: 2 });
        return driverLog(logs);
      case 'conditions': return card('', conditionTable(item.status?.conditions));
      case 'events': return events ? card('', phase(events, () => eventTable(events.items))) : empty({ title: 'Events are not for you to see' });
      case 'related': return card('Related objects', related(ctx, item));
      case 'yaml': return yamlView(item);
      default: return overview();
    }
  }

  return {
    title: name,
    render() {
      const item = machine.item;
      if (item && !cluster && ctx.app.schema(CLUSTER) && clusterNameOf(item)) cluster = ctx.object({ type: CLUSTER, id: `${namespace}/${clusterNameOf(item)}` });
      const crumbs = [h('a', { href: to('machines') }, 'Machines'), ' / ', item ? h('a', { href: to('clusters', namespace, clusterNameOf(item)) }, clusterNameOf(item)) : namespace];
      if (!item) return [pageHead({ title: name, crumbs }), phase(machine, () => null)];
      if (machine.gone) return [pageHead({ title: name, crumbs }), empty({ title: `${name} is gone`, text: 'The machine was deleted.', actions: button({ label: 'Machines', href: to('machines') }) })];
      /** @type {[string, any, string][]} */
      const parts = [['overview', 'Overview', base]];
      if (mayRead.secrets) parts.push(['plan', 'Plan', `${base}/plan`]);
      // Servers that register themselves have no driver.
      if (mayRead.configmaps && server() && item.spec.infrastructureRef.kind !== 'CustomMachine') parts.push(['log', 'Log', `${base}/log`]);
      parts.push(['conditions', 'Conditions', `${base}/conditions`], ['events', 'Events', `${base}/events`], ['related', 'Related', `${base}/related`], ['yaml', 'YAML', `${base}/yaml`]);
      const more = [{ label: 'Copy the name', icon: 'copy', run: () => copy(name) }, { label: 'Download YAML', icon: 'download', run: () => save(`${name}.yaml`, toYaml(plain(item))) }];
      if (may(item, 'remove') && !item.metadata.deletionTimestamp) more.push(/** @type {any} */ ({ label: 'Delete …', icon: 'close', danger: true, run: remove }));
      return [
        pageHead({ title: name, crumbs, badge: stateBadge(item), actions: button({ icon: 'more', label: '', title: 'More actions', kind: 'square', id: 'more', run: (event) => openMenu(/** @type {Element} */ (event.currentTarget), more) }) }),
        causeLine(item),
        tabs(parts, tabNow()),
        body(),
      ];
    },
  };
}
