// What is under way with clusters, or failed last: creation, deletion, changes, restores, snapshots, rotations. Nothing
// here touches the document.

import { causeOf, stateOf } from './objects.js';
import { operationOf } from './snapshots.js';

/** @typedef {{id: string, cluster: any, what: string, phase: string, tone: import('./objects.js').Tone, message: string, machines: string[], since: string}} Operation */

/** Words of the server, taken apart: `PostRestorePodCleanup`. @param {string} phase */
const words = (phase) => phase.replace(/([a-z])([A-Z])/g, '$1 $2').toLowerCase();

/** When something that is not done began to be so. @param {any} object */
function since(object) {
  const open = (object?.status?.conditions || []).filter((/** @type {any} */ one) => one.transitioning || one.error);
  return open.map((/** @type {any} */ one) => one.lastTransitionTime || '').sort().at(-1) || '';
}

/** What a cluster that changes does. @param {any} cluster @param {any} plane */
function changeOf(cluster, plane) {
  if (cluster.metadata.deletionTimestamp) return 'Deletion';
  const [wanted, had] = [cluster.spec?.kubernetesVersion, plane?.status?.appliedSpec?.kubernetesVersion];
  if (wanted && had && wanted !== had) return `Upgrade ${had} to ${wanted}`;
  return cluster.spec?.rkeConfig && plane && !had ? 'Creation' : 'Change';
}

/**
 * Failed ones first, then by cluster. A cluster may be in two: a restore is one, and so is the change it waits for.
 * @param {any[]} clusters @param {any[]} planes RKEControlPlanes @returns {Operation[]}
 */
export function operationsOf(clusters, planes) {
  const byId = new Map(planes.map((one) => [`${one.metadata.namespace}/${one.metadata.name}`, one]));
  /** @type {Operation[]} */
  const found = [];
  for (const cluster of clusters) {
    const plane = byId.get(`${cluster.metadata.namespace}/${cluster.metadata.name}`);
    const machines = plane?.status?.waitingFor?.machines || [];
    const add = (/** @type {string} */ what, /** @type {string} */ phase, /** @type {boolean} */ failed, /** @type {string} */ message, /** @type {string} */ at) => found.push({ id: `${cluster.id} ${what}`, cluster, what, phase, tone: failed ? 'bad' : 'move', message, machines, since: at });
    const state = stateOf(cluster);
    const asked = cluster.metadata.deletionTimestamp ? null : operationOf(cluster, plane);
    if (asked) add(asked.what, words(asked.phase), asked.failed, asked.message || causeOf(cluster), since(cluster));
    const keys = plane?.status?.rotateEncryptionKeysPhase || '';
    const rotates = !cluster.metadata.deletionTimestamp && keys && !['Done', 'Finished'].includes(keys);
    if (rotates) add('Rotation of encryption keys', words(keys), keys === 'Failed', causeOf(cluster), since(cluster));
    // What is told as an operation is not told again as a change.
    if (cluster.metadata.deletionTimestamp) add('Deletion', 'under way', state.tone === 'bad', causeOf(cluster), cluster.metadata.deletionTimestamp);
    else if (state.tone === 'move' && !asked && !rotates) add(changeOf(cluster, plane), state.word.toLowerCase(), false, causeOf(cluster), since(cluster));
  }
  return found.sort((a, b) => Number(b.tone === 'bad') - Number(a.tone === 'bad') || (a.id < b.id ? -1 : 1));
}
