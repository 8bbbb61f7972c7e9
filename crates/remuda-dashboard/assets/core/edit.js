// Editing an object: reading and writing by path, errors at fields, what differs. Nothing here touches the document.

import { configObject } from './driver.js';

const LOCAL_KIND = 'LocalConfig';

/** `spec.rkeConfig.machinePools[0].name` in its parts. @param {string} path */
export const parts = (path) => path.split(/[.[\]]+/).filter(Boolean).map((part) => (/^\d+$/.test(part) ? Number(part) : part));

/** @param {any} object @param {string} path */
export const read = (object, path) => parts(path).reduce((value, part) => (value === null || value === undefined ? undefined : value[part]), object);

/** A copy with a value set; `undefined` takes it away. @param {any} object @param {string} path @param {any} value */
export function write(object, path, value) {
  const copy = structuredClone(object ?? {});
  const way = parts(path);
  const last = way.pop();
  let at = copy;
  for (const [place, part] of way.entries()) at = at[part] ??= typeof way[place + 1] === 'number' ? [] : {};
  if (last === undefined) return copy;
  if (value === undefined) delete at[last];
  else at[last] = value;
  return copy;
}

/** Errors of the server by the field they name; what names none is under the empty path. @param {any} error @returns {Map<string, string[]>} */
export function fieldErrors(error) {
  /** @type {Map<string, string[]>} */
  const found = new Map();
  if (!error) return found;
  const add = (/** @type {string} */ field, /** @type {string} */ message) => found.set(field, [...(found.get(field) || []), message]);
  const causes = (error.details?.causes || []).filter((/** @type {any} */ cause) => cause.message);
  // Examples and regular expressions of Kubernetes' rules are longer than the rule.
  for (const cause of causes) add(cause.field || '', cause.message.replace(/ \(e\.g\. .*$/, ''));
  if (!causes.length) {
    // Unknown fields are named in the text of a strict decoding error only.
    for (const match of String(error.message).matchAll(/unknown field "([^"]+)"/g)) add(match[1], 'There is no such field.');
    if (!found.size) add('', error.message);
  }
  return found;
}

/** The line of a YAML text that has a field, or what is nearest above it; 0 if none is. @param {string} text @param {string} path */
export function lineOf(text, path) {
  const wanted = (path.match(/\[[^\]]*\]|[^.[\]]+/g) || []).map((part) => part.replace(/^\[(.*)\]$/, '$1'));
  /** Where we are: columns of keys and items, outermost first. @type {{at: number, part: string, item: boolean}[]} */
  const way = [];
  let [best, depth] = [0, 0];
  for (const [number, line] of text.split('\n').entries()) {
    const look = () => { if (way.length > depth && way.length <= wanted.length && way.every((one, place) => one.part === wanted[place])) [best, depth] = [number + 1, way.length]; };
    const [, space, dashes, , key] = /^( *)((?:- +|-$)*)(?:(["']?)([^"'#:\s][^"':]*)\3 *:(?= |$))?/.exec(line) || [];
    if (!dashes && key === undefined) continue;
    let column = space.length;
    for (const dash of dashes.match(/- *|-$/g) || []) {
      while (way.length && way[way.length - 1].at > column) way.pop();
      const last = way[way.length - 1];
      if (last?.item && last.at === column) last.part = String(Number(last.part) + 1);
      else way.push({ at: column, part: '0', item: true });
      look();
      column += dash.length;
    }
    if (key !== undefined) {
      while (way.length && way[way.length - 1].at >= column) way.pop();
      way.push({ at: column, part: key, item: false });
      look();
    }
    if (depth === wanted.length) break;
  }
  return best;
}

/** Those of a field and of what is below it. @param {Map<string, string[]>} errors @param {string} path */
export function errorsAt(errors, path) {
  const list = [];
  for (const [field, messages] of errors) if (field === path || field.startsWith(`${path}.`) || field.startsWith(`${path}[`)) list.push(...messages);
  return list;
}

/** Those no field of the form shows. @param {Map<string, string[]>} errors @param {string[]} shown */
export function errorsElsewhere(errors, shown) {
  const list = [];
  for (const [field, messages] of errors) {
    if (shown.some((path) => field === path || field.startsWith(`${path}.`) || field.startsWith(`${path}[`))) continue;
    for (const message of messages) list.push(field && !message.includes(field) ? `${field}: ${message}` : message);
  }
  return list;
}

/**
 * Lines that differ, with a few around them.
 * @param {string} before @param {string} after
 * @returns {{kind: 'same' | 'add' | 'cut' | 'skip', text: string}[]}
 */
export function diff(before, after) {
  const [old, next] = [before.split('\n'), after.split('\n')];
  // The longest common subsequence, between equal beginnings and ends.
  let start = 0;
  while (start < old.length && start < next.length && old[start] === next[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < next.length - start && old[old.length - 1 - end] === next[next.length - 1 - end]) end += 1;
  const [a, b] = [old.slice(start, old.length - end), next.slice(start, next.length - end)];
  /** @type {{kind: 'same' | 'add' | 'cut' | 'skip', text: string}[]} */
  const lines = old.slice(0, start).map((text) => ({ kind: 'same', text }));
  if (a.length * b.length > 4_000_000) {
    for (const text of a) lines.push({ kind: 'cut', text });
    for (const text of b) lines.push({ kind: 'add', text });
  } else {
    const table = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; i -= 1) for (let j = b.length - 1; j >= 0; j -= 1) table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    let [i, j] = [0, 0];
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && a[i] === b[j]) lines.push({ kind: 'same', text: a[(i += 1) - 1] }), (j += 1);
      else if (i < a.length && (j >= b.length || table[i + 1][j] >= table[i][j + 1])) lines.push({ kind: 'cut', text: a[(i += 1) - 1] });
      else lines.push({ kind: 'add', text: b[(j += 1) - 1] });
    }
  }
  for (const text of old.slice(old.length - end)) lines.push({ kind: 'same', text });
  return around(lines, 3);
}

/** @param {{kind: any, text: string}[]} lines @param {number} keep */
function around(lines, keep) {
  const near = lines.map((_, at) => lines.slice(Math.max(0, at - keep), at + keep + 1).some((one) => one.kind !== 'same'));
  /** @type {{kind: any, text: string}[]} */
  const shown = [];
  lines.forEach((line, at) => {
    if (near[at]) shown.push(line);
    else if (shown.at(-1)?.kind !== 'skip') shown.push({ kind: 'skip', text: '…' });
  });
  return shown;
}

/** A cluster to begin with; of a provider its machines are of that kind. @param {string} kind @param {{name: string, namespace: string, version: string, config?: string}} given */
export function draft(kind, { name, namespace, version, config = LOCAL_KIND }) {
  /** @type {any} */
  const object = { apiVersion: 'provisioning.cattle.io/v1', kind: 'Cluster', metadata: { name, namespace }, spec: {} };
  if (kind === 'import') return object;
  object.spec = { kubernetesVersion: version, rkeConfig: {} };
  if (kind === 'local' || kind === 'cloud') {
    object.spec.rkeConfig.machinePools = [
      { name: 'servers', quantity: 1, etcdRole: true, controlPlaneRole: true, machineConfigRef: configRef(name, 'servers', config) },
      { name: 'workers', quantity: 2, workerRole: true, machineConfigRef: configRef(name, 'workers', config) },
    ];
  }
  return object;
}

/** @param {string} cluster @param {string} pool @param {string} [kind] */
export const configRef = (cluster, pool, kind = LOCAL_KIND) => ({ kind, name: `nc-${cluster}-${pool}` });

/** Whether a pool has a configuration of its own, which is made with it; others are there already. @param {any} pool */
export const ownsConfig = (pool) => pool.machineConfigRef?.kind === LOCAL_KIND || String(pool.machineConfigRef?.name || '').startsWith('nc-');

/** Configurations that are made with a cluster go by the names of cluster and pool. @param {any} cluster */
export function renamed(cluster) {
  const copy = structuredClone(cluster);
  for (const pool of copy.spec?.rkeConfig?.machinePools || []) if (ownsConfig(pool)) pool.machineConfigRef = configRef(copy.metadata.name, pool.name, pool.machineConfigRef.kind);
  return copy;
}

/**
 * Configurations that have to exist before a cluster is made of them, with the values that were given for their pools.
 * @param {any} cluster @param {any} [before] @param {Record<string, Record<string, any>>} [values] by pool
 */
export function neededConfigs(cluster, before, values = {}) {
  const had = new Set((before?.spec?.rkeConfig?.machinePools || []).map((/** @type {any} */ pool) => pool.machineConfigRef?.name));
  const found = new Map();
  for (const pool of cluster.spec?.rkeConfig?.machinePools || []) {
    const { kind, name } = pool.machineConfigRef || {};
    if (kind && ownsConfig(pool) && !had.has(name) && !found.has(name)) found.set(name, configObject(kind, name, cluster.metadata.namespace, values[pool.name]));
  }
  return [...found.values()];
}

/** @param {number} count */
const machines = (count) => `${count} ${count === 1 ? 'machine' : 'machines'}`;
const itsMachines = (/** @type {number} */ count) => (count === 1 ? 'its machine' : `its ${count} machines`);
/** @param {any} pool */
const quantityOf = (pool) => Number(pool?.quantity ?? 1) || 0;

/**
 * What an edit of a cluster does to its machines, worst first. What it does within them is not told here.
 * @param {any} before @param {any} after @returns {{tone: 'bad' | 'warn' | 'move', text: string}[]}
 */
export function effects(before, after) {
  const pools = (/** @type {any} */ cluster) => new Map((cluster?.spec?.rkeConfig?.machinePools || []).map((/** @type {any} */ pool) => [pool.name, pool]));
  const [had, has] = [pools(before), pools(after)];
  /** @type {{tone: 'bad' | 'warn' | 'move', text: string}[]} */
  const found = [];
  const say = (/** @type {'bad' | 'warn' | 'move'} */ tone, /** @type {string} */ text) => found.push({ tone, text });
  for (const [name, pool] of had) if (!has.has(name)) say('bad', quantityOf(pool) ? `Pool ${name} goes, and ${itsMachines(quantityOf(pool))} with all that is on ${quantityOf(pool) === 1 ? 'it' : 'them'}.` : `Pool ${name} goes. It has no machines.`);
  for (const [name, pool] of has) {
    const old = had.get(name);
    const [was, is] = [quantityOf(old), quantityOf(pool)];
    if (!old) {
      say('move', `Pool ${name} is new: ${is === 1 ? '1 machine is' : `${is} machines are`} made.`);
      continue;
    }
    if (is < was) say('bad', `Pool ${name}: ${was - is} of ${machines(was)} ${was - is === 1 ? 'is' : 'are'} removed, with all that is on ${was - is === 1 ? 'it' : 'them'}.`);
    if (is > was) say('move', `Pool ${name}: ${is - was} more ${is - was === 1 ? 'machine is' : 'machines are'} made, ${is} in all.`);
    const [from, to] = [old.machineConfigRef, pool.machineConfigRef];
    const kept = Math.min(was, is);
    if (kept && (from?.kind !== to?.kind || from?.name !== to?.name)) say('warn', `Pool ${name}: ${kept === 1 ? 'its machine is' : `its ${kept} machines are`} replaced by what ${to?.kind || ''} ${to?.name || ''} says.`);
  }
  const [old, next] = [before?.spec?.kubernetesVersion, after?.spec?.kubernetesVersion];
  if (old && next && old !== next) say('warn', `Kubernetes goes from ${old} to ${next} on every machine.`);
  return found.sort((a, b) => ['bad', 'warn', 'move'].indexOf(a.tone) - ['bad', 'warn', 'move'].indexOf(b.tone));
}
