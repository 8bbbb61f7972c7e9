// The form of a cluster. It reads and writes the same object the YAML beside it shows.

import { h } from '../../core/dom.js';
import { configRef, errorsAt, read } from '../../core/edit.js';
import { button } from '../../parts/basics.js';

/** Paths this form shows errors at. */
export const SHOWN = ['metadata.name', 'metadata.namespace', 'spec.kubernetesVersion', 'spec.rkeConfig.machinePools'];

/**
 * @typedef {{object: any, set: (path: string, value: any) => void, errors: Map<string, string[]>, editing: boolean, versions: {id: string, note: string}[], namespaces: string[], had: number}} Given
 */

/** @param {string} label @param {any} control @param {string[]} errors @param {string} [hint] @param {string} [id] */
const field = (label, control, errors, hint, id) =>
  h('label', { class: 'field', key: id || label }, h('span', null, label), control, errors.length ? h('span', { class: 'error', role: 'alert' }, errors.join(' ')) : hint ? h('span', { class: 'hint' }, hint) : null);

/** @param {Given} given */
export function clusterForm(given) {
  const { object, set, errors, editing } = given;
  const text = (/** @type {string} */ path, /** @type {Record<string, any>} */ more = {}) => {
    const wrong = errorsAt(errors, path);
    return h('input', { value: read(object, path) ?? '', 'aria-invalid': wrong.length ? 'true' : null, spellcheck: 'false', autocomplete: 'off', 'data-path': path, oninput: (/** @type {any} */ event) => set(path, event.target.value), ...more });
  };
  const version = read(object, 'spec.kubernetesVersion');
  const known = given.versions.some((one) => one.id === version);
  return h('div', { class: 'fields' },
    h('div', { class: 'fields two' },
      field('Name', text('metadata.name', { disabled: editing, autofocus: !editing, maxlength: 63 }), errorsAt(errors, 'metadata.name'), 'Lower-case letters, digits and dashes'),
      given.namespaces.length > 1 && !editing ? field('Workspace', h('select', { value: object.metadata?.namespace, onchange: (/** @type {any} */ event) => set('metadata.namespace', event.target.value) }, given.namespaces.map((one) => h('option', { key: one, value: one }, one))), errorsAt(errors, 'metadata.namespace')) : null),
    object.spec?.rkeConfig ? field('Kubernetes version', h('select', { value: version, 'data-path': 'spec.kubernetesVersion', 'aria-invalid': errorsAt(errors, 'spec.kubernetesVersion').length ? 'true' : null, onchange: (/** @type {any} */ event) => set('spec.kubernetesVersion', event.target.value) },
      known || !version ? null : h('option', { key: version, value: version }, version), given.versions.map((one) => h('option', { key: one.id, value: one.id }, one.note ? `${one.id} · ${one.note}` : one.id))), errorsAt(errors, 'spec.kubernetesVersion'), 'Newest of each minor version; any other goes into the YAML') : null,
    object.spec?.rkeConfig?.machinePools?.length ? pools(given) : null);
}

/** @param {Given} given */
function pools({ object, set, errors, had }) {
  const path = 'spec.rkeConfig.machinePools';
  const list = read(object, path) || [];
  const count = (/** @type {string} */ role) => list.reduce((/** @type {number} */ sum, /** @type {any} */ pool) => sum + (pool[role] ? Number(pool.quantity ?? 1) || 0 : 0), 0);
  const etcd = count('etcdRole');
  const advice = etcd === 0 ? 'No machine has the etcd role.' : etcd % 2 === 0 ? `${etcd} etcd members survive no more failures than ${etcd - 1}.` : count('controlPlaneRole') === 0 ? 'No machine has the control plane role.' : count('workerRole') === 0 ? 'No machine has the worker role: nothing can run in the cluster.' : '';
  const free = () => {
    let number = list.length + 1;
    while (list.some((/** @type {any} */ pool) => pool.name === `pool${number}`)) number += 1;
    return `pool${number}`;
  };
  const add = () => {
    const name = free();
    const kind = list[0]?.machineConfigRef?.kind;
    set(path, [...list, { name, quantity: 1, workerRole: true, machineConfigRef: kind === 'LocalConfig' ? configRef(object.metadata.name, name) : { kind: kind || '', name: '' } }]);
  };
  return h('div', { class: 'fields' },
    list.map((/** @type {any} */ pool, /** @type {number} */ place) => {
      const at = `${path}[${place}]`;
      const role = (/** @type {string} */ name, /** @type {string} */ label) => h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: Boolean(pool[name]), onchange: (/** @type {any} */ event) => set(`${at}.${name}`, event.target.checked || undefined) }), label);
      const other = [...errors].filter(([name]) => name.startsWith(at) && !name.startsWith(`${at}.name`) && !name.startsWith(`${at}.quantity`)).flatMap(([, messages]) => messages);
      return h('div', { class: 'pool-form', key: place }, h('header', null, h('h3', null, `Pool ${pool.name || place + 1}`), list.length > 1 ? button({ icon: 'close', label: '', title: `Remove pool ${pool.name}`, kind: 'square', run: () => set(path, list.filter((/** @type {any} */ _, /** @type {number} */ one) => one !== place)) }) : null),
        h('div', { class: 'fields two' },
          field('Pool name', h('input', { value: pool.name ?? '', disabled: place < had, 'data-path': `${at}.name`, 'aria-invalid': errorsAt(errors, `${at}.name`).length ? 'true' : null, spellcheck: 'false', oninput: (/** @type {any} */ event) => set(`${at}.name`, event.target.value) }), errorsAt(errors, `${at}.name`)),
          field('Machines', h('input', { type: 'number', min: 0, value: pool.quantity ?? 1, 'data-path': `${at}.quantity`, 'aria-invalid': errorsAt(errors, `${at}.quantity`).length ? 'true' : null, oninput: (/** @type {any} */ event) => set(`${at}.quantity`, event.target.value === '' ? undefined : Number(event.target.value)) }), errorsAt(errors, `${at}.quantity`))),
        h('fieldset', { class: 'roles' }, h('legend', null, 'Roles'), role('etcdRole', 'etcd'), role('controlPlaneRole', 'Control plane'), role('workerRole', 'Worker')),
        other.length ? h('p', { class: 'error small', role: 'alert' }, other.join(' ')) : null);
    }),
    h('div', { class: 'act' }, button({ label: 'Add a pool', icon: 'plus', run: add }), advice ? h('span', { class: 'muted small' }, advice) : null));
}
