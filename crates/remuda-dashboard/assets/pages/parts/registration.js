// The command that makes a server a machine of a cluster, or imports a cluster, with who has called in.

import { h } from '../../core/dom.js';
import { isImported } from '../../core/objects.js';
import { card, empty } from '../../parts/basics.js';
import { command } from '../../parts/yaml-view.js';
import { machineTable } from './pools.js';

/** Values go into a shell: what could end an argument is left out. @param {string} value */
export const harmless = (value) => value.replace(/[^A-Za-z0-9._:/=,@+-]/g, '');

/** @param {string} base @param {{etcd: boolean, controlplane: boolean, worker: boolean, name: string, address: string, internal: string, labels: string, taints: string}} given */
export function nodeCommand(base, given) {
  const words = [base];
  for (const role of /** @type {const} */ (['etcd', 'controlplane', 'worker'])) if (given[role]) words.push(`--${role}`);
  const values = /** @type {[string, string][]} */ ([['--node-name', given.name], ['--address', given.address], ['--internal-address', given.internal]]);
  for (const [flag, value] of values) if (harmless(value)) words.push(flag, harmless(value));
  for (const [flag, list] of [['--label', given.labels], ['--taints', given.taints]]) {
    for (const one of list.split(/\s+/).map(harmless).filter(Boolean)) words.push(flag, one);
  }
  return words.join(' ');
}

/** @param {{ctx: any, cluster: any, token: any, machines: any}} given */
export function registration({ ctx, cluster, token, machines }) {
  /** @type {Record<string, string>} */
  const status = { ...token?.status };
  if (ctx.registrationToken) for (const name in status) if (typeof status[name] === 'string') status[name] = status[name].replaceAll('{token}', ctx.registrationToken);
  const form = (ctx.registration ??= { etcd: true, controlplane: true, worker: true, name: '', address: '', internal: '', labels: '', taints: '', insecure: false });
  if (!status.nodeCommand && !status.command) return card('', empty({ title: 'The command is being made', text: 'It appears here in a moment.', icon: 'clock' }));
  const hidden = /\{token\}/.test(status.nodeCommand || status.command || '');
  const set = (/** @type {string} */ name, /** @type {any} */ value) => { form[name] = value; ctx.redraw(); };
  const check = (/** @type {string} */ name, /** @type {string} */ label) => h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: form[name], onchange: (/** @type {any} */ e) => set(name, e.target.checked) }), label);
  const field = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ hint) => h('label', { class: 'field' }, h('span', null, label), h('input', { value: form[name], placeholder: hint, spellcheck: 'false', autocomplete: 'off', oninput: (/** @type {any} */ e) => set(name, e.target.value) }));
  const note = hidden ? h('p', { class: 'muted small' }, '{token} stands for a secret you may not read. Whoever owns the cluster sees the whole command.') : h('p', { class: 'muted small' }, 'Who has this command can add machines to the cluster.');
  if (isImported(cluster)) {
    return card('Import', h('div', { class: 'fields' }, h('p', null, 'Run this against the cluster to import, as its administrator:'), command(form.insecure ? status.insecureCommand : status.command, 'Import command'), check('insecure', 'The server’s certificate is not known there'), note));
  }
  const missing = ['etcd', 'controlplane', 'worker'].filter((role) => !form[role]);
  return [
    card('Register a server', h('div', { class: 'fields' },
      h('fieldset', { class: 'roles' }, h('legend', null, 'Roles'), check('etcd', 'etcd'), check('controlplane', 'Control plane'), check('worker', 'Worker')),
      missing.length ? h('p', { class: 'small muted' }, 'A cluster needs machines of all three roles before it is ready.') : null,
      h('div', { class: 'fields two' }, field('name', 'Node name', 'as the server is called'), field('address', 'Public address', 'found by itself'), field('internal', 'Internal address', 'found by itself'), field('labels', 'Labels', 'key=value …'), field('taints', 'Taints', 'key=value:NoSchedule …')),
      check('insecure', 'The server’s certificate is not known there'),
      command(nodeCommand(form.insecure ? status.insecureNodeCommand : status.nodeCommand, form), 'Registration command'), note)),
    h('section', { class: 'pool' }, h('div', { class: 'pool-head' }, h('h2', null, 'Who has called in')), h('div', { class: 'card table-card' }, machines.count ? machineTable(machines.items) : h('p', { class: 'muted pool-empty' }, 'None yet. Servers appear here seconds after the command has run.'))),
  ];
}
