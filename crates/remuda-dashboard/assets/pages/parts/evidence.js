// Events and conditions as what happened, newest first.

import { h } from '../../core/dom.js';
import { clock } from '../../core/time.js';
import { ago, badge, empty } from '../../parts/basics.js';

/** @param {any} event */
export const timeOf = (event) => event.lastTimestamp || event.series?.lastObservedTime || event.eventTime || event.firstTimestamp || event.metadata?.creationTimestamp || '';

/** @param {any[]} events */
export const eventTable = (events) =>
  events.length
    ? h('div', { class: 'scroll', tabindex: 0 }, h('table', { class: 'plain' }, h('thead', null, h('tr', null, ['Seen', 'Type', 'Reason', 'Object', 'Message', 'Count'].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', null, events.map((one) => h('tr', { key: one.id }, h('td', { class: 'muted nowrap' }, ago(timeOf(one))), h('td', null, one._type === 'Warning' ? badge('warn', 'Warning') : one._type || 'Normal'), h('td', null, one.reason || ''),
        h('td', { class: 'wrap' }, `${one.involvedObject?.kind || ''} ${one.involvedObject?.name || ''}`), h('td', { class: 'wrap' }, one.message || one.note || ''), h('td', null, String(one.count || 1)))))))
    : empty({ title: 'No events', text: 'Events are kept for an hour. Conditions say how it stands now.', icon: 'clock' });

/** An event that only repeats the name of its object says its reason. @param {any} event */
function eventText(event) {
  const name = event.involvedObject?.name || '';
  const message = event.message || event.note || '';
  return `${name ? `${name}: ` : ''}${!message || message === name ? event.reason : message}`;
}

/**
 * Conditions that changed and events that were told, as one story.
 * @param {any[]} objects @param {any[]} events
 * @returns {{at: string, tone: string, text: string}[]} newest first
 */
export function story(objects, events) {
  const lines = [];
  for (const object of objects.filter(Boolean)) {
    const kind = object.kind === 'Cluster' ? '' : `${object.metadata.name}: `;
    lines.push({ at: object.metadata.creationTimestamp, tone: '', text: `${object.kind === 'Cluster' ? 'cluster' : object.metadata.name} created` });
    for (const one of object.status?.conditions || []) {
      if (!/^(Ready|Provisioned|Connected|InfrastructureReady|NodeHealthy|PlanApplied|Stalled)$/.test(one.type) || !one.lastTransitionTime) continue;
      const good = (one.status === 'True') === (one.type !== 'Stalled');
      if (one.type === 'Stalled' && good) continue;
      const word = one.type.replace(/([a-z])([A-Z])/g, '$1 $2').toLowerCase();
      lines.push({ at: one.lastTransitionTime, tone: good ? 'ok' : one.error ? 'bad' : 'move', text: `${kind}${good ? word : `${word}: ${one.message || one.reason || one.status}`}` });
    }
  }
  for (const one of events) lines.push({ at: timeOf(one), tone: one._type === 'Warning' ? 'warn' : '', text: eventText(one) });
  const seen = new Set();
  return lines.filter((line) => line.at && !seen.has(line.at + line.text) && seen.add(line.at + line.text)).sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : 0));
}

/** @param {any[]} objects @param {any[]} events */
export function timeline(objects, events) {
  const lines = story(objects, events).slice(0, 14);
  if (!lines.length) return h('p', { class: 'muted' }, 'Nothing has happened yet.');
  return h('div', { class: 'tl' }, lines.flatMap((line) => [h('time', { datetime: line.at, key: `t${line.at}${line.text}` }, clock(line.at, Date.now())), h('i', { class: line.tone, key: `i${line.at}${line.text}` }), h('span', { key: `s${line.at}${line.text}` }, line.text)]));
}
