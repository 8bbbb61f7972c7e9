// One object of a cluster: what it is, what it says, and what may be done with it.

import { ApiError, del, get, mayDo, put, v1 } from '../../core/api.js';
import { h } from '../../core/dom.js';
import { containerState, decoded, holdsData, isSecret, kindHref, masked, nativePath, objectHref, podFilter, titleOf, writable } from '../../core/kinds.js';
import { EVENT, POD, bytes, may, plain, quoted } from '../../core/objects.js';
import { toYaml } from '../../core/yaml.js';
import { ageOf, badge, button, card, causeLine, conditionTable, copyable, empty, facts, pageHead, phase, skeleton, stateBadge, tabs } from '../../parts/basics.js';
import { confirm, copy, save, toast } from '../../parts/layers.js';
import { LogView } from '../../parts/log.js';
import { TerminalView } from '../../parts/terminal.js';
import { YamlEdit } from '../../parts/yaml-edit.js';
import { yamlView } from '../../parts/yaml-view.js';
import { eventTable } from '../parts/evidence.js';
import { away, explored } from './where.js';

/** @param {Record<string, string> | undefined} pairs */
const labels = (pairs) => (pairs && Object.keys(pairs).length ? h('div', { class: 'labels' }, Object.entries(pairs).map(([key, value]) => h('span', { class: 'label', key }, value ? `${key}=${value}` : key))) : '');

/** @param {any} item @returns {any[]} */
const containersOf = (item) => [...(item.spec?.initContainers || []), ...(item.spec?.containers || [])];
/** @param {any} item @param {string} name */
const statusOf = (item, name) => [...(item.status?.initContainerStatuses || []), ...(item.status?.containerStatuses || [])].find((/** @type {any} */ one) => one.name === name);

/** @param {string[]} heads @param {any[]} rows @param {string} label */
const plainTable = (heads, rows, label) => h('div', { class: 'scroll', tabindex: 0 }, h('table', { class: 'plain', 'aria-label': label }, h('thead', null, h('tr', null, heads.map((head) => h('th', { scope: 'col' }, head)))), h('tbody', null, rows)));

/** @param {any} item */
const containers = (item) => card('Containers', plainTable(['State', 'Container', 'Image', 'Restarts'], containersOf(item).map((one) => {
  const status = statusOf(item, one.name);
  const state = containerState(status);
  return h('tr', { key: one.name }, h('td', null, badge(state.tone, state.word, state.why || undefined)), h('td', null, one.name, state.why ? h('span', { class: `why ${state.tone}` }, state.why) : null), h('td', { class: 'mono wrap' }, one.image || ''), h('td', null, String(status?.restartCount ?? 0)));
}), 'Containers'));

/** @param {any} item */
const ports = (item) => card('Ports', item.spec?.ports?.length ? plainTable(['Name', 'Port', 'To', 'Protocol', 'Node port'], item.spec.ports.map((/** @type {any} */ one) => h('tr', { key: `${one.port}${one.protocol}` }, h('td', null, one.name || '–'), h('td', null, String(one.port)), h('td', null, String(one.targetPort ?? one.port)), h('td', null, one.protocol || 'TCP'), h('td', null, one.nodePort ? String(one.nodePort) : '–'))), 'Ports') : h('p', { class: 'muted' }, 'None.'));

/** @param {any} item */
function configData(item) {
  const all = [...Object.entries(item.data || {}).map(([key, value]) => ({ key, text: String(value), size: String(value).length })), ...Object.entries(item.binaryData || {}).map(([key, value]) => ({ key, text: null, size: decoded(String(value)).size }))];
  return card('Data', all.length ? all.map((one) => h('div', { class: 'datum', key: one.key }, h('header', null, h('h3', { class: 'mono' }, one.key), one.text === null ? null : button({ icon: 'copy', label: '', title: `Copy ${one.key}`, kind: 'square', run: () => copy(String(one.text)) })), one.text === null ? h('p', { class: 'muted' }, `${bytes(one.size)} that are no text`) : h('pre', { tabindex: 0, 'aria-label': one.key }, one.text))) : h('p', { class: 'muted' }, 'It is empty.'));
}

/** @param {any} item @param {Set<string>} open @param {() => void} redraw */
function secretData(item, open, redraw) {
  const keys = Object.keys(item.data || {});
  return card('Data', keys.length ? keys.map((key) => {
    const { text, size } = decoded(item.data[key]);
    const shown = open.has(key);
    const flip = () => { if (shown) open.delete(key); else open.add(key); redraw(); };
    return h('div', { class: 'datum', key }, h('header', null, h('h3', { class: 'mono' }, key), h('span', { class: 'act' }, h('span', { class: 'muted small' }, bytes(size)), text === null ? null : button({ label: shown ? 'Hide' : 'Show', title: `${shown ? 'Hide' : 'Show'} ${key}`, run: flip }), text === null ? null : button({ icon: 'copy', label: '', title: `Copy ${key}`, kind: 'square', run: () => copy(text) }))),
      text === null ? h('p', { class: 'muted' }, 'It is no text.') : shown ? h('pre', { tabindex: 0, 'aria-label': key }, text) : h('p', { class: 'muted mono', 'aria-label': 'hidden' }, '••••••••'));
  }) : h('p', { class: 'muted' }, 'It is empty.'), { note: h('span', { class: 'mono' }, item._type || '') });
}

/** @param {any} ctx */
export function objectPage(ctx) {
  const where = explored(ctx);
  const { type, name } = ctx.params;
  const namespace = ctx.params.namespace === '-' ? '' : ctx.params.namespace;
  const id = namespace ? `${namespace}/${name}` : name;
  const base = objectHref(where.id, type, id);
  const path = v1(where.root, type, id);
  const object = ctx.object({ type, id, root: where.root });
  const tabNow = () => ctx.params.tab || 'overview';
  const open = new Set();
  let revealed = false;
  /** @type {boolean | null} */
  let mayLog = null;
  let mayShell = false;
  /** @type {TerminalView | null} */
  let shell = null;
  /** @type {any} */
  let events = null;
  /** @type {any} */
  let pods = null;
  /** @type {LogView | null} */
  let log = null;
  let container = '';
  let previous = false;
  /** @type {YamlEdit | null} */
  let edit = null;
  ctx.onStop(() => { log?.stop(); shell?.stop(); });

  /** @type {any} */
  let asking;
  ctx.onStop(() => clearTimeout(asking));
  /** A cluster that does not know the caller yet, or is away for a moment, is asked again. */
  async function askForLogs() {
    try {
      mayLog = await mayDo(where.root, { verb: 'get', resource: 'pods', subresource: 'log', namespace, name });
      // Pods of this server itself run nowhere.
      mayShell = where.id !== 'local' && (await mayDo(where.root, { verb: 'create', resource: 'pods', subresource: 'exec', namespace, name }));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 403) {
        asking = setTimeout(askForLogs, 2_000);
        return;
      }
      mayLog = false;
      mayShell = false;
    }
    ctx.redraw();
  }
  if (type === POD) askForLogs();

  const remove = () => confirm({
    title: `Delete ${name}?`, danger: true, action: `Delete ${titleOf(where.schema(type), true).toLowerCase()}`, typed: holdsData(type) ? name : undefined,
    body: h('p', null, type === 'namespace' ? 'Everything in it is deleted too.' : type === 'apiextensions.k8s.io.customresourcedefinition' ? 'All objects of this kind are deleted too.' : object.item?.metadata?.ownerReferences?.length ? 'It belongs to another object, which may make it anew.' : 'It is gone for good.'),
    run: async () => {
      await del(path);
      toast(`${name} is being deleted`);
      ctx.go(kindHref(where.id, type));
    },
  });

  /** What was read is what is written, with what a person changed in it. @param {any} given */
  async function write(given) {
    const now = await get(path);
    // Only kinds with a generation tell a change of status, which the edit may pass over, from any other.
    const same = now.metadata.resourceVersion === edited.resourceVersion || (now.metadata.generation !== undefined && now.metadata.generation === edited.generation);
    if (!same) throw new ApiError(409, 'It was changed by others meanwhile.');
    await put(path, { ...given, metadata: { ...given.metadata, resourceVersion: now.metadata.resourceVersion } });
    await object.refresh();
  }
  /** What the cluster would say of an edit; nothing is written. @param {any} given */
  async function check(given) {
    const schema = where.schema(type);
    if (!schema) throw new ApiError(0, 'The kinds of the cluster are not known yet.');
    await put(`${nativePath(where.root, schema, namespace, name)}?dryRun=All&fieldValidation=Strict`, { ...given, metadata: { ...given.metadata, resourceVersion: object.item.metadata.resourceVersion } });
  }
  /** What the edit began with. @type {any} */
  let edited = {};

  function editor() {
    if (!edit) {
      edited = object.item.metadata;
      edit = new YamlEdit(ctx, { object: writable(plain(object.item)), save: write, check, done: () => { toast(`${name} was changed`); edit = null; ctx.go(base); }, cancel: base });
    }
    return edit.draw();
  }

  function logs() {
    const all = containersOf(object.item);
    if (!all.some((one) => one.name === container)) container = (object.item.spec?.containers || all)[0]?.name || '';
    if (!container) return empty({ title: 'No containers' });
    const status = statusOf(object.item, container);
    if (!status?.restartCount) previous = false;
    log ??= new LogView(ctx.redraw, () => Boolean(statusOf(object.item, container)?.state?.running || statusOf(object.item, container)?.state?.waiting));
    log.open({ root: where.root, namespace, pod: name, container, previous });
    return log.draw([
      h('label', { class: 'field-inline' }, h('span', null, 'Container'), h('select', { id: 'container', value: container, onchange: (/** @type {any} */ event) => { container = event.target.value; previous = false; ctx.redraw(); } }, all.map((one) => h('option', { key: one.name, value: one.name }, one.name)))),
      status?.restartCount ? h('button', { type: 'button', class: 'chip', 'aria-pressed': String(previous), onclick: () => { previous = !previous; ctx.redraw(); } }, 'Before its restart') : null,
    ], `Log of ${container}`);
  }

  function terminal() {
    const all = object.item.spec?.containers || [];
    if (!all.some((/** @type {any} */ one) => one.name === container)) container = all[0]?.name || '';
    if (!container) return empty({ title: 'No containers' });
    shell ??= new TerminalView(ctx.redraw, () => /** @type {HTMLElement | null} */ (document.querySelector('.tabs [aria-current]'))?.focus());
    const view = shell;
    const source = { cluster: where.id, namespace, pod: name, container };
    // Once its place is in the document, which says how large it is.
    queueMicrotask(() => tabNow() === 'shell' && requestAnimationFrame(() => view === shell && tabNow() === 'shell' && view.open(source)));
    return view.draw(h('label', { class: 'field-inline' }, h('span', null, 'Container'), h('select', { id: 'container', value: container, onchange: (/** @type {any} */ event) => { container = event.target.value; ctx.redraw(); } }, all.map((/** @type {any} */ one) => h('option', { key: one.name, value: one.name }, one.name)))));
  }

  const podRow = (/** @type {any} */ one) => h('tr', { key: one.id }, h('td', null, stateBadge(one)), h('td', { class: 'wrap' }, h('a', { class: 'link', href: objectHref(where.id, POD, one.id) }, one.metadata.name)), h('td', { class: 'muted' }, ageOf(one.metadata.creationTimestamp)));

  function overview() {
    const item = object.item;
    const owner = (item.metadata.relationships || []).find((/** @type {any} */ one) => one.rel === 'owner' && one.fromId);
    const filter = podFilter(item);
    if (filter && !pods && where.lists(POD)) pods = ctx.list({ type: POD, root: where.root, namespace, filter, sort: 'metadata.name', include: ['metadata'] }, { size: 200 });
    return [
      card('', facts([
        ['Namespace', namespace], ['Node', item.spec?.nodeName ? h('a', { href: objectHref(where.id, 'node', item.spec.nodeName) }, item.spec.nodeName) : ''], ['Address', type === POD && item.status?.podIP ? copyable(item.status.podIP, copy) : ''],
        ['Type', item.kind === 'Service' ? item.spec?.type : ''], ['Cluster address', item.kind === 'Service' && item.spec?.clusterIP ? copyable(item.spec.clusterIP, copy) : ''],
        ['Replicas', item.spec?.replicas !== undefined && item.status ? `${item.status.readyReplicas ?? 0} of ${item.spec.replicas} ready` : ''], ['Phase', type !== POD && item.status?.phase && typeof item.status.phase === 'string' ? item.status.phase : ''],
        ['Belongs to', owner ? h('a', { href: objectHref(where.id, owner.fromType, owner.fromId) }, owner.fromId.split('/').at(-1)) : ''], ['Age', ageOf(item.metadata.creationTimestamp)], ['Labels', labels(item.metadata.labels)],
      ])),
      type === POD ? containers(item) : null,
      item.kind === 'Service' ? ports(item) : null,
      type === 'configmap' ? configData(item) : isSecret(item) ? secretData(item, open, ctx.redraw) : null,
      pods ? card('Pods', phase(pods, () => (pods.count ? plainTable(['State', 'Pod', 'Age'], pods.items.map(podRow), 'Pods') : h('p', { class: 'muted' }, 'None are chosen by its labels.')), 2)) : null,
      item.message || item.note ? card('Message', h('p', { class: 'wrap' }, item.message || item.note)) : null,
      item.status?.conditions?.length ? card('Conditions', conditionTable(item.status.conditions)) : null,
    ];
  }

  function yaml() {
    const item = object.item;
    if (!isSecret(item)) return yamlView(item);
    return [h('div', { class: 'filters' }, h('p', { class: 'muted small' }, revealed ? 'Values are as they are stored, in base64.' : 'Values are hidden.'), h('div', { class: 'act count' }, button({ label: revealed ? 'Hide values' : 'Show values', run: () => { revealed = !revealed; ctx.redraw(); } }))), yamlView(revealed ? item : masked(item))];
  }

  function body() {
    if (tabNow() !== 'logs') log?.stop();
    if (tabNow() !== 'shell' && shell) {
      shell.stop();
      shell = null;
    }
    switch (tabNow()) {
      case 'logs': return mayLog === null ? skeleton(4) : mayLog ? logs() : empty({ title: 'Logs of this Pod are not for you to see' });
      case 'shell': return mayLog === null ? skeleton(4) : mayShell ? terminal() : empty({ title: 'A shell in this Pod is not for you' });
      case 'events':
        events ??= ctx.list({ type: EVENT, root: where.root, namespace: namespace || undefined, filter: [`involvedObject.name=${quoted(name)}`], sort: '-lastTimestamp' }, { size: 200 });
        return card('', phase(events, () => eventTable(events.items)));
      case 'yaml': return yaml();
      case 'edit': return may(object.item, 'update') ? editor() : empty({ title: 'You may not change this' });
      default: return overview();
    }
  }
  ctx.keys([
    { keys: 'e', what: 'edit', run: () => ctx.go(`${base}/edit`), when: () => may(object.item, 'update') },
    { keys: 's', what: 'shell', run: () => ctx.go(`${base}/shell`), when: () => mayShell },
    { keys: 'y', what: 'YAML', run: () => ctx.go(`${base}/yaml`) },
  ]);

  return {
    title: name,
    render() {
      const crumbs = where.crumbs(' / ', h('a', { href: kindHref(where.id, type) }, titleOf(where.schema(type) || { id: type })), namespace ? ` / ${namespace}` : '');
      if (object.gone && tabNow() !== 'edit') return [pageHead({ title: name, crumbs }), empty({ title: `${name} is gone`, text: 'It was deleted.', actions: button({ label: 'Back to the list', href: kindHref(where.id, type) }) })];
      if (!object.item) return [pageHead({ title: name, crumbs }), where.connected() ? null : away(where), phase(object, () => null)];
      const item = object.item;
      const editing = tabNow() === 'edit';
      if (!editing) edit = null;
      const deleting = Boolean(item.metadata.deletionTimestamp);
      /** @type {[string, any, string][]} */
      const parts = [['overview', 'Overview', base]];
      if (type === POD && mayLog) parts.push(['logs', 'Logs', `${base}/logs`]);
      if (type === POD && mayShell) parts.push(['shell', 'Shell', `${base}/shell`]);
      if (where.lists(EVENT) && type !== EVENT) parts.push(['events', 'Events', `${base}/events`]);
      parts.push(['yaml', 'YAML', `${base}/yaml`]);
      if (editing) parts.push(['edit', 'Edit', `${base}/edit`]);
      return [
        pageHead({ title: name, crumbs, badge: item.metadata.state?.error || item.metadata.state?.transitioning || type === POD || item.status?.conditions ? stateBadge(item) : null, actions: editing ? null : [
          may(item, 'update') && !deleting ? button({ label: 'Edit', href: `${base}/edit`, id: 'edit' }) : null,
          isSecret(item) ? null : button({ label: 'Download', icon: 'download', run: () => save(`${name}.yaml`, toYaml(plain(item))) }),
          may(item, 'remove') && !deleting ? button({ label: 'Delete …', id: 'delete', run: remove }) : null,
        ] }),
        where.connected() ? null : away(where),
        causeLine(item),
        tabs(parts, tabNow()),
        body(),
      ];
    },
  };
}
