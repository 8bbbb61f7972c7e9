// What all clusters are together: their versions, what they have, and what of them ends soon. Nothing here touches the
// document.

import { compareVersions, distroOf, minorOf, quantity } from './objects.js';
import { to } from './router.js';

const DAY = 86_400_000;
/** What ends within so many days is worth a word; certificates and releases need longer to be replaced than tokens. */
const SOON = 30;
const TOKENS = 7;

/** `href` leads to those that were made here: what imported clusters run is nothing lists are filtered by. */
/** @typedef {{minor: string, of: Record<string, number>, ends: Record<string, string>, href: string}} VersionRow */
/** @typedef {{at: string, past: boolean, what: string, why: string, href: string}} Ending */

/** The version of a cluster: what was asked for, or what an imported one says. @param {any} cluster @param {Map<string, any>} management by name */
export const versionOf = (cluster, management) => cluster?.spec?.kubernetesVersion || management.get(cluster?.status?.clusterName)?.status?.version?.gitVersion || '';

/** @param {any[]} items @returns {Map<string, any>} */
export const byName = (items) => new Map(items.map((one) => [one.metadata.name, one]));

/**
 * How many clusters run which minor version of which distribution, newest first.
 * @param {any[]} clusters @param {Map<string, any>} management @param {import('./releases.js').Channel[]} channels
 * @returns {VersionRow[]}
 */
export function versionMatrix(clusters, management, channels) {
  /** @type {Map<string, VersionRow>} */
  const rows = new Map();
  for (const one of clusters) {
    const version = versionOf(one, management);
    const minor = minorOf(version);
    if (!minor) continue;
    const distro = distroOf(version) || 'other';
    let row = rows.get(minor);
    if (!row) rows.set(minor, (row = { minor, of: {}, ends: {}, href: '' }));
    row.of[distro] = (row.of[distro] || 0) + 1;
    if (one.spec?.kubernetesVersion) row.href = `${to('clusters')}?version=${encodeURIComponent(`${minor}.`)}`;
    const ends = channels.find((each) => each.distro === distro && each.minor === minor)?.ends;
    if (ends) row.ends[distro] = ends;
  }
  return [...rows.values()].sort((a, b) => compareVersions(a.minor, b.minor));
}

/** What all nodes have and Pods ask for, of clusters that say so. @param {any[]} management */
export function capacityOf(management) {
  const sum = (/** @type {any[]} */ items, /** @type {string} */ field, /** @type {string} */ what) => items.reduce((all, one) => all + (quantity(one.status?.[field]?.[what]) || 0), 0);
  const known = management.filter((one) => one.status?.nodeCount);
  // A share is one of clusters that tell both.
  const telling = known.filter((one) => one.status.requested);
  return {
    nodes: known.reduce((all, one) => all + one.status.nodeCount, 0),
    telling: telling.length, clusters: known.length,
    of: /** @type {const} */ (['cpu', 'memory', 'pods']).map((what) => ({ what, all: sum(known, 'allocatable', what), whole: sum(telling, 'allocatable', what), asked: sum(telling, 'requested', what) })),
  };
}

/** Whether a time is near or past. @param {string | undefined} at @param {number} now @param {number} days */
export const endsSoon = (at, now, days = SOON) => Date.parse(at || '') < now + days * DAY;

/**
 * What has ended or will, nearest first: certificates of machines, releases that clusters run, tokens of the caller.
 * @param {{machines: any[], versions: VersionRow[], tokens: any[]}} given @param {number} now @returns {Ending[]}
 */
export function endings({ machines, versions, tokens }, now) {
  /** @type {Omit<Ending, 'past'>[]} */
  const found = [];
  for (const one of machines) {
    const at = one.status?.certificatesExpiryDate;
    if (endsSoon(at, now)) found.push({ at, what: one.metadata.name, why: 'certificates of its control plane', href: to('machines', one.metadata.namespace, one.metadata.name) });
  }
  for (const row of versions) {
    for (const [distro, at] of Object.entries(row.ends)) {
      const count = row.of[distro];
      if (endsSoon(at, now)) found.push({ at, what: `Kubernetes ${row.minor}`, why: `maintenance of what ${count} ${count === 1 ? 'cluster runs' : 'clusters run'}`, href: row.href || to('clusters') });
    }
  }
  for (const one of tokens) {
    // Sessions end all the time, and what has ended is used no more.
    if (one.kind === 'session' || one.expired || !endsSoon(one.expiresAt, now, TOKENS)) continue;
    found.push({ at: one.expiresAt, what: one.description || one.name, why: one.kind === 'kubeconfig' ? 'the token of a kubeconfig of yours' : 'a token of yours', href: to('tokens') });
  }
  return found.map((one) => ({ ...one, past: Date.parse(one.at) < now })).sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}
