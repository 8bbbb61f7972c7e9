// Tokens and sessions of who is logged in: what they are, and an end to each.

import { del, get, post } from '../core/api.js';
import { h } from '../core/dom.js';
import { ago, badge, button, empty, failure, pageHead, skeleton } from '../parts/basics.js';
import { confirm, copy, openDialog, toast } from '../parts/layers.js';

const DAY = 86_400_000;

/** @param {any} ctx */
export function tokensPage(ctx) {
  /** @type {any[] | null} */
  let tokens = null;
  /** @type {any} */
  let error = null;
  const read = async () => {
    try {
      tokens = (await get('/v3/tokens')).data.sort((/** @type {any} */ a, /** @type {any} */ b) => (a.created < b.created ? 1 : -1));
      error = null;
    } catch (failed) {
      error = failed;
    }
    ctx.redraw();
  };
  read();
  const timer = setInterval(() => document.hidden || read(), 30_000);
  ctx.onStop(() => clearInterval(timer));

  async function create() {
    const given = { description: '', days: '90' };
    let wrong = '';
    const made = await openDialog((close, redraw) => h('form', { onsubmit: async (/** @type {Event} */ event) => {
      event.preventDefault();
      try {
        close(await post('/v3/tokens', { description: given.description, ttl: Number(given.days) * DAY }));
      } catch (failed) {
        wrong = /** @type {any} */ (failed).message;
        redraw();
      }
    } }, h('h2', null, 'New token'), h('div', { class: 'dialog-body' },
      h('p', { class: 'muted' }, 'Whoever has it may do what you may.'),
      h('label', { class: 'field' }, h('span', null, 'What it is for'), h('input', { name: 'description', value: given.description, autofocus: true, autocomplete: 'off', oninput: (/** @type {any} */ e) => { given.description = e.target.value; } })),
      h('label', { class: 'field' }, h('span', null, 'Good for'), h('select', { value: given.days, onchange: (/** @type {any} */ e) => { given.days = e.target.value; } }, [['1', 'a day'], ['30', '30 days'], ['90', '90 days']].map(([days, label]) => h('option', { key: days, value: days }, label)))),
      wrong ? h('p', { class: 'error', role: 'alert' }, wrong) : null), h('div', { class: 'act' }, button({ label: 'Cancel', run: () => close() }), button({ label: 'Create token', kind: 'primary', type: 'submit' }))), { label: 'New token' });
    if (!made) return;
    read();
    openDialog((close) => h('div', null, h('h2', null, 'Your token'), h('div', { class: 'dialog-body' }, h('p', null, 'It is shown this once.'), h('code', { class: 'mono secret-once' }, made.token)), h('div', { class: 'act' }, button({ label: 'Copy', icon: 'copy', run: () => copy(made.token) }), button({ label: 'Done', kind: 'primary', run: () => close() }))), { label: 'Your token', sticky: true });
  }

  /** @param {any} token */
  const revoke = (token) => confirm({
    title: token.current ? 'End this session?' : 'Revoke this token?', danger: true, action: token.current ? 'Log out' : 'Revoke',
    body: h('p', null, token.current ? 'It is the one you are using.' : `${token.description || token.name}: whoever uses it is refused from now on.`),
    run: async () => {
      if (token.current) return ctx.app.logout();
      await del(`/v3/tokens/${encodeURIComponent(token.name)}`);
      toast('Revoked');
      await read();
    },
  });

  const stateOf = (/** @type {any} */ token) => (token.expired ? badge('off', 'Expired') : token.enabled === false ? badge('off', 'Disabled') : token.current ? badge('ok', 'This session') : badge('ok', 'Good'));

  return {
    title: 'Tokens',
    render: () => [
      pageHead({ title: 'Tokens and sessions', sub: 'Yours. Kubeconfigs and command lines you logged in with are among them.', actions: button({ label: 'New token …', icon: 'plus', kind: 'primary', run: create, id: 'new-token' }) }),
      h('section', { class: 'card table-card' }, error ? failure(error, read) : !tokens ? skeleton(5) : !tokens.length ? empty({ title: 'No tokens', icon: 'key' })
        : h('table', { class: 'rows still', 'aria-label': 'Tokens' }, h('thead', null, h('tr', null, h('th', { scope: 'col', class: 'c-state' }, 'State'), h('th', { scope: 'col' }, 'What for'), h('th', { scope: 'col', class: 'p2 c-num' }, 'Kind'), h('th', { scope: 'col', class: 'p2 c-num' }, 'Used'), h('th', { scope: 'col', class: 'p2 c-num' }, 'Ends'), h('th', { scope: 'col', class: 'c-act wide-act' }, h('span', { class: 'visually-hidden' }, 'Actions')))),
          h('tbody', null, tokens.map((token) => h('tr', { key: token.name }, h('td', { class: 'c-state' }, stateOf(token)), h('td', null, h('b', { class: 'n' }, token.description || token.name), h('span', { class: 'sub', title: token.userAgent || null }, [token.address, token.userAgent].filter(Boolean).join(' · ') || token.name)),
            h('td', { class: 'p2' }, token.kind || ''), h('td', { class: 'p2 muted' }, ago(token.lastUsedAt) || 'never'), h('td', { class: 'p2 muted' }, token.expiresAt ? ago(token.expiresAt) : 'never'), h('td', { class: 'c-act wide-act' }, button({ label: token.current ? 'Log out' : 'Revoke', run: () => revoke(token) }))))))),
    ],
  };
}
