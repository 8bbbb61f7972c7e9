// Who is told what happens to the fleet.

import { del, mayDo, post, v1 } from '../core/api.js';
import { SECRET } from '../core/access.js';
import { h } from '../core/dom.js';
import { EVENT, may } from '../core/objects.js';
import { QUERY, TOPICS, WEBHOOKS, failureOf, keyOf, webhookOf, webhookSecret } from '../core/webhooks.js';
import { ageOf, ago, badge, button, empty, pageHead, phase } from '../parts/basics.js';
import { confirm, copy, openDialog, toast } from '../parts/layers.js';
import { timeOf } from './parts/evidence.js';

/** @param {any} ctx */
export function notificationsPage(ctx) {
  const secrets = ctx.list(QUERY, { size: 200 });
  const events = ctx.app.schema(EVENT) ? ctx.list({ type: EVENT, namespace: WEBHOOKS, filter: ['involvedObject.kind=Secret'], sort: '-lastTimestamp' }, { size: 100 }) : null;
  let allowed = false;
  mayDo('', { verb: 'create', resource: 'secrets', namespace: WEBHOOKS }).then((answer) => { allowed = answer; ctx.redraw(); }, () => {});

  async function create() {
    /** @type {import('../core/webhooks.js').Given} */
    const given = { name: '', url: '', topics: TOPICS.map(([id]) => id), after: '', authorities: '' };
    const key = keyOf(crypto.getRandomValues(new Uint8Array(32)));
    const field = (/** @type {string} */ label, /** @type {'name' | 'url' | 'after'} */ name, /** @type {string} */ hint, /** @type {any} */ more = {}) => h('label', { class: 'field' }, h('span', null, label), h('input', { name, value: given[name], autocomplete: 'off', spellcheck: 'false', oninput: (/** @type {any} */ event) => { given[name] = event.target.value; }, ...more }), hint ? h('span', { class: 'hint' }, hint) : null);
    const made = await confirm({
      title: 'New webhook', action: 'Create webhook',
      body: (/** @type {() => void} */ redraw) => [
        field('Name', 'name', '', { placeholder: 'ops', autofocus: true }),
        field('Address', 'url', 'Messages are posted there, signed. It is never shown again: it may hold a token of the receiver.', { placeholder: 'https://…', type: 'url' }),
        h('fieldset', { class: 'roles' }, h('legend', null, 'What is told'), TOPICS.map(([id, label, about]) => h('label', { class: 'check', key: id, title: about }, h('input', { type: 'checkbox', name: id, checked: given.topics.includes(id), onchange: () => { given.topics = TOPICS.map(([one]) => one).filter((one) => (one === id) !== given.topics.includes(one)); redraw(); } }), label))),
        field('Broken for', 'after', 'How long something is broken before it is told, such as 30s or 10m.', { placeholder: '2m' }),
        h('label', { class: 'field' }, h('span', null, 'Authorities of the receiver'), h('textarea', { name: 'authorities', rows: 3, class: 'mono', value: given.authorities, spellcheck: 'false', oninput: (/** @type {any} */ event) => { given.authorities = event.target.value; } }), h('span', { class: 'hint' }, 'Certificates in PEM. Without them those of the server’s system are trusted.')),
      ],
      run: async () => {
        if (!given.topics.length) throw new Error('Nothing would be told: choose something.');
        await post(v1('', SECRET, WEBHOOKS), webhookSecret(given, key));
        secrets.refresh();
      },
    });
    if (made) openDialog((close) => h('div', null, h('h2', null, `${given.name.trim()} was made`), h('div', { class: 'dialog-body' }, h('p', null, 'Messages are signed with this key. Give it to the receiver; it is shown this once.'), h('code', { class: 'mono secret-once' }, key)), h('div', { class: 'act' }, button({ label: 'Copy', icon: 'copy', run: () => copy(key) }), button({ label: 'Done', kind: 'primary', run: () => close() }))), { label: 'Key of the webhook', sticky: true });
  }

  /** @param {any} secret */
  const remove = (secret) => confirm({
    title: `Delete ${secret.metadata.name}?`, danger: true, action: 'Delete webhook', body: h('p', null, 'Its receiver is told nothing any more. What was told is forgotten: a webhook that is made anew is told of everything that is broken then.'),
    run: async () => { await del(v1('', SECRET, secret.id)); toast('The webhook was deleted'); },
  });

  /** @param {any} secret */
  function row(secret) {
    const { topics, after } = webhookOf(secret);
    const failed = failureOf(secret, events?.items || []);
    const names = topics.map((id) => TOPICS.find(([one]) => one === id)?.[1] || id).join(', ');
    return h('tr', { key: secret.id }, h('td', { class: 'c-state' }, failed ? badge('bad', 'Failing', failed.message) : badge('ok', 'Set up')),
      h('td', null, h('b', { class: 'n' }, secret.metadata.name), failed ? h('span', { class: 'why bad', title: failed.message }, failed.message, ' (', ago(timeOf(failed)), ')') : h('span', { class: 'sub', title: names }, names)),
      h('td', { class: 'p2 c-num' }, after), h('td', { class: 'p3 c-age muted' }, ageOf(secret.metadata.creationTimestamp)),
      h('td', { class: 'c-act wide-act' }, may(secret, 'remove') ? button({ label: 'Delete …', title: `Delete ${secret.metadata.name}`, run: () => remove(secret) }) : null));
  }

  return {
    title: 'Notifications',
    render: () => {
      const head = (/** @type {any} */ label, /** @type {string} */ kind = '') => h('th', { scope: 'col', class: kind }, label);
      return [
        pageHead({ title: 'Notifications', sub: 'Webhooks: who is told when something breaks, is well again, or will end.', actions: allowed ? button({ label: 'New webhook …', icon: 'plus', kind: 'primary', id: 'new-webhook', run: create }) : null }),
        h('section', { class: 'card table-card' }, phase(secrets, () => (secrets.count ? h('table', { class: 'rows still', 'aria-label': 'Webhooks' }, h('thead', null, h('tr', null, head('State', 'c-state'), head('Name'), head('Broken for', 'p2 c-num'), head('Age', 'p3 c-age'), head(h('span', { class: 'visually-hidden' }, 'Actions'), 'c-act wide-act'))), h('tbody', null, secrets.items.map(row)))
          : empty({ title: 'No webhooks yet', icon: 'bell', text: 'A webhook is told when a cluster or a machine breaks, is well again, or has something that ends soon: chat, on-call, a script of yours.' })))),
      ];
    },
  };
}
