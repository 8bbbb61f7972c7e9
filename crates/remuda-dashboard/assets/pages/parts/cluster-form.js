// The form of a cluster. It reads and writes the same object the YAML beside it shows.

import { h } from '../../core/dom.js';
import { shownValue, usualText } from '../../core/driver.js';
import { configRef, errorsAt, ownsConfig, read } from '../../core/edit.js';
import { nameOf } from '../../core/objects.js';
import { to } from '../../core/router.js';
import { button } from '../../parts/basics.js';

/** Paths this form shows errors at. */
export const SHOWN = ['metadata.name', 'metadata.namespace', 'spec.kubernetesVersion', 'spec.rkeConfig.machinePools'];

/**
 * @typedef {{object: any, set: (path: string, value: any) => void, errors: Map<string, string[]>, editing: boolean, versions: {id: string, note: string}[], namespaces: string[], had: number,
 *   drivers: import('../../core/driver.js').Driver[], credentials: {id: string, driver: string, note: string}[], configs: Record<string, Record<string, any>>, setConfig: (pool: string, field: import('../../core/driver.js').Field, value: any) => void}} Given
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
    object.spec?.rkeConfig?.machinePools?.length ? [provider(given), pools(given)] : null);
}

/** The driver of a pool that is made with the cluster. @param {Given} given @param {any} pool @param {number} place */
const driverOf = ({ drivers, editing, had }, pool, place) => (ownsConfig(pool) && (!editing || place >= had) ? drivers.find((one) => one.kind === pool.machineConfigRef.kind) : undefined);

/** Which driver makes the machines, and what it logs in with. @param {Given} given */
function provider(given) {
  const { object, set, errors, editing, drivers, credentials } = given;
  const list = read(object, 'spec.rkeConfig.machinePools');
  const kind = list[0].machineConfigRef?.kind || '';
  if (kind === 'LocalConfig') return null;
  const driver = drivers.find((one) => one.kind === kind);
  const path = 'spec.cloudCredentialSecretName';
  const named = read(object, path) || '';
  const fitting = credentials.filter((one) => !driver || one.driver === driver.name);
  const choose = (/** @type {string} */ next) => set('spec.rkeConfig.machinePools', list.map((/** @type {any} */ pool) => ({ ...pool, machineConfigRef: configRef(object.metadata.name, pool.name, next) })));
  if (!drivers.length && !editing) return h('p', { class: 'muted' }, 'No driver of a provider is active, or you may use none. ', h('a', { class: 'link', href: to('drivers') }, 'Node drivers'));
  return h('div', { class: 'fields two' },
    editing ? null : field('Provider', h('select', { name: 'provider', value: kind, onchange: (/** @type {any} */ event) => choose(event.target.value) }, driver ? null : h('option', { key: '', value: kind }, 'Choose …'), drivers.map((one) => h('option', { key: one.kind, value: one.kind }, nameOf(one.name)))), []),
    driver && !driver.credentialKeys.length ? null : field('Cloud credential', h('select', { name: 'credential', value: named, 'data-path': path, 'aria-invalid': errorsAt(errors, path).length ? 'true' : null, onchange: (/** @type {any} */ event) => set(path, event.target.value || undefined) },
      h('option', { key: '', value: '' }, 'None'), named && !fitting.some((one) => one.id === named) ? h('option', { key: named, value: named }, named) : null, fitting.map((one) => h('option', { key: one.id, value: one.id }, one.id.split(':')[1], one.note ? ` · ${one.note}` : ''))), errorsAt(errors, path), 'Those of this provider that you may read'));
}

/** What machines of a pool are made from, as the driver's schema has it. @param {Given} given @param {string} pool @param {import('../../core/driver.js').Driver} driver */
function configFields({ configs, setConfig }, pool, driver) {
  const values = configs[pool] || {};
  const one = (/** @type {import('../../core/driver.js').Field} */ of) => {
    const name = `config-${pool}-${of.name}`;
    const change = (/** @type {any} */ event) => setConfig(pool, of, of.kind === 'flag' ? event.target.checked : event.target.value);
    const value = shownValue(values, of);
    if (of.kind === 'flag') return h('label', { class: 'check', key: name, title: of.note || null }, h('input', { type: 'checkbox', name, checked: value, onchange: change }), of.name);
    const control = of.kind === 'list' ? h('textarea', { name, rows: 2, value, placeholder: usualText(of), spellcheck: 'false', oninput: change })
      : of.kind === 'choice' ? h('select', { name, value, onchange: change }, h('option', { key: '', value: '' }, usualText(of) || '–'), of.options.filter((option) => option !== of.usual).map((option) => h('option', { key: option, value: option }, option)))
        : h('input', { name, type: of.kind === 'secret' ? 'password' : 'text', value, placeholder: usualText(of), spellcheck: 'false', autocomplete: of.kind === 'secret' ? 'new-password' : 'off', oninput: change });
    return field(of.name, control, [], of.kind === 'list' ? `${of.note}${of.note ? '; ' : ''}one in a line` : of.note, name);
  };
  const [first, more] = [driver.fields.filter((of) => of.first), driver.fields.filter((of) => !of.first)];
  return [h('div', { class: 'fields two', key: 'first' }, first.map(one)), more.length ? h('details', { key: 'more' }, h('summary', null, `${more.length} more fields of ${nameOf(driver.name)}`), h('div', { class: 'fields two card-gap' }, more.map(one))) : null];
}

/** @param {Given} given */
function pools(given) {
  const { object, set, errors, had } = given;
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
    set(path, [...list, { name, quantity: 1, workerRole: true, machineConfigRef: kind === 'LocalConfig' || given.drivers.some((one) => one.kind === kind) ? configRef(object.metadata.name, name, kind) : { kind: kind || '', name: '' } }]);
  };
  return h('div', { class: 'fields' },
    list.map((/** @type {any} */ pool, /** @type {number} */ place) => {
      const at = `${path}[${place}]`;
      const role = (/** @type {string} */ name, /** @type {string} */ label) => h('label', { class: 'check' }, h('input', { type: 'checkbox', checked: Boolean(pool[name]), onchange: (/** @type {any} */ event) => set(`${at}.${name}`, event.target.checked || undefined) }), label);
      const other = [...errors].filter(([name]) => name.startsWith(at) && !name.startsWith(`${at}.name`) && !name.startsWith(`${at}.quantity`)).flatMap(([, messages]) => messages);
      const driver = driverOf(given, pool, place);
      return h('div', { class: 'pool-form', key: place }, h('header', null, h('h3', null, `Pool ${pool.name || place + 1}`), list.length > 1 ? button({ icon: 'close', label: '', title: `Remove pool ${pool.name}`, kind: 'square', run: () => set(path, list.filter((/** @type {any} */ _, /** @type {number} */ one) => one !== place)) }) : null),
        h('div', { class: 'fields two' },
          field('Pool name', h('input', { value: pool.name ?? '', disabled: place < had, 'data-path': `${at}.name`, 'aria-invalid': errorsAt(errors, `${at}.name`).length ? 'true' : null, spellcheck: 'false', oninput: (/** @type {any} */ event) => set(`${at}.name`, event.target.value) }), errorsAt(errors, `${at}.name`)),
          field('Machines', h('input', { type: 'number', min: 0, value: pool.quantity ?? 1, 'data-path': `${at}.quantity`, 'aria-invalid': errorsAt(errors, `${at}.quantity`).length ? 'true' : null, oninput: (/** @type {any} */ event) => set(`${at}.quantity`, event.target.value === '' ? undefined : Number(event.target.value)) }), errorsAt(errors, `${at}.quantity`))),
        h('fieldset', { class: 'roles' }, h('legend', null, 'Roles'), role('etcdRole', 'etcd'), role('controlPlaneRole', 'Control plane'), role('workerRole', 'Worker')),
        driver ? configFields(given, pool.name, driver) : null,
        other.length ? h('p', { class: 'error small', role: 'alert' }, other.join(' ')) : null);
    }),
    h('div', { class: 'act' }, button({ label: 'Add a pool', icon: 'plus', run: add }), advice ? h('span', { class: 'muted small' }, advice) : null));
}
