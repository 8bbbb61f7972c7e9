// Snapshots of a cluster: those there are, another one, back to one of them; and new certificates.

import { ApiError, del, get, put, v1 } from '../../core/api.js';
import { h } from '../../core/dom.js';
import { CLUSTER, SNAPSHOT, bytes, distroOf, may } from '../../core/objects.js';
import { RESTORE_STEPS, certificateServices, contentOf, loses, modesOf, nextOperation, operationOf, reportOf, restorable, snapshotState, storageOf } from '../../core/snapshots.js';
import { ago, badge, button, empty, phase } from '../../parts/basics.js';
import { shape } from '../../parts/icons.js';
import { confirm, openMenu, toast } from '../../parts/layers.js';
import { flag, tools } from '../../parts/yaml-view.js';

/** Asks a cluster for an operation. Who else writes to it meanwhile is not overwritten. @param {string} id @param {any} field @param {any} value */
export async function askFor(id, field, value) {
  for (let turn = 0; ; turn += 1) {
    try {
      const path = v1('', CLUSTER, id);
      return await put(path, nextOperation(await get(path), field, value));
    } catch (error) {
      if (turn === 3 || !(error instanceof ApiError) || error.status !== 409) throw error;
    }
  }
}

/** @type {Record<string, [string, string]>} */
const MODES = {
  none: ['The data alone', 'Version and configuration of the cluster stay as they are now.'],
  kubernetesVersion: ['Data and version', 'The cluster gets the version of Kubernetes it had then.'],
  all: ['Data, version and configuration', 'Everything the cluster was configured with returns too.'],
};

/** @param {string} name of the field @param {[string, string, string][]} choices id, label, note @param {string} chosen @param {(id: string) => void} choose */
export const choices = (name, choices, chosen, choose) =>
  h('fieldset', { class: 'kinds' }, h('legend', { class: 'visually-hidden' }, name), choices.map(([id, label, note]) =>
    h('label', { class: 'kind', key: id }, h('input', { type: 'radio', name, value: id, checked: chosen === id, onchange: () => choose(id) }), h('b', null, label), note ? h('span', null, note) : null)));

/** @param {any} cluster @param {any} snapshot */
function restore(cluster, snapshot) {
  const name = cluster.metadata.name;
  const modes = modesOf(snapshot);
  let mode = modes[0];
  const content = contentOf(snapshot);
  return confirm({
    title: `Restore ${name} from this snapshot?`, danger: true, action: 'Restore', typed: name, wide: true,
    body: (/** @type {() => void} */ redraw) => [
      h('p', null, loses(snapshot, name, Date.now())),
      h('p', { class: 'muted small' }, 'Services on all machines stop first. Machines that were made since then stay and join again; what Pods keep in volumes is not touched. The file is checked before anything is: one that is not whole changes nothing.'),
      content.length ? h('p', { class: 'small' }, 'In it: ', content.slice(0, 6).map(([kind, count]) => `${count} ${kind}`).join(', '), content.length > 6 ? ` and ${content.length - 6} more kinds` : '', '.') : h('p', { class: 'small' }, 'What is in it is not known: it has not been read yet.'),
      choices('What returns', modes.map((id) => [id, ...MODES[id]]), mode, (id) => { mode = id; redraw(); }),
    ],
    run: async () => {
      await askFor(cluster.id, 'etcdSnapshotRestore', { name: snapshot.metadata.name, restoreRKEConfig: mode });
      toast(`${name} is being restored`);
    },
  });
}

/** @param {any} snapshot */
const remove = (snapshot) => confirm({
  title: 'Delete this snapshot?', danger: true, action: 'Delete snapshot',
  body: [h('p', { class: 'mono' }, snapshot.snapshotFile?.name || snapshot.metadata.name), h('p', null, `Its file ${storageOf(snapshot) === 's3' ? 'in S3' : `on ${snapshot.snapshotFile?.nodeName || 'its server'}`} is deleted too. Nothing can be restored from it any more.`)],
  run: async () => {
    await del(v1('', SNAPSHOT, snapshot.id));
    toast('The snapshot is being deleted');
  },
});

/** @param {any} cluster */
export const create = (cluster) => confirm({
  title: `Take a snapshot of ${cluster.metadata.name}?`, action: 'Take snapshot',
  body: h('p', null, 'Each server with etcd writes one file with everything the API of the cluster was told, and reads it again to see that it is whole. Nothing is restarted.'),
  run: async () => {
    await askFor(cluster.id, 'etcdSnapshotCreate', {});
    toast('A snapshot was asked for');
  },
});

/** @param {any} cluster */
export function rotate(cluster) {
  let service = '';
  const distro = distroOf(cluster.spec?.kubernetesVersion);
  return confirm({
    title: `Rotate certificates of ${cluster.metadata.name}?`, action: 'Rotate',
    body: (/** @type {() => void} */ redraw) => [
      h('p', null, 'Certificates are made anew and services restart, machine after machine. Kubeconfigs from here stay good.'),
      h('label', { class: 'field' }, h('span', null, 'Which'), h('select', { name: 'service', value: service, onchange: (/** @type {any} */ event) => { service = event.target.value; redraw(); } },
        h('option', { value: '' }, 'All of them'), certificateServices(distro).map((one) => h('option', { key: one, value: one }, one)))),
    ],
    run: async () => {
      await askFor(cluster.id, 'rotateCertificates', { services: service ? [service] : [] });
      toast('Certificates are being rotated');
    },
  });
}

/** What is under way, or failed last. @param {any} cluster @param {any} plane */
export function operationLine(cluster, plane) {
  const now = operationOf(cluster, plane);
  if (!now) return null;
  const tone = now.failed ? 'bad' : 'move';
  const step = now.what === 'Restore' ? RESTORE_STEPS.indexOf(now.phase) : -1;
  return h('div', { class: `cause ${tone}`, role: 'status' }, shape(tone), h('div', null,
    h('b', null, now.failed ? `${now.what} failed` : `${now.what}: ${now.phase.replace(/([a-z])([A-Z])/g, '$1 $2').toLowerCase()}`),
    now.message ? h('p', null, now.message) : step >= 0 ? h('p', null, `Step ${step + 1} of ${RESTORE_STEPS.length}.`) : null));
}

/** @param {{cluster: any, snapshots: any, plane: any}} given */
export function snapshotsView({ cluster, snapshots, plane }) {
  const { name, namespace } = cluster.metadata;
  // One operation after the other: while one is under way, no other is offered.
  const busy = operationOf(cluster, plane);
  const change = may(cluster, 'update') && !cluster.metadata.deletionTimestamp && (!busy || busy.failed);
  const schedule = cluster.spec?.rkeConfig?.etcd || {};
  const items = (/** @type {any} */ one) => [
    ...(change && restorable(one) && !one.metadata.deletionTimestamp ? [{ label: 'Restore …', icon: 'refresh', run: () => restore(cluster, one) }] : []),
    ...(may(one, 'remove') && !one.metadata.deletionTimestamp ? [{ label: 'Delete …', icon: 'close', danger: true, run: () => remove(one) }] : []),
  ];
  const row = (/** @type {any} */ one) => {
    const [file, state, actions] = [one.snapshotFile || {}, snapshotState(one), items(one)];
    const found = reportOf(one)?.verified;
    return h('tr', { key: one.id },
      h('td', { class: 'c-state' }, badge(state.tone, state.word, state.why || undefined)),
      h('td', null, h('b', { class: 'n' }, ago(file.createdAt || one.metadata.creationTimestamp)), h('span', { class: state.tone === 'bad' ? 'why bad' : 'sub mono', title: state.why || one.metadata.name }, state.tone === 'bad' && state.why ? state.why : file.name || one.metadata.name)),
      h('td', { class: 'p3 c-provider' }, found ? [`revision ${found.revision}`, h('span', { class: 'sub' }, `${found.keys} keys`)] : ''), h('td', { class: 'p2 c-wide' }, file.nodeName || '', h('span', { class: 'sub' }, storageOf(one) === 's3' ? 'S3' : 'on its disk')), h('td', { class: 'p2 c-num' }, bytes(Number(file.size ?? NaN)) || '–'),
      h('td', { class: 'c-act' }, actions.length ? button({ icon: 'more', label: '', title: `Actions for ${file.name || one.metadata.name}`, kind: 'square', run: (event) => openMenu(/** @type {Element} */ (event.currentTarget), actions) }) : null));
  };
  const head = (/** @type {string} */ label, /** @type {string} */ kind) => h('th', { scope: 'col', class: kind }, label);
  return [
    operationLine(cluster, plane),
    h('div', { class: 'filters' }, h('p', { class: 'muted small' }, schedule.disableSnapshots ? 'None are taken by themselves.' : `Taken by themselves: ${schedule.snapshotScheduleCron || 'every twelve hours'}, the last ${schedule.snapshotRetention ?? 5} of each server are kept.`),
      change ? h('div', { class: 'act count' }, button({ label: 'Take snapshot …', icon: 'plus', kind: 'primary', id: 'new-snapshot', run: () => create(cluster) })) : null),
    h('section', { class: 'card table-card' }, phase(snapshots, () => snapshots.count ? h('table', { class: 'rows still', 'aria-label': 'Snapshots' },
      h('thead', null, h('tr', null, head('State', 'c-state'), head('Taken', ''), head('Content', 'p3 c-provider'), head('Where', 'p2 c-wide'), head('Size', 'p2 c-num'), h('th', { scope: 'col', class: 'c-act' }, h('span', { class: 'visually-hidden' }, 'Actions')))),
      h('tbody', null, snapshots.items.map(row)))
      : empty({ title: 'No snapshots yet', icon: 'clock', text: 'Snapshots hold everything the API of the cluster was told, and make it that again.' }), 4)),
    tools([`remuda snapshot list${flag(namespace)} ${name}`, `remuda snapshot create${flag(namespace)} ${name} --wait`], v1('', `${SNAPSHOT}s`, namespace)),
  ];
}

