// How it stands with what runs in a cluster: room, what is not well, what was last warned of.

import { get } from '../../core/api.js';
import { h } from '../../core/dom.js';
import { WORKLOADS, kindHref, objectHref, titleOf } from '../../core/kinds.js';
import { EVENT, NODE, POD, bytes, conditionOf, quantity } from '../../core/objects.js';
import { listPath } from '../../core/store.js';
import { ageOf, ago, card, facts, phase, skeleton, stateBadge } from '../../parts/basics.js';
import { shape } from '../../parts/icons.js';
import { timeOf } from '../parts/evidence.js';
import { explored, explorer } from './where.js';

/** Pods are read this often: in a large cluster one of them changes all the time. */
const AGAIN = 15_000;

/** What Pods have asked for, of those that have a place. @param {any[]} pods @param {string} what */
export const requested = (pods, what) =>
  pods.filter((pod) => !['Succeeded', 'Failed'].includes(pod.status?.phase || '')).reduce((sum, pod) => sum + (pod.spec?.containers || []).reduce((/** @type {number} */ all, /** @type {any} */ one) => all + (quantity(one.resources?.requests?.[what]) || 0), 0), 0);

/** What nodes have to give. @param {any[]} nodes @param {string} what */
export const allocatable = (nodes, what) => nodes.reduce((sum, node) => sum + (quantity(node.status?.allocatable?.[what]) || 0), 0);

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
  /** @type {any[] | null} */
  let pods = null;
  /** @type {any} */
  let failed = null;
  /** @type {any} */
  let nodes = null;
  /** @type {any} */
  let events = null;
  /** @type {[string, any][]} */
  let counts = [];

  const readPods = async () => {
    try {
      pods = (await get(listPath({ type: POD, root: where.root, include: ['metadata.name', 'metadata.namespace', 'metadata.state', 'metadata.creationTimestamp', 'spec.containers', 'status.phase'], sort: '-metadata.state.error,metadata.namespace,metadata.name' }, 1, 5000))).data;
      failed = null;
    } catch (error) {
      failed = error;
    }
    ctx.redraw();
  };

  function begin() {
    if (nodes || !where.schemas) return;
    nodes = where.lists(NODE) ? ctx.list({ type: NODE, root: where.root }, { size: 1000 }) : { phase: 'ready', items: [], count: 0 };
    if (where.lists(EVENT)) events = ctx.list({ type: EVENT, root: where.root, filter: ['type=Warning'], sort: '-lastTimestamp' }, { size: 8 });
    counts = [...WORKLOADS.slice(0, 5), 'service', 'namespace'].filter(where.lists).map((type) => [type, ctx.list({ type, root: where.root, include: ['metadata.name'] }, { size: 1 })]);
    if (!where.lists(POD)) return;
    readPods();
    const timer = setInterval(() => document.hidden || readPods(), AGAIN);
    ctx.onStop(() => clearInterval(timer));
  }

  function room() {
    if (!where.lists(NODE) || !where.lists(POD) || (nodes.phase === 'ready' && !nodes.count)) return null;
    return card('Room', nodes.phase === 'ready' && pods ? h('div', { class: 'room' },
      gauge('CPU asked for', requested(pods, 'cpu'), allocatable(nodes.items, 'cpu'), (value) => `${Number(value.toFixed(2))} cores`), gauge('Memory asked for', requested(pods, 'memory'), allocatable(nodes.items, 'memory'), (value) => bytes(value) || '0 B'), gauge('Pods', pods.filter((pod) => !['Succeeded', 'Failed'].includes(pod.status?.phase || '')).length, allocatable(nodes.items, 'pods'), String))
      : failed ? h('p', { class: 'error' }, failed.message) : nodes.phase === 'ready' ? skeleton(2) : phase(nodes, () => null, 2), { note: 'what Pods have asked for, of what nodes have' });
  }

  function unwell() {
    if (!pods) return where.lists(POD) && !failed ? skeleton(2) : null;
    const bad = pods.filter((pod) => pod.metadata.state?.error);
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
            ['Pods', pods ? h('a', { href: kindHref(where.id, POD) }, String(pods.length)) : ''],
            .../** @type {[any, any][]} */ (counts.map(([type, list]) => [titleOf(where.schema(type)), list.phase === 'ready' && list.count ? h('a', { href: kindHref(where.id, type) }, String(list.count)) : ''])),
          ])),
          room(),
          h('div', { class: 'grid even' }, where.lists(POD) ? card('Not well', unwell()) : null, events ? card('Warnings', phase(events, warnings, 3)) : null),
        ];
      },
    }),
  };
}
