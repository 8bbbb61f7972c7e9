// Roles on this server, and who has them.

import { del, post, v1 } from '../core/api.js';
import { GLOBAL_ROLE, GLOBAL_ROLE_BINDING, holdersOf, ruleText } from '../core/access.js';
import { h } from '../core/dom.js';
import { objectHref } from '../core/kinds.js';
import { USER, may, mayCreate } from '../core/objects.js';
import { badge, button, empty, pageHead, phase } from '../parts/basics.js';
import { icon } from '../parts/icons.js';
import { confirm, openDialog, toast } from '../parts/layers.js';
import { isPerson } from './users.js';

/** @param {any} ctx */
export function rolesPage(ctx) {
  const roles = ctx.list({ type: GLOBAL_ROLE, sort: 'metadata.name' }, { size: 500 });
  const bindings = ctx.app.schema(GLOBAL_ROLE_BINDING) ? ctx.list({ type: GLOBAL_ROLE_BINDING }, { size: 5000 }) : null;
  const users = ctx.app.schema(USER) ? ctx.list({ type: USER, sort: 'username,metadata.name' }, { size: 2000 }) : null;
  const titleOf = (/** @type {any} */ role) => role.displayName || role.metadata.name;

  /** @param {any} role */
  const rules = (role) => openDialog((close) => h('div', null, h('h2', null, titleOf(role)), h('div', { class: 'dialog-body' }, role.description ? h('p', null, role.description) : null,
    h('ul', { class: 'rules small' }, (role.rules || []).map((/** @type {any} */ rule, /** @type {number} */ at) => h('li', { key: at }, ruleText(rule))), (role.inheritedClusterRoles || []).map((/** @type {string} */ one) => h('li', { key: one }, `${one} in every cluster`))), role.rules?.length || role.inheritedClusterRoles?.length ? null : h('p', { class: 'muted' }, 'It gives no rights.')),
  h('div', { class: 'act' }, button({ label: 'YAML', run: () => { close(); ctx.go(`${objectHref('local', GLOBAL_ROLE, role.metadata.name)}/yaml`); } }), button({ label: 'Close', kind: 'primary', run: () => close() }))), { label: `Rules of ${titleOf(role)}`, class: 'wide' });

  /** @param {any} role */
  function give(role) {
    const held = new Set(holdersOf(role.metadata.name, bindings?.items || [], []).map((one) => one.binding.userName));
    const free = (users?.items || []).filter((/** @type {any} */ one) => isPerson(one) && !held.has(one.metadata.name));
    let whom = free[0]?.metadata.name || '';
    let group = '';
    return confirm({
      title: `Give ${titleOf(role)} to somebody`, action: 'Give role',
      body: (/** @type {() => void} */ redraw) => [
        role.description ? h('p', null, role.description) : null,
        h('label', { class: 'field' }, h('span', null, 'Whom'), h('select', { name: 'user', value: whom, onchange: (/** @type {any} */ event) => { whom = event.target.value; redraw(); } }, free.map((/** @type {any} */ one) => h('option', { key: one.id, value: one.metadata.name }, one.username || one.displayName || one.metadata.name)), h('option', { value: '' }, 'A group of single sign-on …'))),
        whom ? null : h('label', { class: 'field' }, h('span', null, 'Group'), h('input', { name: 'group', value: group, placeholder: 'genericoidc_group://dev', autocomplete: 'off', spellcheck: 'false', oninput: (/** @type {any} */ event) => { group = event.target.value; } })),
      ],
      run: async () => {
        if (!whom && !group.trim()) throw new Error('Say whom, or which group.');
        await post(v1('', GLOBAL_ROLE_BINDING), { metadata: { generateName: 'grb-' }, globalRoleName: role.metadata.name, ...(whom ? { userName: whom } : { groupPrincipalName: group.trim() }) });
        toast('The role was given');
      },
    });
  }

  /** @param {any} role @param {{name: string, binding: any}} holder */
  const take = (role, holder) => confirm({
    title: `Take ${titleOf(role)} from ${holder.name}?`, danger: true, action: 'Take away',
    body: h('p', null, 'What they have open by this role ends now. Clusters they own stay theirs.'),
    run: () => del(v1('', GLOBAL_ROLE_BINDING, holder.binding.id)),
  });

  /** @param {any} role */
  function section(role) {
    const holders = bindings ? holdersOf(role.metadata.name, bindings.items, users?.items || []) : [];
    return h('section', { class: 'card', key: role.id },
      h('div', { class: 'card-head' }, h('h2', null, titleOf(role), h('span', { class: 'muted note mono' }, role.metadata.name), role.newUserDefault ? badge('off', 'New users have it') : null),
        h('div', { class: 'act' }, button({ label: 'Rules', run: () => rules(role) }), mayCreate(ctx.app.schema(GLOBAL_ROLE_BINDING)) && users ? button({ label: 'Give …', run: () => give(role), title: `Give ${titleOf(role)} to somebody` }) : null)),
      role.description ? h('p', { class: 'muted lead' }, role.description) : null,
      bindings ? (holders.length ? h('div', { class: 'labels' }, holders.map((holder) => h('span', { class: 'holder', key: holder.binding.id }, icon(holder.group ? 'cluster' : 'people', { size: 14 }), holder.name,
        may(holder.binding, 'remove') ? h('button', { type: 'button', class: 'ghost', title: `Take ${titleOf(role)} from ${holder.name}`, 'aria-label': `Take ${titleOf(role)} from ${holder.name}`, onclick: () => take(role, holder) }, icon('close', { size: 12 })) : null))) : h('p', { class: 'muted small' }, 'Nobody has it.')) : null);
  }

  return {
    title: 'Roles',
    render: () => [
      pageHead({ title: 'Roles', sub: 'On this server. Roles in one cluster are given with remuda user grant --cluster.' }),
      phase(roles, () => (roles.count ? roles.items.map(section) : empty({ title: 'No roles', icon: 'people' }))),
    ],
  };
}
