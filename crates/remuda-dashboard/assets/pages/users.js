// People who may log in.

import { del, mergePatch, post, v1 } from '../core/api.js';
import { h } from '../core/dom.js';
import { USER, may, mayCreate } from '../core/objects.js';
import { ageOf, badge, button, empty, pageHead, phase } from '../parts/basics.js';
import { confirm, openDialog, openMenu, toast } from '../parts/layers.js';

/** Users that stand for clusters and the like are no people. @param {any} user */
export const isPerson = (user) => !(user.principalIds || []).some((/** @type {string} */ id) => id.startsWith('system://'));

/** Shows a password that the server made up, once. @param {string} name @param {string} password */
const showOnce = (name, password) => openDialog((close) => h('div', null, h('h2', null, `Password of ${name}`), h('div', { class: 'dialog-body' }, h('p', null, 'It is shown this once, and has to be changed at the first login.'), h('code', { class: 'mono secret-once', id: 'made-up' }, password)), h('div', { class: 'act' }, button({ label: 'Done', kind: 'primary', run: () => close() }))), { label: 'Password', sticky: true });

/** @param {any} ctx */
export function usersPage(ctx) {
  const users = ctx.list({ type: USER, sort: 'username,metadata.name' }, { size: 2000 });
  const roles = ctx.app.schema('management.cattle.io.globalrolebinding') ? ctx.list({ type: 'management.cattle.io.globalrolebinding' }, { size: 5000 }) : null;

  async function create() {
    const given = { username: '', name: '', role: 'user' };
    let error = '';
    let busy = false;
    const roleMay = mayCreate(ctx.app.schema('management.cattle.io.globalrolebinding'));
    const made = await openDialog((close, redraw) => {
      const submit = async (/** @type {Event} */ event) => {
        event.preventDefault();
        busy = true;
        error = '';
        redraw();
        try {
          const user = await post(v1('', USER), { metadata: { generateName: 'u-' }, username: given.username, displayName: given.name || given.username, enabled: true });
          const id = user.metadata.name;
          if (roleMay) await post(v1('', 'management.cattle.io.globalrolebinding'), { metadata: { generateName: 'grb-' }, userName: id, globalRoleName: given.role });
          const answer = await post(`/v3/users/${encodeURIComponent(id)}?action=setpassword`, { generate: true, mustChangePassword: true });
          close({ name: given.username, password: answer.password });
        } catch (failed) {
          busy = false;
          error = /** @type {any} */ (failed).message;
          redraw();
        }
      };
      const field = (/** @type {string} */ label, /** @type {'username' | 'name'} */ name, /** @type {any} */ more) => h('label', { class: 'field' }, h('span', null, label), h('input', { name, value: given[name], autocomplete: 'off', spellcheck: 'false', oninput: (/** @type {any} */ e) => { given[name] = e.target.value; }, ...more }));
      return h('form', { onsubmit: submit }, h('h2', null, 'New user'), h('div', { class: 'dialog-body' }, field('User name', 'username', { required: true, autofocus: true }), field('Name', 'name', {}),
        roleMay ? h('label', { class: 'field' }, h('span', null, 'Role'), h('select', { value: given.role, onchange: (/** @type {any} */ e) => { given.role = e.target.value; } }, [['user', 'Makes clusters, and owns those'], ['user-base', 'Uses what is shared with them'], ['auditor', 'Reads everything but secrets'], ['admin', 'Everything']].map(([id, note]) => h('option', { key: id, value: id }, `${id} · ${note}`)))) : null,
        error ? h('p', { class: 'error', role: 'alert' }, error) : null), h('div', { class: 'act' }, button({ label: 'Cancel', run: () => close() }), button({ label: 'Create user', kind: 'primary', type: 'submit', disabled: busy })));
    }, { label: 'New user' });
    if (made) showOnce(made.name, made.password);
  }

  /** @param {any} user */
  function actions(user) {
    const name = user.username || user.metadata.name;
    const items = [];
    if (may(user, 'update')) {
      items.push({ label: user.enabled === false ? 'Enable' : 'Disable …', icon: 'key', run: () => user.enabled === false ? change(user, true) : confirm({ title: `Disable ${name}?`, action: 'Disable', danger: true, body: h('p', null, 'All their sessions and tokens end now.'), run: () => mergePatch(v1('', USER, user.id), { enabled: false }) }) });
      items.push({ label: 'New password …', icon: 'refresh', run: () => confirm({ title: `New password for ${name}?`, action: 'Make one', body: h('p', null, 'The one they have stops working. The new one is shown to you once.'), run: async () => {
        const answer = await post(`/v3/users/${encodeURIComponent(user.metadata.name)}?action=setpassword`, { generate: true, mustChangePassword: true });
        setTimeout(() => showOnce(name, answer.password));
      } }) });
    }
    if (may(user, 'remove') && user.metadata.name !== ctx.app.user.id) items.push({ label: 'Delete …', icon: 'close', danger: true, run: () => confirm({ title: `Delete ${name}?`, action: 'Delete user', danger: true, typed: name, body: h('p', null, 'Their tokens and roles go with them. Clusters they made stay.'), run: () => del(v1('', USER, user.id)) }) });
    return items;
  }

  /** @param {any} user @param {boolean} enabled */
  const change = (user, enabled) => mergePatch(v1('', USER, user.id), { enabled }).catch((error) => toast(error.message, 'bad'));

  return {
    title: 'Users',
    render() {
      const people = users.items.filter(isPerson);
      const rolesOf = (/** @type {any} */ user) => (roles?.items || []).filter((/** @type {any} */ one) => one.userName === user.metadata.name).map((/** @type {any} */ one) => one.globalRoleName).join(', ');
      return [
        pageHead({ title: 'Users', sub: users.phase === 'ready' ? `${people.length} ${people.length === 1 ? 'person' : 'people'}` : null, actions: mayCreate(ctx.app.schema(USER)) ? button({ label: 'New user …', icon: 'plus', kind: 'primary', run: create, id: 'new-user' }) : null }),
        h('section', { class: 'card table-card' }, phase(users, () => people.length ? h('table', { class: 'rows still', 'aria-label': 'Users' }, h('thead', null, h('tr', null, h('th', { scope: 'col', class: 'c-state' }, 'State'), h('th', { scope: 'col' }, 'User'), h('th', { scope: 'col', class: 'p2 c-roles' }, 'Roles'), h('th', { scope: 'col', class: 'p3 c-age' }, 'Age'), h('th', { scope: 'col', class: 'c-act' }, h('span', { class: 'visually-hidden' }, 'Actions')))),
          h('tbody', null, people.map((/** @type {any} */ user) => {
            const items = actions(user);
            return h('tr', { key: user.id }, h('td', { class: 'c-state' }, user.enabled === false ? badge('off', 'Disabled') : badge('ok', 'Enabled')), h('td', null, h('b', { class: 'n' }, user.username || user.metadata.name), h('span', { class: 'sub' }, user.displayName || '')), h('td', { class: 'p2' }, rolesOf(user)), h('td', { class: 'p3 muted' }, ageOf(user.metadata.creationTimestamp)),
              h('td', { class: 'c-act' }, items.length ? button({ icon: 'more', label: '', title: `Actions for ${user.username || user.metadata.name}`, kind: 'square', run: (event) => openMenu(/** @type {Element} */ (event.currentTarget), items) }) : null));
          }))) : empty({ title: 'No users', icon: 'people' }))),
      ];
    },
  };
}
