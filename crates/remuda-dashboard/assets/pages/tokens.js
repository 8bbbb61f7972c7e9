// Tokens and sessions of who is logged in: what they are, and an end to each.

import { agentName } from '../core/access.js';
import { del, get, mayDo, post } from '../core/api.js';
import { h } from '../core/dom.js';
import { USER } from '../core/objects.js';
import { ago, badge, button, empty, failure, pageHead, skeleton } from '../parts/basics.js';
import { confirm, copy, openDialog, toast } from '../parts/layers.js';
import { filterBar } from '../parts/table.js';

const DAY = 86_400_000;
/** @type {Record<string, string>} */
const KINDS = { session: 'Session', api: 'Token', kubeconfig: 'Kubeconfig' };

/** @param {any} ctx */
export function tokensPage(ctx) {
  /** @type {any[] | null} */
  let tokens = null;
  /** @type {any} */
  let error = null;
  /** Whether the caller may see those of others. */
  let mayAll = false;
  let asked = false;
  const users = ctx.app.schema(USER) ? ctx.list({ type: USER, include: ['metadata.name', 'username'] }, { size: 5000 }) : null;
  const nameOf = (/** @type {string} */ id) => (users?.items || []).find((/** @type {any} */ one) => one.metadata.name === id)?.username || id;
  const everybody = () => mayAll && ctx.query.get('all') === '1';
  const read = async () => {
    asked = everybody();
    try {
      tokens = (await get(asked ? '/v3/tokens?userId=' : '/v3/tokens')).data.sort((/** @type {any} */ a, /** @type {any} */ b) => (a.created < b.created ? 1 : -1));
      error = null;
    } catch (failed) {
      error = failed;
    }
    ctx.redraw();
  };
  mayDo('', { verb: 'list', group: 'management.cattle.io', resource: 'tokens' }).then((answer) => { mayAll = answer; }, () => {}).then(read);
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
    title: token.current ? 'End this session?' : token.kind === 'session' ? 'End that session?' : 'Revoke this token?', danger: true, action: token.current ? 'Log out' : token.kind === 'session' ? 'End session' : 'Revoke',
    body: h('p', null, token.current ? 'It is the one you are using.' : `${token.description || token.name}: whoever uses it is refused from now on.`),
    run: async () => {
      if (token.current) return ctx.app.logout();
      await del(`/v3/tokens/${encodeURIComponent(token.name)}`);
      toast('Revoked');
      await read();
    },
  });

  const others = () => (tokens || []).filter((one) => one.kind === 'session' && !one.current && !one.expired && one.userId === ctx.app.user.id);
  const endOthers = () => confirm({
    title: 'End all your other sessions?', danger: true, action: 'End them',
    body: h('p', null, `${others().length} ${others().length === 1 ? 'session ends' : 'sessions end'} now, wherever ${others().length === 1 ? 'it is' : 'they are'} open. Tokens for programs stay good.`),
    run: async () => {
      await post('/v3/tokens?action=revokeothers', {});
      toast('Your other sessions have ended');
      await read();
    },
  });

  const badgeOf = (/** @type {any} */ token) => (token.expired ? badge('off', 'Expired') : token.enabled === false ? badge('off', 'Disabled') : token.current ? badge('ok', 'This session') : badge('ok', 'Good'));
  const col = (/** @type {string} */ label, /** @type {string} */ kind = '') => h('th', { scope: 'col', class: kind, key: label }, label);

  /** @param {any[]} shown */
  const table = (shown) => h('table', { class: 'rows still', 'aria-label': 'Tokens' },
    h('thead', null, h('tr', null, col('State', 'c-state'), col('What for'), everybody() ? col('Whose', 'p2 c-num') : null, col('Kind', 'p2 c-num'), col('Used', 'p2 c-num'), col('Ends', 'p2 c-num'), h('th', { scope: 'col', class: 'c-act wide-act' }, h('span', { class: 'visually-hidden' }, 'Actions')))),
    h('tbody', null, shown.map((token) => h('tr', { key: token.name }, h('td', { class: 'c-state' }, badgeOf(token)), h('td', null, h('b', { class: 'n' }, token.description || token.name), h('span', { class: 'sub', title: token.userAgent || null }, [token.clusterId && `for ${token.clusterId}`, token.address, agentName(token.userAgent)].filter(Boolean).join(' · ') || token.name)),
      everybody() ? h('td', { class: 'p2 c-num', title: token.userId }, nameOf(token.userId)) : null, h('td', { class: 'p2 c-num' }, KINDS[token.kind] || token.kind || ''), h('td', { class: 'p2 c-num muted' }, ago(token.lastUsedAt) || 'never'), h('td', { class: 'p2 c-num muted' }, token.expiresAt ? ago(token.expiresAt) : 'never'), h('td', { class: 'c-act wide-act' }, button({ label: token.current ? 'Log out' : token.kind === 'session' ? 'End' : 'Revoke', title: `${token.kind === 'session' ? 'End' : 'Revoke'} ${token.description || token.name}`, run: () => revoke(token) }))))));

  return {
    title: 'Tokens',
    onQuery: () => { if (asked !== everybody()) read(); },
    render() {
      const kind = ctx.query.get('state') || '';
      const q = (ctx.query.get('q') || '').toLowerCase();
      const shown = (tokens || []).filter((token) => (!kind || token.kind === kind) && [token.description, token.name, token.address, token.clusterId, everybody() && nameOf(token.userId)].some((text) => String(text || '').toLowerCase().includes(q)));
      return [
        pageHead({ title: 'Tokens and sessions', sub: everybody() ? 'Of everybody on this server.' : 'Yours. Kubeconfigs and command lines you logged in with are among them.', actions: [
          others().length && !everybody() ? button({ label: 'End other sessions …', id: 'end-others', run: endOthers }) : null, button({ label: 'New token …', icon: 'plus', kind: 'primary', run: create, id: 'new-token' })] }),
        filterBar(ctx, { placeholder: 'Filter', chips: Object.entries(KINDS).map(([id, word]) => [id, `${word}s`]), count: tokens ? `${shown.length} of ${tokens.length}` : '', more: mayAll ? h('button', { type: 'button', class: 'chip', 'aria-pressed': String(everybody()), onclick: () => ctx.setQuery({ all: everybody() ? '' : '1' }) }, 'Everybody’s') : null }),
        h('section', { class: 'card table-card' }, error ? failure(error, read) : !tokens ? skeleton(5) : !shown.length ? empty({ title: tokens.length ? 'Nothing fits the filter' : 'No tokens', icon: 'key' }) : table(shown)),
      ];
    },
  };
}
