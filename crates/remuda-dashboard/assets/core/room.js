// Room in a cluster: what Pods ask for, what is used, what nodes have, and how that was a while ago. Nothing here
// touches the document.

import { quantity } from './objects.js';

/** Kind that says what nodes use, in clusters that measure it. */
export const NODE_METRICS = 'metrics.k8s.io.nodemetrics';

/** @typedef {{cpu: number, memory: number, pods: number}} Amounts */
/** @typedef {{name: string, asked: Amounts, used: {cpu: number, memory: number} | null, has: Amounts}} NodeRoom */
/** @typedef {{at: number, asked: Amounts, used: {cpu: number, memory: number} | null}} Sample */

/** An amount; what is none counts as nothing. @param {string | number | undefined} text */
const amount = (text) => quantity(text) || 0;

/** A Pod that has ended keeps nothing. @param {any} pod */
export const takesRoom = (pod) => !['Succeeded', 'Failed'].includes(pod?.status?.phase || '');

/** What the scheduler counts for a Pod: its containers, or the init container that asks for more. @param {any} pod @param {string} what */
export function podRequest(pod, what) {
  const of = (/** @type {any} */ one) => amount(one?.resources?.requests?.[what]);
  let beside = 0;
  let most = 0;
  for (const one of pod?.spec?.initContainers || []) {
    // Sidecars run beside all that come after them.
    if (one.restartPolicy === 'Always') beside += of(one);
    most = Math.max(most, beside + (one.restartPolicy === 'Always' ? 0 : of(one)));
  }
  const containers = (pod?.spec?.containers || []).reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + of(one), beside);
  return Math.max(containers, most) + amount(pod?.spec?.overhead?.[what]);
}

/** What Pods have asked for, without those that have ended. @param {any[]} pods @param {string} what */
export const requested = (pods, what) => pods.filter(takesRoom).reduce((sum, pod) => sum + podRequest(pod, what), 0);

/** What nodes have to give. @param {any[]} nodes @param {string} what */
export const allocatable = (nodes, what) => nodes.reduce((sum, node) => sum + amount(node?.status?.allocatable?.[what]), 0);

/**
 * Each node by itself, fullest first.
 * @param {any[]} nodes @param {any[]} pods @param {any[] | null} metrics nothing if the cluster does not measure
 * @returns {NodeRoom[]}
 */
export function roomOf(nodes, pods, metrics) {
  /** @type {Map<string, any[]>} */
  const placed = new Map();
  for (const pod of pods) {
    const node = pod?.spec?.nodeName;
    if (!node) continue;
    const list = placed.get(node);
    if (list) list.push(pod);
    else placed.set(node, [pod]);
  }
  const measured = new Map((metrics || []).map((one) => [one?.metadata?.name, one?.usage]));
  const rows = nodes.map((node) => {
    const name = String(node.metadata.name);
    const own = placed.get(name) || [];
    const usage = measured.get(name);
    return {
      name,
      asked: { cpu: requested(own, 'cpu'), memory: requested(own, 'memory'), pods: own.filter(takesRoom).length },
      used: usage ? { cpu: amount(usage.cpu), memory: amount(usage.memory) } : null,
      has: { cpu: allocatable([node], 'cpu'), memory: allocatable([node], 'memory'), pods: allocatable([node], 'pods') },
    };
  });
  return rows.sort((a, b) => fullness(b) - fullness(a) || (a.name < b.name ? -1 : 1));
}

/** The largest share of anything a node has that is taken. @param {NodeRoom} row */
export function fullness(row) {
  const share = (/** @type {number} */ part, /** @type {number} */ whole) => (whole > 0 ? part / whole : 0);
  return Math.max(share(row.used?.cpu ?? row.asked.cpu, row.has.cpu), share(row.used?.memory ?? row.asked.memory, row.has.memory), share(row.asked.pods, row.has.pods));
}

/** All nodes together; use only if at least one is measured. @param {NodeRoom[]} rows */
export function total(rows) {
  const sum = (/** @type {(row: NodeRoom) => number} */ of) => rows.reduce((all, row) => all + of(row), 0);
  const measured = rows.some((row) => row.used);
  return {
    asked: { cpu: sum((row) => row.asked.cpu), memory: sum((row) => row.asked.memory), pods: sum((row) => row.asked.pods) },
    used: measured ? { cpu: sum((row) => row.used?.cpu || 0), memory: sum((row) => row.used?.memory || 0) } : null,
    has: { cpu: sum((row) => row.has.cpu), memory: sum((row) => row.has.memory), pods: sum((row) => row.has.pods) },
  };
}

/** Samples of one thing, and things, that are remembered: an hour of each, of what was looked at last. */
const SAMPLES = 240;
const THINGS = 40;
/** Samples that are closer than this are one. */
const CLOSE = 5_000;

/** What was seen while pages were open. The browser forgets it when it is closed. */
export class Past {
  constructor() {
    /** @type {Map<string, Sample[]>} */
    this.kept = new Map();
  }

  /** @param {string} key @param {Sample} sample */
  add(key, sample) {
    const list = this.kept.get(key) || [];
    const last = list.at(-1);
    if (last && sample.at - last.at < CLOSE) list.pop();
    list.push(sample);
    if (list.length > SAMPLES) list.splice(0, list.length - SAMPLES);
    // What was looked at last is the last to go.
    this.kept.delete(key);
    this.kept.set(key, list);
    for (const oldest of this.kept.keys()) {
      if (this.kept.size <= THINGS) break;
      this.kept.delete(oldest);
    }
    return list;
  }

  /** @param {string} key @returns {Sample[]} */
  of(key) {
    return this.kept.get(key) || [];
  }
}

export const past = new Past();

/** The end of an axis: a round number that is not below the largest value. @param {number} value @param {boolean} [binary] for bytes */
export function roundUp(value, binary = false) {
  if (!(value > 0)) return 1;
  const base = binary ? 2 ** (10 * Math.floor(Math.log2(value) / 10)) : 1;
  const scaled = value / base;
  const decade = 10 ** Math.floor(Math.log10(scaled));
  for (const step of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (scaled <= step * decade * (1 + 1e-9)) return Number((step * decade * base).toPrecision(12));
  return 10 * decade * base;
}

/** What an axis ends at: all there is, unless what is taken would be a line at the bottom. @param {number} most @param {number} limit @param {boolean} [binary] */
export const axisTop = (most, limit, binary) => (limit > 0 && most >= limit / 5 ? Math.max(limit, most) : roundUp(most * 1.25, binary));
