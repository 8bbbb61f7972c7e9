// Events and conditions as what happened, newest first.

import { h } from '../../core/dom.js';
import { absolute, clock } from '../../core/time.js';
import { snapshotState } from '../../core/snapshots.js';
import { ago, badge, button, card, empty } from '../../parts/basics.js';
import { save } from '../../parts/layers.js';
import { filterBar, nothing } from '../../parts/table.js';

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

/** @typedef {{at: string, tone: string, text: string}} Line */

/** Snapshots as they were taken. @param {any[]} snapshots @returns {Line[]} */
export const snapshotLines = (snapshots) => snapshots.map((one) => {
  const state = snapshotState(one);
  return { at: one.snapshotFile?.createdAt || one.metadata.creationTimestamp, tone: state.tone === 'off' ? '' : state.tone, text: `snapshot ${one.snapshotFile?.name || one.metadata.name}: ${state.word.toLowerCase()}${state.why && state.tone === 'bad' ? `, ${state.why}` : ''}` };
});

/**
 * Conditions that changed and events that were told, as one story.
 * @param {any[]} objects @param {any[]} events @param {Line[]} [more]
 * @returns {Line[]} newest first
 */
export function story(objects, events, more = []) {
  /** @type {Line[]} */
  const lines = [...more];
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

/** @param {Line[]} lines */
const drawn = (lines) => h('div', { class: 'tl' }, lines.flatMap((line) => [h('time', { datetime: line.at, title: absolute(line.at), key: `t${line.at}${line.text}` }, clock(line.at, Date.now())), h('i', { class: line.tone, key: `i${line.at}${line.text}` }), h('span', { key: `s${line.at}${line.text}` }, line.text)]));

/** The newest of a story. @param {any[]} objects @param {any[]} events */
export function timeline(objects, events) {
  const lines = story(objects, events).slice(0, 14);
  return lines.length ? drawn(lines) : h('p', { class: 'muted' }, 'Nothing has happened yet.');
}

/** Lines that are drawn; the file has all. */
const DRAWN = 500;

/** Those of a story that a filter leaves. @param {Line[]} lines @param {string} q @param {boolean} problems */
export const told = (lines, q, problems) => lines.filter((line) => line.text.toLowerCase().includes(q.toLowerCase()) && (!problems || line.tone === 'bad' || line.tone === 'warn'));

/** A whole story, searched and taken away as a file. @param {any} ctx @param {string} name @param {Line[]} lines */
export function timelineView(ctx, name, lines) {
  const [q, problems] = [ctx.query.get('q') || '', ctx.query.get('state') === 'problems'];
  const shown = told(lines, q, problems);
  return [
    filterBar(ctx, { placeholder: 'Filter', chips: [['problems', 'Problems']], count: `${shown.length} of ${lines.length}`,
      columns: button({ icon: 'download', label: '', title: 'Download the timeline', kind: 'square', run: () => save(`${name}-timeline.txt`, shown.map((line) => `${line.at}  ${line.text}\n`).join(''), 'text/plain') }) }),
    card('', shown.length ? [drawn(shown.slice(0, DRAWN)), shown.length > DRAWN ? h('p', { class: 'muted small' }, `and ${shown.length - DRAWN} older ones, which the file has`) : null]
      : nothing(Boolean(q || problems), ctx, empty({ title: 'Nothing has happened yet', icon: 'clock' }))),
    h('p', { class: 'muted small' }, 'Conditions say when they changed last; events are kept for an hour.'),
  ];
}
