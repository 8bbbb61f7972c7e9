// Why, and what now? One cluster.

import { del, get, post, request, v1 } from '../core/api.js';
import { h } from '../core/dom.js';
import { CLUSTER, CONTROL_PLANE, EVENT, MACHINE, MACHINE_DEPLOYMENT, MANAGEMENT_CLUSTER, REGISTRATION_TOKEN, SNAPSHOT, conditionOf, distroOf, isCustom, isImported, may, nameOf, plain, providerOf, quoted } from '../core/objects.js';
import { to } from '../core/router.js';
import { toYaml } from '../core/yaml.js';
import { button, card, causeLine, conditionTable, copyable, empty, facts, pageHead, phase, skeleton, stateBadge, tabs, ageOf, failure } from '../parts/basics.js';
import { confirm, copy, openMenu, save, toast } from '../parts/layers.js';
import { topology } from '../parts/topology.js';
import { flag, tools, yamlView } from '../parts/yaml-view.js';
import { certificateTable, endingsOf } from './parts/certificates.js';
import { eventTable, snapshotLines, story, timeline, timelineView } from './parts/evidence.js';
import { poolsView } from './parts/pools.js';
import { registration } from './parts/registration.js';
import { related } from './parts/related.js';
import { rotate, snapshotsView } from './parts/snapshots.js';

/** @param {any} ctx */
export function clusterPage(ctx) {
  const { namespace, name } = ctx.params;
  const tabNow = () => ctx.params.tab || 'overview';
  const base = to('clusters', namespace, name);
  const mine = [`spec.clusterName=${quoted(name)}`];
  const cluster = ctx.object({ type: CLUSTER, id: `${namespace}/${name}` });
  const machines = ctx.list({ type: MACHINE, namespace, filter: mine, sort: 'metadata.name' }, { size: 2000 });
  const deployments = ctx.list({ type: MACHINE_DEPLOYMENT, namespace, filter: mine, sort: 'metadata.name' }, { size: 500 });
  const events = ctx.app.schema(EVENT) ? ctx.list({ type: EVENT, namespace, filter: [`involvedObject.name~${quoted(name)}`], sort: '-lastTimestamp' }, { size: 300 }) : null;
  /** The control plane says how far an operation is; before there is one, the list is empty. */
  const planes = ctx.app.schema(CONTROL_PLANE) ? ctx.list({ type: CONTROL_PLANE, namespace, filter: [`metadata.name=${quoted(name)}`] }, { size: 1 }) : null;
  const snapshots = ctx.app.schema(SNAPSHOT) ? ctx.list({ type: SNAPSHOT, namespace, filter: mine, sort: '-snapshotFile.createdAt' }, { size: 500 }) : null;
  /** @type {any} */
  let management = null;
  /** @type {any} */
  let tokens = null;

  /** What is known only once the cluster is. */
  function follow() {
    const id = cluster.item?.status?.clusterName;
    if (!id) return;
    if (!management && ctx.app.schema(MANAGEMENT_CLUSTER)) management = ctx.object({ type: MANAGEMENT_CLUSTER, id });
    if (tokens?.phase === 'ready') reveal(tokens.items.find((/** @type {any} */ one) => one.metadata.name === 'default-token') || tokens.items[0]);
    if (!tokens && ['registration', 'certificates'].includes(tabNow()) && ctx.app.schema(REGISTRATION_TOKEN)) tokens = ctx.list({ type: REGISTRATION_TOKEN, namespace: id }, { size: 20 });
  }

  /** The token that stands in commands, of those who may read its Secret. @param {any} token */
  async function reveal(token) {
    const secret = token?.status?.tokenSecretName;
    if (!secret || ctx.secretAsked || !/\{token\}/.test(token.status.nodeCommand || '') || !ctx.app.schema('secret')) return;
    ctx.secretAsked = true;
    try {
      const found = await get(v1('', 'secret', `${token.metadata.namespace}/${secret}`));
      ctx.registrationToken = found?.data?.token ? atob(found.data.token) : '';
      ctx.redraw();
    } catch {
      // Who may not read it is shown the command without it, and told so.
    }
  }

  const connected = () => conditionOf(management?.item, 'Connected')?.status === 'True';

  async function kubeconfig() {
    try {
      const answer = await post(`/v3/clusters/${encodeURIComponent(cluster.item.status.clusterName)}?action=generateKubeconfig`, {});
      save(`${name}.yaml`, answer.config);
      toast('The kubeconfig holds a token of yours; it is good for 30 days unless a setting says otherwise.');
    } catch (error) {
      toast(/** @type {any} */ (error).message, 'bad');
    }
  }

  const remove = () => confirm({
    title: `Delete ${name}?`,
    danger: true,
    action: 'Delete cluster',
    typed: name,
    body: [
      isImported(cluster.item) ? h('p', null, 'The cluster itself goes on; its agent is removed and it is no longer seen from here.')
        : h('p', null, machines.count ? `${machines.count} ${machines.count === 1 ? 'machine' : 'machines'} and everything on them, snapshots on their disks included, will be gone:` : 'It has no machines. Everything recorded about it will be gone.'),
      machines.count ? h('ul', { class: 'mono small' }, machines.items.slice(0, 8).map((/** @type {any} */ one) => h('li', { key: one.id }, one.metadata.name)), machines.count > 8 ? h('li', null, `and ${machines.count - 8} more`) : null) : null,
    ],
    run: async () => {
      await del(v1('', CLUSTER, `${namespace}/${name}`));
      toast(`${name} is being deleted`);
    },
  });

  /** @param {number} place @param {number} quantity */
  async function scale(place, quantity) {
    const pools = cluster.item.spec.rkeConfig.machinePools;
    const at = `/spec/rkeConfig/machinePools/${place}`;
    await request('PATCH', v1('', CLUSTER, `${namespace}/${name}`), {
      headers: { 'content-type': 'application/json-patch+json' },
      body: [{ op: 'test', path: `${at}/name`, value: pools[place].name }, { op: 'add', path: `${at}/quantity`, value: quantity }],
    });
    await cluster.refresh();
  }

  function actions() {
    const item = cluster.item;
    const id = item.status?.clusterName;
    const deleting = Boolean(item.metadata.deletionTimestamp);
    const more = [
      { label: 'Copy the name', icon: 'copy', run: () => copy(name) },
      { label: 'Download YAML', icon: 'download', run: () => save(`${name}.yaml`, toYaml(plain(item))) },
    ];
    if (may(item, 'update') && !deleting && !isImported(item)) more.push({ label: 'Rotate certificates …', icon: 'key', run: () => rotate(item) });
    if (may(item, 'remove') && !deleting && name !== 'local') more.push(/** @type {any} */ ({ label: 'Delete …', icon: 'close', danger: true, run: remove }));
    return [
      id && connected() ? button({ label: 'Explore', icon: 'node', href: to('explore', id) }) : null,
      id && connected() ? button({ label: 'Kubeconfig', icon: 'download', run: kubeconfig }) : null,
      may(item, 'update') && !deleting && !isImported(item) ? button({ label: 'Edit', href: `${base}/edit`, id: 'edit' }) : null,
      button({ icon: 'more', label: '', title: 'More actions', kind: 'square', id: 'more', run: (event) => openMenu(/** @type {Element} */ (event.currentTarget), more) }),
    ];
  }
  ctx.keys([
    { keys: 'e', what: 'edit', run: () => ctx.go(`${base}/edit`), when: () => may(cluster.item, 'update') && !isImported(cluster.item) },
    { keys: 'y', what: 'YAML', run: () => ctx.go(`${base}/yaml`) },
  ]);

  function overview() {
    const item = cluster.item;
    const pools = item.spec?.rkeConfig?.machinePools || [];
    const info = management?.item?.status || {};
    const id = item.status?.clusterName;
    const list = facts([
      ['Provider', providerOf(item)], ['Distribution', nameOf(distroOf(item.spec?.kubernetesVersion || info.version?.gitVersion))],
      ['Version', h('span', { class: 'mono' }, item.spec?.kubernetesVersion || info.version?.gitVersion || '–')],
      ['Machines', machines.phase === 'ready' ? String(machines.count) : ''], ['Nodes', info.info?.nodeCount ?? info.nodeCount ?? ''],
      ['Connection', id && management?.phase === 'ready' ? (connected() ? 'connected' : 'not connected') : ''], ['Age', ageOf(item.metadata.creationTimestamp)], ['Cluster id', id ? copyable(id, copy) : ''],
    ]);
    return [
      card('', list),
      h('div', { class: 'grid' },
        card('Topology', machines.phase === 'ready' ? (pools.length || machines.count ? h('div', { class: 'scroll', tabindex: 0 }, topology({ cluster: item, pools, machines: machines.items, explore: id && connected() ? to('explore', id) : '' }))
          : empty({ title: 'No machines yet', text: isImported(item) ? 'Machines of imported clusters are not managed from here.' : 'Machines appear here as they register.', actions: isCustom(item) || isImported(item) ? button({ label: 'Registration', href: `${base}/registration` }) : null }))
          : phase(machines, () => null)),
        card('Timeline', timeline([item, management?.item, ...machines.items], events?.items || []), { actions: h('a', { class: 'link small', href: `${base}/timeline` }, 'All of it') })),
      tools([`remuda why${flag(namespace)} ${name}`, `remuda cluster describe${flag(namespace)} ${name}`, `kubectl get clusters.provisioning.cattle.io -n ${namespace} ${name} -o yaml`], v1('', `${CLUSTER}s`, `${namespace}/${name}`)),
    ];
  }

  function certificates() {
    const item = cluster.item;
    const id = item.status?.clusterName;
    const rows = endingsOf({ management: management?.item, machines: machines.items, tokens: tokens?.items || [] });
    const change = may(item, 'update') && !item.metadata.deletionTimestamp && !isImported(item);
    return [
      h('div', { class: 'filters' }, h('p', { class: 'muted small' }, id && connected() ? ['Certificates in Secrets of the cluster, its own serving certificate among them, are ', h('a', { class: 'link', href: to('explore', id, 'certificates') }, 'in the cluster'), '.'] : 'Certificates in Secrets of the cluster are seen once it is connected.'),
        change ? h('div', { class: 'act count' }, button({ label: 'Rotate certificates …', icon: 'key', run: () => rotate(item) })) : null),
      h('section', { class: 'card table-card' }, rows.length ? certificateTable(rows, 'Certificates') : phase(machines, () => empty({ title: 'Nothing that ends is known here', icon: 'shield', text: 'The authority of a cluster appears once it is connected, certificates of machines when their provider says when they end.' }))),
    ];
  }

  function body() {
    const item = cluster.item;
    switch (tabNow()) {
      case 'machines':
        return poolsView({ ctx, cluster: item, machines, deployments, scale: may(item, 'update') && !item.metadata.deletionTimestamp ? scale : null });
      case 'snapshots':
        return snapshots && !isImported(item) ? snapshotsView({ cluster: item, snapshots, plane: planes?.items[0] }) : empty({ title: 'No snapshots here', text: isImported(item) ? 'Snapshots of clusters made elsewhere are taken there.' : 'They are not for you to see.' });
      case 'certificates':
        return certificates();
      case 'timeline':
        return timelineView(ctx, name, story([item, management?.item, ...machines.items], events?.items || [], snapshotLines(snapshots?.items || [])));
      case 'conditions':
        return [card('Cluster', conditionTable(item.status?.conditions)), management?.item ? card('Connection', conditionTable(management.item.status?.conditions)) : null];
      case 'events':
        return events ? card('', phase(events, () => eventTable(events.items))) : empty({ title: 'Events are not for you to see' });
      case 'related':
        return card('Related objects', related(ctx, item, machines.items));
      case 'registration':
        return tokens ? phase(tokens, () => registration({ ctx, cluster: item, token: tokens.items.find((/** @type {any} */ one) => one.metadata.name === 'default-token') || tokens.items[0], machines })) : item.status?.clusterName && !ctx.app.schema(REGISTRATION_TOKEN) ? empty({ title: 'Registration tokens are not for you to see' }) : skeleton(4);
      case 'yaml':
        return yamlView(item);
      default:
        return overview();
    }
  }

  return {
    title: name,
    commands: () => (cluster.item ? [
      { label: `${name}: YAML`, icon: 'cluster', run: () => ctx.go(`${base}/yaml`) },
      ...(may(cluster.item, 'update') && !isImported(cluster.item) ? [{ label: `${name}: edit`, icon: 'cluster', run: () => ctx.go(`${base}/edit`) }] : []),
      ...(may(cluster.item, 'remove') ? [{ label: `${name}: delete …`, icon: 'close', run: remove }] : []),
    ] : []),
    render() {
      follow();
      const crumbs = [h('a', { href: to('clusters') }, 'Clusters'), ' / ', namespace];
      if (!cluster.item) return [pageHead({ title: name, crumbs }), phase(cluster, () => null)];
      const item = cluster.item;
      if (cluster.gone) return [pageHead({ title: name, crumbs }), empty({ title: `${name} is gone`, text: 'It was deleted, with all its machines.', actions: button({ label: 'Clusters', href: to('clusters') }) })];
      const count = (/** @type {any} */ list) => (list?.phase === 'ready' ? h('span', { class: 'muted' }, ` ${list.count}`) : null);
      /** @type {[string, any, string][]} */
      const parts = [['overview', 'Overview', base], ['machines', ['Machines', count(machines)], `${base}/machines`]];
      if ((isCustom(item) || (isImported(item) && name !== 'local')) && ctx.app.schema(REGISTRATION_TOKEN)) parts.push(['registration', 'Registration', `${base}/registration`]);
      if (snapshots && !isImported(item)) parts.push(['snapshots', ['Snapshots', count(snapshots)], `${base}/snapshots`]);
      parts.push(['certificates', 'Certificates', `${base}/certificates`], ['timeline', 'Timeline', `${base}/timeline`]);
      parts.push(['conditions', 'Conditions', `${base}/conditions`], ['events', ['Events', count(events)], `${base}/events`], ['related', 'Related', `${base}/related`], ['yaml', 'YAML', `${base}/yaml`]);
      return [
        pageHead({ title: name, crumbs, badge: stateBadge(item), actions: actions() }),
        causeLine(item),
        cluster.error ? failure(cluster.error) : null,
        tabs(parts, tabNow()),
        body(),
      ];
    },
  };
}
