// Who is told what happens to the fleet: Secrets that say where messages go. Nothing here touches the document.

import { SECRET } from './access.js';

/** Where they are, and what they are; words of the server. */
export const WEBHOOKS = 'cattle-system';
export const WEBHOOK = 'remuda.io/webhook';
export const TOPICS = /** @type {[string, string, string][]} */ ([
  ['broken', 'Broken', 'a cluster failed or lost its agent; a node or an agent of a machine went silent'],
  ['fixed', 'Fixed', 'what was told to be broken is well again, or gone'],
  ['expiring', 'Expiring', 'certificates, and the maintenance of the Kubernetes that clusters run'],
  ['update-available', 'Update available', 'there is a newer release of the minor version a cluster runs'],
]);
const AFTER = '2m';

/** @typedef {{name: string, url: string, topics: string[], after: string, authorities: string}} Given */

/** @param {string | undefined} base64 */
const text = (base64) => {
  try {
    return atob(base64 || '').trim();
  } catch {
    return '';
  }
};

/** What a Secret says is told, without where and with which key. @param {any} secret @returns {{topics: string[], after: string}} */
export function webhookOf(secret) {
  const topics = text(secret?.data?.events).split(',').map((one) => one.trim()).filter(Boolean);
  return { topics: topics.length ? topics : TOPICS.map(([id]) => id), after: text(secret?.data?.after) || AFTER };
}

/** A key to sign with, of as many random bytes as a signature has. @param {Uint8Array} random */
export const keyOf = (random) => `whsec_${btoa(String.fromCharCode(...random))}`;

/** @param {Given} given @param {string} key */
export function webhookSecret(given, key) {
  /** @type {Record<string, string>} */
  const stringData = { url: given.url.trim(), key };
  // All of them is what is meant without a list, and stays so when there are more.
  if (given.topics.length < TOPICS.length) stringData.events = given.topics.join(',');
  if (given.after.trim()) stringData.after = given.after.trim();
  if (given.authorities.trim()) stringData['ca.crt'] = given.authorities;
  return { apiVersion: 'v1', kind: 'Secret', metadata: { name: given.name.trim(), namespace: WEBHOOKS }, type: WEBHOOK, stringData };
}

/** How they are read: neither addresses, which may hold a token, nor keys leave the server. */
export const QUERY = { type: SECRET, namespace: WEBHOOKS, filter: [`type="${WEBHOOK}"`], sort: 'metadata.name', include: ['metadata', 'data.events', 'data.after'], exclude: ['metadata.annotations'] };

/** The newest word of the server about one that did not take a message; nothing if there is none. @param {any} secret @param {any[]} events newest first */
export const failureOf = (secret, events) => events.find((one) => one._type === 'Warning' && one.involvedObject?.kind === 'Secret' && one.involvedObject.name === secret.metadata.name) || null;
