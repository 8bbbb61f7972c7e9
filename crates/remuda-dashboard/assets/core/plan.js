// What the agent of a machine reports: where its plan stands, what the steps wrote, what the probes say. The plan itself
// is not read: it is full of credentials. Nothing here touches the document.

/** @typedef {import('./objects.js').Tone} Tone */
/** @typedef {{name: string, text: string}} Step */
/** @typedef {{name: string, code: number, text: string, failures: number, at: string}} Periodic */
/** @typedef {{state: {tone: Tone, word: string}, failures: number, at: string, error: string, steps: Step[], periodic: Periodic[], probes: {name: string, healthy: boolean, failures: number}[]}} Plan */

/** Bytes a report is unpacked to at most; more of it is not looked at. */
const LARGEST = 8 << 20;
/** Beside the output of a failed run: why it failed. */
const ERROR = 'remuda-agent-error';

export const PLAN_TYPE = 'rke.cattle.io/machine-plan';
const MACHINE = 'rke.cattle.io/machine-name';
/** The ConfigMap with what the driver of a machine wrote. */
export const LOGS = 'remuda.io/machine-log';
const SERVER = 'rke.cattle.io/infra-machine-name';

/** Keys of the Secret that a page reads: what the agent wrote, and neither the plan nor the one before. */
const REPORTED = ['plan-state', 'failure-count', 'last-apply-time', 'applied-checksum', 'applied-output', 'failed-output', 'applied-periodic-output', 'probe-statuses'];

/** @param {string} namespace @param {string} name of the machine */
export const planQuery = (namespace, name) => ({ type: 'secret', namespace, filter: [`type="${PLAN_TYPE}"`, `metadata.labels[${MACHINE}]="${name.replace(/["\\]/g, '')}"`], include: ['metadata.name', 'metadata.namespace', ...REPORTED.map((key) => `data[${key}]`)] });

/** @param {string} namespace @param {string} server the object of the driver */
export const logQuery = (namespace, server) => ({ type: 'configmap', namespace, filter: [`metadata.labels[${LOGS}]="true"`, `metadata.labels[${SERVER}]="${server.replace(/["\\]/g, '')}"`], include: ['metadata.name', 'metadata.namespace', 'data'] });

/** @param {string | undefined} base64 */
const bytes = (base64) => Uint8Array.from(atob(base64 || ''), (letter) => letter.charCodeAt(0));
/** @param {string | undefined} base64 */
function text(base64) {
  try {
    return new TextDecoder().decode(bytes(base64));
  } catch {
    return '';
  }
}

/** An object that was packed by an agent; an empty one if it cannot be read. @param {string | undefined} base64 @returns {Promise<Record<string, any>>} */
export async function unpacked(base64) {
  try {
    const packed = bytes(base64);
    if (!packed.length) return {};
    const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip')).getReader();
    const decoder = new TextDecoder();
    let [whole, size] = ['', 0];
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      size += piece.value.length;
      if (size > LARGEST) {
        await reader.cancel();
        return {};
      }
      whole += decoder.decode(piece.value, { stream: true });
    }
    const found = JSON.parse(whole + decoder.decode());
    return found && typeof found === 'object' && !Array.isArray(found) ? found : {};
  } catch {
    return {};
  }
}

/** @param {string} said @param {number} failures @param {boolean} applied @returns {{tone: Tone, word: string}} */
function stateOf(said, failures, applied) {
  if (said === 'failed') return { tone: 'bad', word: 'Failed' };
  if (failures > 0) return { tone: 'bad', word: 'Failing' };
  if (said === 'succeeded') return { tone: 'ok', word: 'Applied' };
  if (said === 'in-progress') return { tone: 'move', word: 'Running' };
  if (said === 'pending') return { tone: 'move', word: 'Delivered' };
  return applied ? { tone: 'ok', word: 'Applied' } : { tone: 'off', word: 'Not taken yet' };
}

/** @param {any} secret @returns {Promise<Plan>} */
export async function planOf(secret) {
  const data = secret?.data || {};
  const failures = Number(text(data['failure-count'])) || 0;
  const said = text(data['plan-state']).trim();
  const state = stateOf(said, failures, Boolean(data['applied-checksum']));
  // What an earlier run wrote says nothing of one that failed.
  const failing = state.tone === 'bad';
  const output = await unpacked(data[failing ? 'failed-output' : 'applied-output']);
  const steps = Object.entries(output).filter(([name]) => name !== ERROR).map(([name, packed]) => ({ name, text: text(packed) }));
  const error = failing ? text(output[ERROR]).trim() : '';
  const periodic = Object.entries(await unpacked(data['applied-periodic-output'])).map(([name, one]) => ({
    name, code: Number(one?.exitCode) || 0, text: [text(one?.stdout), text(one?.stderr)].filter(Boolean).join('\n'), failures: Number(one?.failures) || 0, at: String(one?.failures ? one?.lastFailedRunTime || '' : one?.lastSuccessfulRunTime || ''),
  }));
  /** @type {Record<string, any>} */
  let probes = {};
  try {
    probes = JSON.parse(text(data['probe-statuses']) || '{}') || {};
  } catch {
    // What an agent wrote wrongly is as good as nothing.
  }
  return {
    state, failures, at: text(data['last-apply-time']).trim(), error, steps, periodic,
    probes: Object.entries(probes).map(([name, one]) => ({ name, healthy: one?.healthy === true, failures: Number(one?.failureCount) || 0 })).sort((a, b) => Number(a.healthy) - Number(b.healthy) || (a.name < b.name ? -1 : 1)),
  };
}
