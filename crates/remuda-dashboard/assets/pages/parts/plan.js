// What the agent of a machine does and did, and what its driver wrote.

import { h } from '../../core/dom.js';
import { coloured } from '../../core/log.js';
import { planOf } from '../../core/plan.js';
import { badge, button, card, empty, facts, ago, phase, skeleton } from '../../parts/basics.js';
import { save } from '../../parts/layers.js';

/** Lines of an output that are shown; the file has all. */
const SHOWN = 400;

/** What was written last is what is looked for. @param {HTMLElement} box */
const toEnd = (box) => requestAnimationFrame(() => { box.scrollTop = box.scrollHeight; });

/** @param {string} text @param {string} name */
function output(text, name) {
  const lines = text.replace(/\n$/, '').split('\n');
  const shown = lines.slice(-SHOWN);
  if (!text.trim()) return h('p', { class: 'muted small' }, 'It wrote nothing.');
  return [
    h('div', { class: 'log wraps output', ref: toEnd, tabindex: 0, role: 'region', 'aria-label': `Output of ${name}` }, shown.map((line, at) => h('div', { class: 'log-line', key: at }, coloured(line).map((piece) => (piece.style ? h('span', { class: piece.style }, piece.text) : piece.text))))),
    h('div', { class: 'act' }, button({ label: 'Download', icon: 'download', title: `Download the output of ${name}`, run: () => save(`${name}.log`, text, 'text/plain') }), lines.length > shown.length ? h('span', { class: 'muted small' }, `the last ${SHOWN} of ${lines.length} lines`) : null),
  ];
}

/** Agents write times as their host does, which is not always one a browser can read. @param {string} at */
const when = (at) => (Number.isNaN(Date.parse(at)) ? at : ago(at));

/** One that is opened to be read. @param {string} key @param {any} head @param {any} body @param {boolean} open */
const folded = (key, head, body, open) => h('details', { key, class: 'fold', open }, h('summary', null, head), body);

/** What a Secret says is read aside, and once for each of its versions. @param {() => void} redraw */
export function planView(redraw) {
  /** @type {any} */
  let read = null;
  /** @type {import('../../core/plan.js').Plan | null} */
  let plan = null;
  return (/** @type {any} */ secrets) => phase(secrets, () => {
    const secret = secrets.items[0];
    if (!secret) return empty({ title: 'No plan yet', icon: 'sheet', text: 'A machine is told what to do once its server is there. What its agent did appears here.' });
    if (read !== secret) {
      read = secret;
      planOf(secret).then((found) => { if (read === secret) { plan = found; redraw(); } });
    }
    return plan ? drawn(plan) : skeleton(4);
  });
}

/** @param {import('../../core/plan.js').Plan} plan */
function drawn(plan) {
  return [
    plan.error ? h('div', { class: 'cause bad', role: 'alert' }, h('div', null, h('b', null, plan.error), plan.failures > 1 ? h('p', null, `It failed ${plan.failures} times in a row.`) : null)) : null,
    card('', facts([['Plan', badge(plan.state.tone, plan.state.word)], ['Ran last', plan.at ? when(plan.at) : ''], ['Failures in a row', plan.failures || '']])),
    h('div', { class: 'grid' },
      card(plan.error ? 'What the failed run wrote' : 'What its steps wrote', plan.steps.length ? plan.steps.map((step) => folded(step.name, h('b', { class: 'mono' }, step.name), output(step.text, step.name), Boolean(plan.error && step.text.trim()))) : h('p', { class: 'muted' }, 'Nothing was kept: of steps that go well, only those of snapshots and restores are.')),
      h('div', null,
        card('Probes', plan.probes.length ? h('ul', { class: 'probes' }, plan.probes.map((one) => h('li', { key: one.name }, badge(one.healthy ? 'ok' : one.failures ? 'bad' : 'move', one.healthy ? 'Passes' : one.failures ? 'Fails' : 'Not yet'), h('span', { class: 'mono' }, one.name), one.failures ? h('span', { class: 'muted small' }, `${one.failures} in a row`) : null))) : h('p', { class: 'muted' }, 'None has run yet.')),
        plan.periodic.length ? card('Again and again', plan.periodic.map((one) => folded(one.name, [h('b', { class: 'mono' }, one.name), one.failures ? badge('bad', `Exit code ${one.code}`) : badge('ok', 'Good'), one.at ? h('span', { class: 'muted small' }, when(one.at)) : null], output(one.text, one.name), false))) : null)),
  ];
}

/** What the driver of a machine wrote while it made and removed the server. @param {any} maps */
export const driverLog = (maps) => phase(maps, () => {
  const { create = '', remove = '' } = maps.items[0]?.data || {};
  if (!create && !remove) return empty({ title: 'Nothing was written', icon: 'sheet', text: 'What a driver writes while it makes or removes the server appears here.' });
  return [create ? card('Creation', output(String(create), 'creation')) : null, remove ? card('Removal', output(String(remove), 'removal')) : null];
});
