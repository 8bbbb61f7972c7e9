// Emptying a node: how it stands, and what is asked for. Nothing here touches the document.

/** What is seen here of a node of a cluster; its actions are what may be done with it now. */
export const MANAGEMENT_NODE = 'management.cattle.io.node';

/** A drain may take so many seconds, and usually does. */
export const LONGEST = 10_800;
export const USUAL = 120;

/** @typedef {{deleteLocalData: boolean, force: boolean, grace: string, timeout: string}} Given */

/** How a drain stands; nothing if there was none. @param {any} node of the management @returns {{tone: import('./objects.js').Tone, word: string, why: string} | null} */
export function drainOf(node) {
  const condition = (node?.status?.conditions || []).find((/** @type {any} */ one) => one.type === 'Drained');
  if (!condition) return null;
  if (condition.status === 'True') return { tone: 'ok', word: 'Drained', why: '' };
  if (condition.status === 'Unknown') return { tone: 'move', word: 'Draining', why: '' };
  return { tone: 'bad', word: 'Drain failed', why: condition.message || condition.reason || '' };
}

/** @param {string} text @param {number} least @param {number} most */
function whole(text, least, most) {
  const number = Number(text);
  return /^\d+$/.test(text) && number >= least && number <= most ? number : null;
}

/** What the server is asked for; throws what is wrong, before it does. @param {Given} given */
export function drainRequest(given) {
  const [grace, timeout] = [given.grace.trim(), given.timeout.trim()];
  const seconds = timeout ? whole(timeout, 1, LONGEST) : USUAL;
  if (seconds === null) throw new Error(`The time it may take is from 1 to ${LONGEST} seconds.`);
  const period = grace ? whole(grace, 0, 2 ** 31 - 1) : -1;
  if (period === null) throw new Error('The time for each Pod is a number of seconds, or empty.');
  return { deleteLocalData: given.deleteLocalData, force: given.force, ignoreDaemonSets: true, gracePeriod: period, timeout: seconds };
}

/** @param {any} node of the management @param {'drain' | 'stopDrain'} action */
export const offers = (node, action) => Boolean(node?.actions?.[action]);
