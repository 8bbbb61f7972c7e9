// Where machines come from: cloud credentials, node drivers, machine configurations.

import { del, mayDo, mergePatch, post, v1 } from '../core/api.js';
import { CREDENTIALS, SECRET, configSchemas, credentialFields, credentialOf, credentialSecret, credentialUsers, driverState, editPolicy, poolsOf } from '../core/access.js';
import { h } from '../core/dom.js';
import { objectHref } from '../core/kinds.js';
import { CLUSTER, NODE_DRIVER, may, nameOf } from '../core/objects.js';
import { to } from '../core/router.js';
import { ageOf, badge, button, empty, pageHead, phase } from '../parts/basics.js';
import { confirm, openMenu, toast } from '../parts/layers.js';

/** @param {string} label @param {string} [kind] */
const head = (label, kind = '') => h('th', { scope: 'col', class: kind, key: label }, label);
const noHead = h('th', { scope: 'col', class: 'c-act wide-act', key: 'act' }, h('span', { class: 'visually-hidden' }, 'Actions'));

/** @param {string} label @param {any[]} heads @param {any[]} rows */
const table = (label, heads, rows) => h('table', { class: 'rows still', 'aria-label': label }, h('thead', null, h('tr', null, heads)), h('tbody', null, rows));

/** @param {any[]} clusters */
const clusterLinks = (clusters) => (clusters.length ? clusters.slice(0, 3).map((one, at) => [at ? ', ' : null, h('a', { class: 'link', href: to('clusters', one.metadata.namespace, one.metadata.name) }, one.metadata.name)]) : h('span', { class: 'muted' }, 'nothing'));

/** @param {any} ctx */
export function credentialsPage(ctx) {
  // Names of the fields are enough to know whose credential it is; values stay where they are.
  const secrets = ctx.list({ type: SECRET, namespace: CREDENTIALS, sort: 'metadata.name', excludeValues: ['data'], exclude: ['metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]'] }, { size: 2000 });
  const clusters = ctx.app.schema(CLUSTER) ? ctx.list({ type: CLUSTER, include: ['metadata', 'spec'] }, { size: 5000 }) : null;
  const drivers = ctx.app.schema(NODE_DRIVER) ? ctx.list({ type: NODE_DRIVER, sort: 'metadata.name' }, { size: 200 }) : null;

  let allowed = false;
  mayDo('', { verb: 'create', resource: 'secrets', namespace: CREDENTIALS }).then((answer) => { allowed = answer; ctx.redraw(); }, () => {});

  function create() {
    const able = (drivers?.items || []).filter((/** @type {any} */ one) => credentialFields(one).length);
    let driver = able[0];
    const given = { name: '', description: '' };
    /** @type {Record<string, string>} */
    let values = {};
    return confirm({
      title: 'New cloud credential', action: 'Create credential',
      body: (/** @type {() => void} */ redraw) => [
        h('label', { class: 'field' }, h('span', null, 'Provider'), h('select', { name: 'driver', value: driver?.metadata.name, onchange: (/** @type {any} */ event) => { driver = able.find((/** @type {any} */ one) => one.metadata.name === event.target.value); values = {}; redraw(); } }, able.map((/** @type {any} */ one) => h('option', { key: one.id, value: one.metadata.name }, nameOf(one.spec?.displayName || one.metadata.name))))),
        h('label', { class: 'field' }, h('span', null, 'Name'), h('input', { name: 'name', value: given.name, placeholder: 'cc-…', autocomplete: 'off', spellcheck: 'false', oninput: (/** @type {any} */ event) => { given.name = event.target.value; } }), h('span', { class: 'hint' }, 'Clusters name it so. Without one it gets a name.')),
        h('label', { class: 'field' }, h('span', null, 'What it is for'), h('input', { name: 'description', value: given.description, autocomplete: 'off', oninput: (/** @type {any} */ event) => { given.description = event.target.value; } })),
        credentialFields(driver).map((field) => h('label', { class: 'field', key: `${driver.metadata.name} ${field.name}` }, h('span', null, field.name, field.optional ? ' (may be empty)' : ''), h('input', { name: `value-${field.name}`, type: field.secret ? 'password' : 'text', value: values[field.name] || '', autocomplete: field.secret ? 'new-password' : 'off', spellcheck: 'false', oninput: (/** @type {any} */ event) => { values[field.name] = event.target.value; } }))),
      ],
      run: async () => {
        const missing = credentialFields(driver).find((field) => !field.optional && !values[field.name]);
        if (missing) throw new Error(`${missing.name} is missing.`);
        const made = await post(v1('', SECRET, CREDENTIALS), credentialSecret(driver.metadata.name, values, given.name.trim(), given.description.trim()));
        toast(`${made.metadata.name} was made`);
        secrets.refresh();
      },
    });
  }

  /** What providers said of credentials, by id. @type {Map<string, {tone: string, text: string}>} */
  const told = new Map();
  /** Asks the provider whether it takes a credential; nothing is made there. @param {any} secret @param {string} driver */
  async function test(secret, driver) {
    const say = (/** @type {string} */ tone, /** @type {string} */ text) => { told.set(secret.id, { tone, text }); ctx.redraw(); };
    say('move', `Asking ${nameOf(driver)} …`);
    try {
      const { works, message } = await post(`${v1('', SECRET, secret.id)}?action=test`);
      say(works ? 'ok' : 'bad', works ? `${nameOf(driver)} takes it.` : message);
    } catch (error) {
      say('warn', /** @type {any} */ (error).message);
    }
  }

  /** @param {any} secret @param {any[]} used */
  const remove = (secret, used) => confirm({
    title: `Delete ${secret.metadata.name}?`, danger: true, action: 'Delete credential', typed: secret.metadata.name,
    body: used.length ? [h('p', null, `${used.map((one) => one.metadata.name).join(', ')} ${used.length === 1 ? 'uses' : 'use'} it: machines can be neither made nor removed without it, and the removal of those there are waits for it.`)] : h('p', null, 'No cluster you may see uses it.'),
    run: async () => { await del(v1('', SECRET, secret.id)); toast('The credential was deleted'); },
  });

  return {
    title: 'Cloud credentials',
    render() {
      const found = secrets.items.map((/** @type {any} */ secret) => ({ secret, is: credentialOf(secret) })).filter((/** @type {any} */ one) => one.is);
      const able = allowed && (drivers?.items || []).some((/** @type {any} */ one) => credentialFields(one).length);
      return [
        pageHead({ title: 'Cloud credentials', sub: 'What drivers log in to providers with. Values are never shown again.', actions: able ? button({ label: 'New credential …', icon: 'plus', kind: 'primary', id: 'new-credential', run: create }) : null }),
        h('section', { class: 'card table-card' }, phase(secrets, () => (found.length ? table('Cloud credentials', [head('Name'), head('Provider', 'p2 c-provider'), head('Used by', 'p2'), head('Age', 'p3 c-age'), noHead], found.map((/** @type {any} */ { secret, is }) => {
          const used = credentialUsers(secret, clusters?.items || []);
          const said = told.get(secret.id);
          return h('tr', { key: secret.id }, h('td', null, h('b', { class: 'n' }, secret.metadata.name), h('span', { class: 'sub' }, secret.metadata.annotations?.['field.cattle.io/description'] || is.fields.join(', ')), said ? h('span', { class: `why ${said.tone}`, role: 'status', title: said.text }, said.text) : null), h('td', { class: 'p2 c-provider' }, nameOf(is.driver)), h('td', { class: 'p2' }, clusters?.phase === 'ready' ? clusterLinks(used) : ''), h('td', { class: 'p3 c-age muted' }, ageOf(secret.metadata.creationTimestamp)),
            h('td', { class: 'c-act wide-act' }, secret.actions?.test ? button({ label: 'Test', title: `Test ${secret.metadata.name}`, disabled: said?.tone === 'move', run: () => test(secret, is.driver) }) : null, may(secret, 'remove') ? button({ label: 'Delete …', title: `Delete ${secret.metadata.name}`, run: () => remove(secret, used) }) : null));
        })) : empty({ title: 'No cloud credentials', icon: 'key', text: 'Machines of a cloud are made with a credential. Those you may read appear here.' })))),
      ];
    },
  };
}

/** @param {any} ctx */
export function driversPage(ctx) {
  const drivers = ctx.list({ type: NODE_DRIVER, sort: 'metadata.name' }, { size: 500 });
  const clusters = ctx.app.schema(CLUSTER) ? ctx.list({ type: CLUSTER, include: ['metadata', 'spec'] }, { size: 5000 }) : null;

  /** @param {any} driver */
  const usersOf = (driver) => (clusters?.items || []).filter((/** @type {any} */ one) => (one.spec?.rkeConfig?.machinePools || []).some((/** @type {any} */ pool) => String(pool.machineConfigRef?.kind || '').toLowerCase() === `${driver.metadata.name}config`));
  /** @param {any} driver @param {boolean} active */
  async function set(driver, active) {
    await mergePatch(v1('', NODE_DRIVER, driver.id), { spec: { active } });
    toast(`${driver.metadata.name} is ${active ? 'being activated' : 'off'}`);
  }
  /** @param {any} driver */
  const off = (driver) => {
    const used = usersOf(driver);
    return confirm({ title: `Deactivate ${driver.metadata.name}?`, danger: used.length > 0, action: 'Deactivate', body: h('p', null, used.length ? `${used.map((/** @type {any} */ one) => one.metadata.name).join(', ')} ${used.length === 1 ? 'has' : 'have'} machines of it, which can be neither made nor removed until it is active again.` : 'No cluster you may see uses it. It can be activated again.'), run: () => set(driver, false) });
  };

  return {
    title: 'Node drivers',
    render: () => [
      pageHead({ title: 'Node drivers', sub: 'Programs that make and remove servers. An active driver is a choice when clusters are made.' }),
      h('section', { class: 'card table-card' }, phase(drivers, () => (drivers.count ? table('Node drivers', [head('State', 'c-state'), head('Driver'), head('Comes from', 'p3 c-provider'), head('Used by', 'p2 c-wide'), h('th', { scope: 'col', class: 'c-act', key: 'act' }, h('span', { class: 'visually-hidden' }, 'Actions'))], drivers.items.map((/** @type {any} */ driver) => {
        const state = driverState(driver);
        return h('tr', { key: driver.id }, h('td', { class: 'c-state' }, badge(state.tone, state.word, state.why || undefined)), h('td', null, h('a', { class: 'n', href: objectHref('local', NODE_DRIVER, driver.id) }, nameOf(driver.spec?.displayName || driver.metadata.name)), h('span', { class: state.why ? 'why bad' : 'sub', title: state.why || driver.spec?.description || null }, state.why || driver.spec?.description || '')),
          h('td', { class: 'p3 c-provider muted', title: driver.spec?.url || null }, driver.spec?.builtin ? 'Remuda' : driver.spec?.url || ''), h('td', { class: 'p2 c-wide' }, clusters?.phase === 'ready' ? clusterLinks(usersOf(driver)) : ''),
          h('td', { class: 'c-act' }, may(driver, 'update') ? button({ icon: 'more', label: '', title: `Actions for ${driver.metadata.name}`, kind: 'square', run: (event) => openMenu(/** @type {Element} */ (event.currentTarget), [driver.spec?.active ? { label: 'Deactivate …', icon: 'close', danger: true, run: () => off(driver) } : { label: 'Activate', icon: 'plus', run: () => set(driver, true).catch((error) => toast(error.message, 'bad')) }]) }) : null));
      })) : empty({ title: 'No node drivers', icon: 'machine' })))),
    ],
  };
}

/** @param {any} ctx */
export function configsPage(ctx) {
  const kinds = configSchemas(ctx.app.schemas.values());
  const lists = kinds.map((schema) => ({ schema, list: ctx.list({ type: schema.id, sort: 'metadata.namespace,metadata.name', include: ['metadata'] }, { size: 2000 }) }));
  const clusters = ctx.app.schema(CLUSTER) ? ctx.list({ type: CLUSTER, include: ['metadata', 'spec', 'status.conditions'] }, { size: 5000 }) : null;
  const words = /** @type {Record<string, string>} */ ({ Ask: 'an edit waits for apply-config', Auto: 'an edit replaces its machines', Never: 'an edit changes nothing' });

  /** @param {{cluster: any, pool: any}[]} used */
  const users = (used) => (used.length ? h('ul', { class: 'users' }, used.slice(0, 4).map(({ cluster, pool }) => h('li', { key: `${cluster.id} ${pool.name}` }, h('a', { class: 'link', href: to('clusters', cluster.metadata.namespace, cluster.metadata.name) }, cluster.metadata.name), ` / ${pool.name}, ${pool.quantity ?? 1} ${(pool.quantity ?? 1) === 1 ? 'machine' : 'machines'}: `, h('span', { class: 'muted' }, words[editPolicy(cluster, pool)]))), used.length > 4 ? h('li', null, `and ${used.length - 4} more pools`) : null) : h('span', { class: 'muted' }, 'No pool you may see.'));

  return {
    title: 'Machine configurations',
    render: () => [
      pageHead({ title: 'Machine configurations', sub: 'What machines of pools are made from. One may be used by many pools; an edit replaces nothing before it was let through.' }),
      lists.length ? lists.map(({ schema, list }) => h('section', { class: 'card', key: schema.id }, h('div', { class: 'card-head' }, h('h2', null, nameOf(String(schema.attributes.kind).replace(/Config$/, '')), h('span', { class: 'muted note' }, schema.attributes.kind))), phase(list, () => (list.count ? h('div', { class: 'scroll', tabindex: 0 }, h('table', { class: 'plain', 'aria-label': schema.attributes.kind }, h('thead', null, h('tr', null, head('Name', 'c-name'), head('Pools made from it'), head('Age', 'p2'))),
        h('tbody', null, list.items.map((/** @type {any} */ one) => h('tr', { key: one.id }, h('td', { class: 'wrap c-name' }, h('a', { class: 'link', href: objectHref('local', schema.id, one.id) }, one.metadata.name), h('span', { class: 'sub' }, one.metadata.namespace), one.metadata.annotations?.['remuda.io/shared'] === 'true' ? badge('off', 'Shared') : null), h('td', null, clusters?.phase === 'ready' ? users(poolsOf({ ...one, kind: schema.attributes.kind }, clusters.items)) : ''), h('td', { class: 'p2 muted nowrap' }, ageOf(one.metadata.creationTimestamp))))))) : h('p', { class: 'muted small' }, 'None yet.')), 2)))
        : empty({ title: 'No machine configurations', icon: 'machine', text: 'Each active driver has a kind of them. Activate one first.', actions: ctx.app.schema(NODE_DRIVER) ? button({ label: 'Node drivers', href: to('drivers') }) : null }),
    ],
  };
}
