// Kinds of a cluster as its schemas describe them: columns, groups, what is secret. Nothing here touches the document.

import { to } from './router.js';

/** @typedef {{id: string, label: string, place: number, role: 'name' | 'age' | 'cell', usual: boolean, sort: string}} Cell */

/** Kinds of which every object has a state that says something. */
const WITH_STATE = new Set('pod apps.deployment apps.statefulset apps.daemonset apps.replicaset batch.job batch.cronjob namespace persistentvolume persistentvolumeclaim replicationcontroller apiregistration.k8s.io.apiservice'.split(' '));
/** What runs Pods, in the order people look for it. */
export const WORKLOADS = ['apps.deployment', 'apps.statefulset', 'apps.daemonset', 'batch.job', 'batch.cronjob', 'apps.replicaset'];
/** What is lost with an object of these kinds cannot be made again. */
const HOLDS_DATA = new Set(['namespace', 'persistentvolume', 'persistentvolumeclaim', 'secret', 'apiextensions.k8s.io.customresourcedefinition']);

/** @param {string} type */
export const hasState = (type) => WITH_STATE.has(type);
/** @param {string} type */
export const holdsData = (type) => HOLDS_DATA.has(type);

/** @param {any} schema @param {'GET' | 'POST'} method */
export const collectionAllows = (schema, method) => Boolean(schema?.collectionMethods?.includes(method));

/** `Config maps` of `ConfigMap`; what is spelled in capitals stays. @param {any} schema @param {boolean} [one] */
export function titleOf(schema, one = false) {
  const kind = String(schema?.attributes?.kind || schema?.id || '');
  const words = kind.replace(/([a-z\d])([A-Z])/g, '$1 $2').replace(/([A-Z])([A-Z][a-z])/g, '$1 $2').split(' ');
  const text = words.map((word, at) => (at && !/^[A-Z\d]+$/.test(word) ? word.toLowerCase() : word)).join(' ');
  if (one || /(points|metrics)$/.test(text)) return text;
  if (/[^aeiou]y$/.test(text)) return `${text.slice(0, -1)}ies`;
  return /(s|x|ch)$/.test(text) ? `${text}es` : `${text}s`;
}

/** Columns as `kubectl get` has them; the state stands for what is called Status there. @param {any} schema @returns {Cell[]} */
export function cellsOf(schema) {
  /** @type {Cell[]} */
  const cells = [];
  for (const [at, column] of (schema?.attributes?.columns || []).entries()) {
    const place = Number(/fields\[(\d+)\]/.exec(column.field || '')?.[1] ?? at);
    const role = column.name === 'Name' && place === 0 ? 'name' : /^(Age|Created At)$/i.test(column.name) ? 'age' : 'cell';
    if (column.name === 'Status' && hasState(schema.id)) continue;
    cells.push({ id: `c${place}`, label: column.name, place, role, usual: !column.priority || role !== 'cell', sort: role === 'name' ? 'metadata.name' : role === 'age' ? '-metadata.creationTimestamp' : `metadata.fields[${place}]` });
  }
  return cells;
}

/** What a cell shows. @param {any} row @param {Cell} cell */
export function cellText(row, cell) {
  const value = row?.metadata?.fields?.[cell.place];
  if (value === null || value === undefined || value === '<none>' || value === '<unset>') return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** Kinds by the group of their API: what was added to the cluster first, then those of Kubernetes. @param {Iterable<any>} schemas @returns {[string, any[]][]} */
export function groupsOf(schemas) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const one of schemas) {
    if (!one.attributes?.kind || !collectionAllows(one, 'GET')) continue;
    const group = one.attributes.group || 'core';
    groups.set(group, [...(groups.get(group) || []), one]);
  }
  const rank = (/** @type {string} */ group) => (group === 'core' ? 1 : !group.includes('.') ? 2 : group.endsWith('.k8s.io') ? 3 : 0);
  for (const list of groups.values()) list.sort((a, b) => (a.attributes.kind < b.attributes.kind ? -1 : 1));
  return [...groups].sort((a, b) => rank(a[0]) - rank(b[0]) || (a[0] < b[0] ? -1 : 1));
}

/** The page of an object; nodes have one of their own. @param {string} cluster @param {string} type @param {string} id */
export function objectHref(cluster, type, id) {
  const [namespace, name] = id.includes('/') ? id.split('/') : ['-', id];
  return type === 'node' ? to('explore', cluster, 'nodes', name) : to('explore', cluster, 'r', type, namespace, name);
}

/** @param {string} cluster @param {string} type */
export const kindHref = (cluster, type) => (type === 'node' ? to('explore', cluster, 'nodes') : to('explore', cluster, 'r', type));

/** Where the Kubernetes API itself has objects of a kind, or one of them: its errors name fields. @param {string} root @param {any} schema @param {string} [namespace] @param {string} [name] */
export function nativePath(root, schema, namespace, name) {
  const { group, version, resource, namespaced } = schema.attributes;
  const parts = [group ? `apis/${group}` : 'api', version, ...(namespaced && namespace ? ['namespaces', encodeURIComponent(namespace)] : []), resource, ...(name ? [encodeURIComponent(name)] : [])];
  return `${root}/${parts.join('/')}`;
}

const APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';
const MASK = '••••••••';

/** A Secret without its values, the copy that kubectl keeps in an annotation included. @param {any} object */
export function masked(object) {
  const copy = structuredClone(object);
  for (const field of ['data', 'stringData']) for (const key of Object.keys(copy[field] || {})) copy[field][key] = MASK;
  if (copy.metadata?.annotations?.[APPLIED]) copy.metadata.annotations[APPLIED] = MASK;
  return copy;
}

/** @param {any} object */
export const isSecret = (object) => object?.kind === 'Secret' && object?.apiVersion === 'v1';

/** A value of a Secret as text; nothing if it is none. @param {string} base64 @returns {{text: string | null, size: number}} */
export function decoded(base64) {
  try {
    const raw = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    try {
      const text = new TextDecoder('utf-8', { fatal: true }).decode(raw);
      return { text: /[\u0000-\u0008\u000e-\u001f]/.test(text) ? null : text, size: raw.length };
    } catch {
      return { text: null, size: raw.length };
    }
  } catch {
    return { text: null, size: 0 };
  }
}

/** Filters for the Pods that labels choose; nothing if none are chosen. @param {any} object @returns {string[] | null} */
export function podFilter(object) {
  const selector = object?.kind === 'Service' ? object.spec?.selector : object?.spec?.selector?.matchLabels;
  const pairs = Object.entries(selector || {});
  return pairs.length ? pairs.map(([key, value]) => `metadata.labels[${key}]="${String(value).replace(/["\\]/g, '')}"`) : null;
}

/** How a container of a Pod stands. @param {any} status @returns {{tone: import('./objects.js').Tone, word: string, why: string}} */
export function containerState(status) {
  const { waiting, terminated, running } = status?.state || {};
  if (running) return status.ready === false ? { tone: 'move', word: 'Not ready', why: '' } : { tone: 'ok', word: 'Running', why: '' };
  if (waiting) return { tone: /BackOff|Err|Invalid/.test(waiting.reason || '') ? 'bad' : 'move', word: waiting.reason || 'Waiting', why: waiting.message || '' };
  if (terminated) return { tone: terminated.exitCode ? 'bad' : 'off', word: terminated.reason || 'Ended', why: terminated.message || (terminated.exitCode ? `exit code ${terminated.exitCode}` : '') };
  return { tone: 'off', word: 'Unknown', why: '' };
}

/** What a person edits: neither status nor what only the server writes. @param {any} object */
export function writable(object) {
  const copy = structuredClone(object);
  delete copy.status;
  for (const field of ['uid', 'creationTimestamp', 'generation', 'resourceVersion', 'managedFields', 'selfLink']) delete copy.metadata?.[field];
  return copy;
}
