// Cluster → pool → machine → node as a drawing. A ring shows how far a machine has come; what is silent is dashed.

import { h } from '../core/dom.js';
import { poolOf, progressOf, stateOf, stepsOf } from '../core/objects.js';
import { to } from '../core/router.js';

/** More machines of a pool are counted and not drawn. */
const DRAWN = 10;
const ROW = 34;

/** @param {string} text @param {number} most */
export const cut = (text, most) => (text.length > most ? `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(-(Math.floor(most / 2)))}` : text);

/**
 * Where everything goes: pools in their order, each as high as its machines.
 * @param {string[]} names @param {any[]} machines
 */
export function layout(names, machines) {
  let y = 8;
  const pools = names.map((name) => {
    const own = machines.filter((one) => poolOf(one) === name);
    const drawn = own.slice(0, DRAWN);
    const rows = Math.max(1, drawn.length + (own.length > drawn.length ? 1 : 0));
    const top = y;
    y += rows * ROW + 10;
    return { name, top, middle: top + (rows * ROW) / 2, total: own.length, machines: drawn.map((machine, at) => ({ machine, middle: top + at * ROW + ROW / 2 })), more: own.length - drawn.length };
  });
  return { pools, height: Math.max(y, 60) };
}

/** @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 */
const edge = (x1, y1, x2, y2) => h('path', { class: 'edge', d: `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}` });

/** @param {{cluster: any, pools: any[], machines: any[], explore: string}} given */
export function topology(given) {
  const names = given.pools.map((pool) => pool.name);
  for (const one of given.machines) if (!names.includes(poolOf(one))) names.push(poolOf(one));
  const { pools, height } = layout(names, given.machines);
  const middle = height / 2 - 6;
  const state = stateOf(given.cluster);
  const words = pools.map((pool) => `${pool.name || 'no pool'}: ${pool.machines.map(({ machine }) => `${machine.metadata.name} ${stateOf(machine).word}`).join(', ') || 'no machines'}`).join('; ');
  return h('svg', { class: 'topology', viewBox: `0 0 660 ${height + 20}`, role: 'group', 'aria-label': `Topology. ${words}` },
    pools.map((pool) => edge(124, middle, 172, pool.middle)),
    pools.flatMap((pool) => pool.machines.map((one) => edge(290, pool.middle, 336, one.middle))),
    h('rect', { class: state.tone, x: 2, y: middle - 19, width: 122, height: 38, rx: 6 }),
    h('text', { x: 14, y: middle + 4 }, cut(given.cluster.metadata.name, 16)),
    pools.map((pool) => {
      const wanted = given.pools.find((one) => one.name === pool.name)?.quantity;
      const text = wanted === undefined || wanted === null ? `${pool.total}` : `${pool.total} of ${wanted}`;
      return h('g', { key: `pool ${pool.name}` }, h('rect', { class: 'box', x: 172, y: pool.middle - 19, width: 118, height: 38, rx: 6 }),
        h('text', { x: 184, y: pool.middle - 2 }, cut(pool.name || 'registered', 14)), h('text', { class: 'sub', x: 184, y: pool.middle + 12 }, text),
        pool.machines.map(({ machine, middle: at }) => machineOf(machine, at, given.explore)),
        pool.more > 0 ? h('text', { class: 'sub', x: 348, y: pool.top + DRAWN * ROW + ROW / 2 }, `and ${pool.more} more`) : null);
    }),
    [['cluster', 2], ['pools', 172], ['machines', 336], ['nodes', 622]].map(([word, x]) => h('text', { class: 'sub', x, y: height + 14 }, word)));
}

/** @param {any} machine @param {number} y @param {string} explore */
function machineOf(machine, y, explore) {
  const state = stateOf(machine);
  const node = machine.status?.nodeRef?.name;
  const step = stepsOf(machine).find((one) => !one.done);
  const around = 2 * Math.PI * 8;
  const name = machine.metadata.name;
  const circle = [h('circle', { class: 'track', cx: 640, cy: y, r: 8 }),
    h('circle', { class: `ring ${node ? state.tone : 'move'}`, cx: 640, cy: y, r: 8, transform: `rotate(-90 640 ${y})`, 'stroke-dasharray': `${around * progressOf(machine)} ${around}` })];
  return h('g', { key: name },
    h('a', { href: to('machines', machine.metadata.namespace, name) }, h('title', null, `${name}: ${state.word}${state.message ? `. ${state.message}` : ''}`),
      h('rect', { class: state.tone, x: 336, y: y - 13, width: 246, height: 26, rx: 6 }), h('text', { x: 346, y: y + 4 }, cut(name, 24)),
      step && state.tone !== 'ok' ? h('text', { class: 'sub', x: 572, y: y + 4, 'text-anchor': 'end' }, step.name) : null),
    h('path', { class: 'edge', d: `M582 ${y}H632` }),
    node && explore ? h('a', { href: `${explore}/nodes/${encodeURIComponent(node)}` }, h('title', null, `node ${node}`), circle) : circle);
}
