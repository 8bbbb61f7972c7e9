// What pages read out of objects. Nothing here touches the document, so it is tested without a browser.

export const CLUSTER = 'provisioning.cattle.io.cluster';
export const MANAGEMENT_CLUSTER = 'management.cattle.io.cluster';
export const MACHINE = 'cluster.x-k8s.io.machine';
export const MACHINE_SET = 'cluster.x-k8s.io.machineset';
export const MACHINE_DEPLOYMENT = 'cluster.x-k8s.io.machinedeployment';
export const REGISTRATION_TOKEN = 'management.cattle.io.clusterregistrationtoken';
export const USER = 'management.cattle.io.user';
export const SETTING = 'management.cattle.io.setting';
export const NODE_DRIVER = 'management.cattle.io.nodedriver';
export const SNAPSHOT = 'rke.cattle.io.etcdsnapshot';
export const CONTROL_PLANE = 'rke.cattle.io.rkecontrolplane';
export const EVENT = 'event';
export const NODE = 'node';
export const POD = 'pod';

const CLUSTER_LABEL = 'cluster.x-k8s.io/cluster-name';
const POOL_LABEL = 'rke.cattle.io/rke-machine-pool-name';

/** @typedef {'bad' | 'warn' | 'move' | 'ok' | 'off'} Tone */

/** @type {Record<string, Tone>} */
const TONES = {};
for (const name of 'active available running ready healthy provisioned completed succeeded successful bound deployed enabled current'.split(' ')) TONES[name] = 'ok';
for (const name of 'provisioning creating created pending registering removing restoring restarting starting stopping waiting activating deactivating cordoned drained paused superseded suspended in-progress waitapplied deleting reconciling scalingup scalingdown rollingout updating draining initializing resizing'.split(' ')) TONES[name] = 'move';
for (const name of 'error erroring errors errapplied failed fail unavailable unhealthy stopped removed reconnecting expired denied'.split(' ')) TONES[name] = 'bad';
for (const name of 'inactive disabled off unknown missing'.split(' ')) TONES[name] = 'off';

/** @type {Record<string, string>} */
const WORDS = {
  active: 'Ready',
  waitingforinfrastructure: 'Waiting for server',
  waitingfornoderef: 'Waiting for node',
  notready: 'Not ready',
  scalingup: 'Scaling up',
  scalingdown: 'Scaling down',
  rollingout: 'Rolling out',
  waitcheckin: 'Waiting for check-in',
  'in-progress': 'In progress',
  crashloopbackoff: 'Crash loop',
  imagepullbackoff: 'No image',
  errimagepull: 'No image',
  containercreating: 'Starting',
  off: 'Disabled',
};

/** @param {string} name */
export function stateWord(name) {
  const low = name.toLowerCase();
  if (WORDS[low]) return WORDS[low];
  const text = low.replaceAll('-', ' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** How it stands with an object. @param {any} object @returns {{tone: Tone, word: string, name: string, message: string, rank: number}} */
export function stateOf(object) {
  const state = object?.metadata?.state || {};
  let name = String(state.name || 'unknown');
  if (object?.type === MACHINE && name.toLowerCase() === 'running') name = 'active';
  /** @type {Tone} */
  let tone = TONES[name.toLowerCase()] || 'warn';
  if (state.error) tone = 'bad';
  else if (state.transitioning) tone = 'move';
  const rank = ['bad', 'warn', 'move', 'off', 'ok'].indexOf(tone);
  return { tone, word: stateWord(name), name, message: causeOf(object), rank };
}

/** The one sentence that explains a state; empty if there is nothing to explain. @param {any} object @returns {string} */
export function causeOf(object) {
  const { cause, state } = object?.metadata || {};
  const text = cause?.message || (state?.error || state?.transitioning ? state?.message : '') || '';
  return text ? text.charAt(0).toUpperCase() + text.slice(1) : '';
}

/** @param {any} object @param {string} link */
export const may = (object, link) => Boolean(object?.links?.[link]) && object.links[link] !== 'blocked';

/** @param {any} schema @param {string} method */
export const schemaAllows = (schema, method) =>
  Boolean(schema) && ((schema.collectionMethods || []).includes(method) || (schema.resourceMethods || []).includes(method));

/** @param {any} schema */
export const mayCreate = (schema) => Boolean(schema?.collectionMethods?.includes('POST'));

/** `k3s`, `rke2` or empty. @param {string | undefined} version */
export function distroOf(version) {
  const found = /\+(k3s|rke2)/.exec(version || '');
  return found ? found[1] : '';
}

/** @type {Record<string, string>} */
const NAMES = { k3s: 'K3s', rke2: 'RKE2', amazonec2: 'Amazon EC2', azure: 'Azure', digitalocean: 'DigitalOcean', google: 'Google', hetzner: 'Hetzner', proxmoxve: 'Proxmox VE', local: 'Local', generic: 'Servers that exist' };

/** @param {string} id */
export const nameOf = (id) => NAMES[id.toLowerCase()] || id;

/** Where the machines of a cluster come from. @param {any} cluster */
export function providerOf(cluster) {
  const rke = cluster?.spec?.rkeConfig;
  if (!rke) return cluster?.metadata?.name === 'local' ? 'Local' : 'Imported';
  const kinds = new Set((rke.machinePools || []).map((/** @type {any} */ pool) => pool?.machineConfigRef?.kind).filter(Boolean));
  if (!kinds.size) return 'Custom';
  return [...kinds].map((kind) => nameOf(String(kind).replace(/Config$/, ''))).join(', ');
}

/** Whether machines of a cluster register by a command. @param {any} cluster */
export const isCustom = (cluster) => Boolean(cluster?.spec?.rkeConfig) && !(cluster.spec.rkeConfig.machinePools || []).length;
/** @param {any} cluster */
export const isImported = (cluster) => Boolean(cluster) && !cluster.spec?.rkeConfig;

/** @typedef {{desired: number, ready: number, changing: number, broken: number, missing: number}} Bar */

/** Machines of pools, in four parts that add up to what is wanted or more. @param {any[]} deployments @returns {Bar} */
export function machineBar(deployments) {
  const bar = { desired: 0, ready: 0, changing: 0, broken: 0, missing: 0 };
  for (const one of deployments) {
    const desired = one.spec?.replicas ?? 0;
    const status = one.status || {};
    const there = status.replicas ?? 0;
    const available = Math.min(status.availableReplicas ?? 0, there);
    const outdated = Math.max(0, there - (status.upToDateReplicas ?? there));
    const unavailable = there - available;
    bar.desired += desired;
    bar.ready += Math.max(0, available - outdated);
    bar.changing += Math.min(outdated, available);
    if (stateOf(one).tone === 'bad') bar.broken += unavailable;
    else bar.changing += unavailable;
    bar.missing += Math.max(0, desired - there);
  }
  return bar;
}

/** @param {any} machine */
export const poolOf = (machine) => machine?.metadata?.labels?.[POOL_LABEL] || '';
/** @param {any} object */
export const clusterNameOf = (object) => object?.spec?.clusterName || object?.metadata?.labels?.[CLUSTER_LABEL] || '';

/** @param {any} object */
export function rolesOf(object) {
  const labels = object?.metadata?.labels || {};
  const roles = [];
  if (labels['rke.cattle.io/etcd-role'] === 'true' || 'node-role.kubernetes.io/etcd' in labels) roles.push('etcd');
  if (
    labels['rke.cattle.io/control-plane-role'] === 'true' ||
    'node-role.kubernetes.io/control-plane' in labels ||
    'node-role.kubernetes.io/master' in labels
  ) roles.push('control plane');
  if (labels['rke.cattle.io/worker-role'] === 'true' || 'node-role.kubernetes.io/worker' in labels) roles.push('worker');
  return roles;
}

/** @param {any} object @param {string} type */
export const addressOf = (object, type) =>
  (object?.status?.addresses || []).find((/** @type {any} */ one) => one.type === type)?.address || '';

/** @param {any} object @param {string} type */
export const conditionOf = (object, type) => (object?.status?.conditions || []).find((/** @type {any} */ one) => one.type === type);

/** Steps of a machine from nothing to a node, in their order; the first that is not done is where it stands. */
const STEPS = /** @type {const} */ ([
  ['BootstrapConfigReady', 'Bootstrap data'],
  ['InfrastructureReady', 'Server'],
  ['PlanApplied', 'Plan'],
  ['NodeReady', 'Node'],
  ['NodeHealthy', 'Node healthy'],
  ['Ready', 'Ready'],
]);

/** @param {any} machine @returns {{name: string, type: string, done: boolean, failed: boolean, message: string, at: string}[]} */
export function stepsOf(machine) {
  return STEPS.map(([type, name]) => {
    const condition = conditionOf(machine, type);
    const done = condition?.status === 'True';
    return {
      name,
      type,
      done,
      failed: !done && Boolean(condition?.error),
      message: done ? '' : condition?.message || condition?.reason || '',
      at: condition?.lastTransitionTime || '',
    };
  });
}

/** Share of the steps that are done, for the ring around a machine. @param {any} machine */
export function progressOf(machine) {
  const steps = stepsOf(machine);
  return steps.filter((step) => step.done).length / steps.length;
}

/** Whether a condition is bad news: most are good when true. @param {any} condition */
export function conditionTone(condition) {
  if (condition.error) return 'bad';
  if (condition.transitioning) return 'move';
  const inverted = /^(Reconciling|Stalled|Paused|Deleting|Updating|RollingOut|ScalingUp|ScalingDown|Remediating|.*Pressure|NetworkUnavailable)$/.test(condition.type);
  if (condition.status === 'Unknown') return 'move';
  return (condition.status === 'True') !== inverted ? 'ok' : inverted ? 'move' : 'warn';
}

/** Bytes and cores as people say them. @param {string | number | undefined} quantity */
export function quantity(quantity) {
  const found = /^(\d+(?:\.\d+)?(?:e\d+)?)([A-Za-z]*)$/.exec(String(quantity ?? ''));
  if (!found) return NaN;
  const units = /** @type {Record<string, number>} */ ({ '': 1, n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 });
  return Number(found[1]) * (units[found[2]] ?? NaN);
}

/** @param {number} value */
export function bytes(value) {
  if (!Number.isFinite(value)) return '';
  for (const [unit, size] of /** @type {[string, number][]} */ ([['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]])) {
    if (value >= size) return `${(value / size).toFixed(value / size < 10 ? 1 : 0)} ${unit}`;
  }
  return `${value} B`;
}

/** Newest first. @param {string} a @param {string} b */
export function compareVersions(a, b) {
  const parts = (/** @type {string} */ text) => (text.match(/\d+/g) || []).map(Number);
  const [left, right] = [parts(a), parts(b)];
  for (let place = 0; place < Math.max(left.length, right.length); place += 1) {
    const difference = (right[place] ?? 0) - (left[place] ?? 0);
    if (difference) return difference;
  }
  return 0;
}

/** `v1.35` of `v1.35.1+k3s1`. @param {string | undefined} version */
export const minorOf = (version) => /^v?\d+\.\d+/.exec(version || '')?.[0] || '';

/** An object as it is written: without what the server adds to show it. @param {any} object */
export function plain(object) {
  const copy = structuredClone(object);
  for (const name of ['id', 'links', 'actions']) delete copy[name];
  if ('_type' in copy) {
    copy.type = copy._type;
    delete copy._type;
  } else if (copy.kind && typeof copy.type === 'string' && copy.type.toLowerCase().endsWith(copy.kind.toLowerCase())) delete copy.type;
  for (const name of ['state', 'cause', 'relationships', 'fields', 'managedFields']) delete copy.metadata?.[name];
  for (const one of copy.status?.conditions || []) {
    delete one.error;
    delete one.transitioning;
  }
  return copy;
}

/** Words that stand for a filter of the list, and how the server is asked for it. */
export const STATE_FILTERS = /** @type {Record<string, string[]>} */ ({
  broken: ['metadata.state.error=true'],
  changing: ['metadata.state.error=false', 'metadata.state.transitioning=true'],
  ready: ['metadata.state.error=false', 'metadata.state.transitioning=false'],
});

/** Values in a filter are quoted, so that commas and brackets are no syntax. @param {string} value */
export const quoted = (value) => `"${value.replace(/["\\]/g, '')}"`;
