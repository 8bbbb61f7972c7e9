// How it stands with what runs in a cluster: room, what is not well, what was last warned of.

import { get } from '../../core/api.js';
import { h } from '../../core/dom.js';
import { WORKLOADS, kindHref, objectHref, titleOf } from '../../core/kinds.js';
import { EVENT, NODE, POD, bytes, conditionOf, quoted } from '../../core/objects.js';
import { NODE_METRICS, past, roomOf, takesRoom, total } from '../../core/room.js';
import { listPath } from '../../core/store.js';
import { ageOf, ago, card, facts, phase, skeleton, stateBadge } from '../../parts/basics.js';
import { shape } from '../../parts/icons.js';
import { Plot, share } from '../../parts/plot.js';
import { timeOf } from '../parts/evidence.js';
import { explored, explorer } from './where.js';

/** Pods are read this often. */
const AGAIN = 15_000;

/** Pods of a cluster that are read. */
const PODS = 5000;
/** Nodes that are shown by themselves: the fullest. */
const NODES = 10;

/** @param {number} value */
export const cores = (value) => (Number.isFinite(value) ? `${Number(value.toFixed(value < 1 ? 3 : 2))} ${value === 1 ? 'core' : 'cores'}` : '');
/** @param {number} value */
export const sizes = (value) => (Number.isFinite(value) ? bytes(Math.round(value)) : '');
/** @param {number} value */
export const counted = (value) => (Number.isFinite(value) ? String(Math.round(value)) : '');

/** What nodes use, where the cluster measures it; nothing if it does not say. @param {any} where @param {string} [node] */
export async function readMetrics(where, node) {
  if (!where.lists(NODE_METRICS)) return null;
  try {
    return (await get(listPath({ type: NODE_METRICS, root: where.root, include: ['metadata.name', 'usage'], filter: node ? [`metadata.name=${quoted(node)}`] : [] }, 1, 1000))).data;
  } catch {
    // What Pods have asked for is known anyway, and is shown instead.
    return null;
  }
}

/**
 * Pods of a cluster and what its nodes use, read now and then: in a large cluster one of them changes all the time.
 * @param {any} ctx @param {any} where @param {() => void} [told] after each look
 */
export function roomReader(ctx, where, told = () => {}) {
  const room = {
    /** @type {any[] | null} */ pods: null,
    /** @type {any[] | null} */ metrics: null,
    /** Pods that were not read, because there are too many. */ unread: 0,
    /** @type {any} */ failed: null,
    begun: false,
    async read() {
      try {
        const [found, measured] = await Promise.all([get(listPath({ type: POD, root: where.root, include: ['metadata.name', 'metadata.namespace', 'metadata.state', 'metadata.creationTimestamp', 'spec.containers', 'spec.initContainers', 'spec.overhead', 'spec.nodeName', 'status.phase'], sort: '-metadata.state.error,metadata.namespace,metadata.name' }, 1, PODS)), readMetrics(where)]);
        room.pods = found.data;
        room.unread = Math.max(0, (found.count ?? 0) - found.data.length);
        room.metrics = measured;
        room.failed = null;
        told();
      } catch (error) {
        room.failed = error;
      }
      ctx.redraw();
    },
    begin() {
      if (room.begun || !where.lists(POD)) return;
      room.begun = true;
      room.read();
      const timer = setInterval(() => document.hidden || room.read(), AGAIN);
      ctx.onStop(() => clearInterval(timer));
    },
    /** Each node by itself. @param {any[]} nodes */
    rows: (nodes) => roomOf(nodes, room.pods || [], room.metrics),
  };
  return room;
}

/** Three plots that go with one another: CPU, memory, Pods. @param {() => void} redraw */
export const threePlots = (redraw) => ({ cpu: new Plot(redraw), memory: new Plot(redraw), pods: new Plot(redraw) });

/**
 * Room now as a share, and how it was while one looked.
 * @param {ReturnType<typeof threePlots>} plots @param {ReturnType<typeof total>} now @param {import('../../core/room.js').Sample[]} samples
 */
export function roomView(plots, now, samples) {
  const measured = Boolean(now.used);
  const one = (/** @type {'cpu' | 'memory'} */ what, /** @type {string} */ name, /** @type {(value: number) => string} */ word) => {
    const used = now.used ? now.used[what] : now.asked[what];
    /** @type {[number, number][]} */
    const asked = samples.map((each) => [each.at, each.asked[what]]);
    /** @type {[number, number][]} */
    const points = samples.flatMap((each) => (each.used ? [[each.at, each.used[what]]] : []));
    return h('div', { key: what }, gauge(`${name} ${measured ? 'used' : 'asked for'}`, used, now.has[what], word),
      plots[what].draw({ label: name, word, binary: what === 'memory', limit: { name: 'all', value: now.has[what] }, series: points.length ? [{ name: 'used', form: 'area', points }, { name: 'asked for', form: 'line', points: asked }] : [{ name: 'asked for', form: 'area', points: asked }] }));
  };
  return [h('div', { class: 'room' }, one('cpu', 'CPU', cores), one('memory', 'Memory', sizes),
    h('div', { key: 'pods' }, gauge('Pods', now.asked.pods, now.has.pods, counted), plots.pods.draw({ label: 'Pods', word: counted, limit: { name: 'all', value: now.has.pods }, series: [{ name: 'Pods', form: 'area', points: samples.map((each) => [each.at, each.asked.pods]) }] }))),
  h('p', { class: 'muted small' }, 'Drawn from what was seen while the page was open; an hour of it is kept.')];
}

/** @param {string} name @param {number} part @param {number} whole @param {(value: number) => string} word */
export function gauge(name, part, whole, word) {
  const share = whole ? Math.min(1, part / whole) : 0;
  const text = `${word(part)} of ${word(whole)}`;
  return h('div', { class: 'gauge', key: name }, h('span', { class: 'muted small' }, name), h('b', null, whole ? `${Math.round(share * 100)} %` : '–'),
    h('svg', { class: 'bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${name}: ${text}` }, h('rect', { class: share > 0.9 ? 'bad' : share > 0.75 ? 'move' : 'ok', x: 0, y: 0, width: share * 100, height: 8 })), h('span', { class: 'muted small' }, text));
}

/** @param {any} ctx */
export function overviewPage(ctx) {
  const where = explored(ctx);
  /** @type {any} */
  let nodes = null;
  /** @type {any} */
  let events = null;
  /** @type {[string, any][]} */
  let counts = [];
  const plots = threePlots(ctx.redraw);

  const room = roomReader(ctx, where, () => sample());

  const roomNow = () => total(room.rows(nodes.items));

  /** Remembers how it is now, once nodes are known too. */
  function sample() {
    if (nodes.phase !== 'ready') return ctx.later('sample', 1000, sample);
    const { asked, used } = roomNow();
    past.add(where.id, { at: Date.now(), asked, used });
    ctx.redraw();
  }

  function begin() {
    if (nodes || !where.schemas) return;
    nodes = where.lists(NODE) ? ctx.list({ type: NODE, root: where.root }, { size: 1000 }) : { phase: 'ready', items: [], count: 0 };
    if (where.lists(EVENT)) events = ctx.list({ type: EVENT, root: where.root, filter: ['type=Warning'], sort: '-lastTimestamp' }, { size: 8 });
    counts = [...WORKLOADS.slice(0, 5), 'service', 'namespace'].filter(where.lists).map((type) => [type, ctx.list({ type, root: where.root, include: ['metadata.name'] }, { size: 1 })]);
    room.begin();
  }

  function rooms() {
    if (!where.lists(NODE) || !where.lists(POD) || (nodes.phase === 'ready' && !nodes.count)) return null;
    if (nodes.phase !== 'ready') return card('Room', phase(nodes, () => null, 2));
    if (!room.pods) return card('Room', room.failed ? h('p', { class: 'error' }, room.failed.message) : skeleton(2));
    const rows = room.rows(nodes.items);
    const now = total(rows);
    const waiting = room.pods.filter((pod) => takesRoom(pod) && !pod.spec?.nodeName).length;
    return [
      card('Room', [roomView(plots, now, past.of(where.id)), room.unread ? h('p', { class: 'muted small' }, `${room.unread} more Pods are not counted.`) : null, waiting ? h('p', { class: 'small' }, `${waiting} ${waiting === 1 ? 'Pod waits' : 'Pods wait'} for a node and ${waiting === 1 ? 'is' : 'are'} not among them.`) : null], { note: now.used ? 'what is used and asked for, of what nodes have' : 'what Pods have asked for, of what nodes have; what is used is not known' }),
      card('Nodes by room', h('div', { class: 'scroll', tabindex: 0 }, h('table', { class: 'plain', 'aria-label': 'Nodes by room' }, h('thead', null, h('tr', null, ['Node', 'CPU', 'Memory', 'Pods'].map((label) => h('th', { scope: 'col' }, label)))),
        h('tbody', null, rows.slice(0, NODES).map((row) => h('tr', { key: row.name }, h('td', { class: 'wrap' }, h('a', { class: 'link', href: objectHref(where.id, NODE, row.name) }, row.name)),
          h('td', null, share(`CPU of ${row.name}`, row.asked.cpu, row.used && row.used.cpu, row.has.cpu, cores)), h('td', null, share(`Memory of ${row.name}`, row.asked.memory, row.used && row.used.memory, row.has.memory, sizes)), h('td', null, share(`Pods of ${row.name}`, row.asked.pods, null, row.has.pods, counted))))))), { note: rows.length > NODES ? `the fullest ${NODES} of ${rows.length}` : 'fullest first' }),
    ];
  }

  function unwell() {
    if (!room.pods) return where.lists(POD) && !room.failed ? skeleton(2) : null;
    const bad = room.pods.filter((pod) => pod.metadata.state?.error);
    if (!bad.length) return h('p', { class: 'need-none' }, h('span', { class: 'ok bare' }, shape('ok')), 'All Pods are well.');
    return h('div', null, bad.slice(0, 8).map((pod) => h('a', { class: 'need', key: pod.id, href: objectHref(where.id, POD, pod.id) }, stateBadge(pod), h('b', null, pod.metadata.name), h('small', null, ageOf(pod.metadata.creationTimestamp)), h('p', null, pod.metadata.state.message || pod.metadata.namespace))),
      bad.length > 8 ? h('p', { class: 'muted' }, h('a', { href: `${kindHref(where.id, POD)}?state=broken` }, `and ${bad.length - 8} more`)) : null);
  }

  const warnings = () => (events.count ? h('div', { class: 'tl' }, events.items.flatMap((/** @type {any} */ one) => [h('time', { key: `t${one.id}`, datetime: timeOf(one) }, ago(timeOf(one))), h('i', { class: 'warn', key: `i${one.id}` }), h('span', { key: `s${one.id}` }, `${one.involvedObject?.name || ''}: ${one.message || one.note || one.reason}`)])) : h('p', { class: 'muted' }, 'None in the last hour.'));

  return {
    title: () => where.name(),
    render: () => explorer(where, {
      current: 'overview', head: { title: where.name(), crumbs: where.crumbs(), sub: 'As the cluster itself says it.' },
      body: () => {
        begin();
        const info = where.management?.item?.status || {};
        const ready = nodes.items.filter((/** @type {any} */ one) => conditionOf(one, 'Ready')?.status === 'True').length;
        return [
          card('', facts([
            ['Version', h('span', { class: 'mono' }, info.version?.gitVersion || nodes.items[0]?.status?.nodeInfo?.kubeletVersion || '–')],
            ['Nodes', nodes.phase === 'ready' && nodes.count ? h('a', { href: kindHref(where.id, NODE) }, ready === nodes.count ? String(nodes.count) : `${ready} of ${nodes.count} ready`) : ''],
            ['Pods', room.pods ? h('a', { href: kindHref(where.id, POD) }, String(room.pods.length + room.unread)) : ''],
            .../** @type {[any, any][]} */ (counts.map(([type, list]) => [titleOf(where.schema(type)), list.phase === 'ready' && list.count ? h('a', { href: kindHref(where.id, type) }, String(list.count)) : ''])),
          ])),
          rooms(),
          h('div', { class: 'grid even' }, where.lists(POD) ? card('Not well', unwell()) : null, events ? card('Warnings', phase(events, warnings, 3)) : null),
        ];
      },
    }),
  };
}
