// What is known of a snapshot of a cluster, and how a cluster is asked for the next one. Nothing here touches the
// document. Words are those of `remuda snapshot`.

import { span } from './time.js';

const VERIFICATION = 'remuda.io/snapshot-verification';
const MODES = 'etcdsnapshot.rke.io/restore-mode-options';
const STORAGE = 'etcdsnapshot.rke.io/storage';

/** @typedef {{file?: string, code?: string, message?: string, verified?: {revision: number, keys: number, size: number, objects: Record<string, number>}}} Report */

/** What was found when the file was read; nothing if it was not. @param {any} snapshot @returns {Report | null} */
export function reportOf(snapshot) {
  try {
    const found = JSON.parse(snapshot?.metadata?.annotations?.[VERIFICATION] || 'null');
    return found && typeof found === 'object' ? found : null;
  } catch {
    return null;
  }
}

/** @param {any} snapshot @returns {{tone: import('./objects.js').Tone, word: string, why: string}} */
export function snapshotState(snapshot) {
  const report = reportOf(snapshot);
  const file = snapshot?.snapshotFile || {};
  if (snapshot?.metadata?.deletionTimestamp) return { tone: 'move', word: 'Deleting', why: '' };
  if (file.status === 'failed') return { tone: 'bad', word: 'Failed', why: file.message || '' };
  if (report?.verified) return { tone: 'ok', word: 'Verified', why: '' };
  if (report) return { tone: 'bad', word: report.code || 'Unproven', why: report.message || '' };
  return { tone: 'off', word: 'Taken', why: 'It has not been read yet.' };
}

/** Whether a restore of it can begin: one that is known not to be whole would be refused. @param {any} snapshot */
export const restorable = (snapshot) => ['ok', 'off'].includes(snapshotState(snapshot).tone);

/** Where the file is. @param {any} snapshot */
export const storageOf = (snapshot) => snapshot?.metadata?.annotations?.[STORAGE] || (snapshot?.snapshotFile?.s3 ? 's3' : 'local');

/** What can return with the data: none, kubernetesVersion, all. @param {any} snapshot @returns {string[]} */
export function modesOf(snapshot) {
  const known = ['none', 'kubernetesVersion', 'all'];
  const said = String(snapshot?.metadata?.annotations?.[MODES] || 'none').split(',').map((mode) => mode.trim());
  const found = known.filter((mode) => said.includes(mode));
  return found.length ? found : ['none'];
}

/** Kinds with the most objects first; names as people know them. @param {any} snapshot @returns {[string, number][]} */
export function contentOf(snapshot) {
  /** @type {Map<string, number>} */
  const kinds = new Map();
  for (const [path, count] of Object.entries(reportOf(snapshot)?.verified?.objects || {})) {
    const name = path.split('/').filter(Boolean).at(-1) || path;
    kinds.set(name, (kinds.get(name) || 0) + Number(count));
  }
  return [...kinds].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

/** What a restore costs. @param {any} snapshot @param {string} cluster @param {number} now */
export function loses(snapshot, cluster, now) {
  const taken = Date.parse(snapshot?.snapshotFile?.createdAt || '');
  const revision = reportOf(snapshot)?.verified?.revision;
  return `${cluster} becomes what it was ${Number.isNaN(taken) ? 'then' : `${span((now - taken) / 1000)} ago`}${revision ? `, at revision ${revision}` : ''}. Everything written to it since then is lost, and its API is down meanwhile.`;
}

/**
 * The cluster with the next generation of an operation, which is how one is asked for.
 * @param {any} cluster @param {'etcdSnapshotCreate' | 'etcdSnapshotRestore' | 'rotateCertificates'} field @param {any} value
 */
export function nextOperation(cluster, field, value) {
  if (!cluster?.spec?.rkeConfig) throw new Error(`${cluster?.metadata?.name || 'the cluster'} was not made here: it has no etcd of ours`);
  const copy = structuredClone(cluster);
  copy.spec.rkeConfig[field] = { ...value, generation: (cluster.spec.rkeConfig[field]?.generation || 0) + 1 };
  return copy;
}

/** Steps of a restore, in their order. */
export const RESTORE_STEPS = ['Started', 'Shutdown', 'Restore', 'PostRestorePodCleanup', 'InitialRestartCluster', 'PostRestoreNodeCleanup', 'RestartCluster', 'Finished'];

const OPERATIONS = /** @type {const} */ ([['etcdSnapshotRestore', 'Restore', 'EtcdSnapshotRestored'], ['etcdSnapshotCreate', 'Snapshot', 'EtcdSnapshotCreated']]);

/**
 * The operation under way or the one that failed last; nothing if all is done.
 * @param {any} cluster @param {any} plane the RKEControlPlane
 * @returns {{what: string, phase: string, failed: boolean, message: string} | null}
 */
export function operationOf(cluster, plane) {
  for (const [field, what, type] of OPERATIONS) {
    const asked = cluster?.spec?.rkeConfig?.[field]?.generation;
    if (!asked) continue;
    const own = plane?.status?.[field]?.generation === asked;
    const phase = own ? plane.status[`${field}Phase`] || 'Started' : 'Asked for';
    if (phase === 'Finished') continue;
    const message = (plane?.status?.conditions || []).find((/** @type {any} */ one) => one.type === type)?.message || '';
    return { what, phase, failed: phase === 'Failed', message: own ? message : '' };
  }
  const asked = cluster?.spec?.rkeConfig?.rotateCertificates?.generation;
  if (asked && plane && plane.status?.certificateRotationGeneration !== asked) return { what: 'Rotation of certificates', phase: 'Under way', failed: false, message: '' };
  return null;
}

/** Certificates that can be rotated alone. @param {string} distro */
export const certificateServices = (distro) =>
  ['admin', 'api-server', 'auth-proxy', 'cloud-controller', 'controller-manager', 'etcd', 'kube-proxy', 'kubelet', 'scheduler', ...(distro ? [`${distro}-controller`, `${distro}-server`] : [])];
