// What ends by itself: certificates, and tokens that go with them. The one that ends first stands first.

import { h } from '../../core/dom.js';
import { MACHINE, REGISTRATION_TOKEN } from '../../core/objects.js';
import { to } from '../../core/router.js';
import { absolute, span } from '../../core/time.js';
import { certificatesIn, expiry } from '../../core/x509.js';
import { ago, badge } from '../../parts/basics.js';

/** @typedef {{key: string, name: string, about: string, issuer: string, from: string, until: string, href: string, why?: string}} Row */

/** @param {string} [at] */
const time = (at) => Date.parse(at || '') || Infinity;

/**
 * What is known here of a cluster: its authority, certificates of its machines, the token machines register with.
 * @param {{management: any, machines: any[], tokens: any[]}} given @returns {Row[]}
 */
export function endingsOf({ management, machines, tokens }) {
  /** @type {Row[]} */
  const rows = certificatesIn(management?.status?.caCert).map((one, at) => ({ key: `authority ${at}`, name: 'Authority of the cluster', about: one.subject, issuer: one.issuer === one.subject ? 'itself' : one.issuer, from: one.from, until: one.until, href: '' }));
  for (const one of machines) {
    const until = one.status?.certificatesExpiryDate;
    if (until) rows.push({ key: `${MACHINE} ${one.id}`, name: one.metadata.name, about: 'certificates of its control plane', issuer: '', from: '', until, href: to('machines', one.metadata.namespace, one.metadata.name) });
  }
  for (const one of tokens) {
    const until = one.status?.expiresAt;
    if (until) rows.push({ key: `${REGISTRATION_TOKEN} ${one.id}`, name: one.metadata.name, about: 'token machines register with; another one takes its place', issuer: '', from: '', until, href: '' });
  }
  return rows;
}

/** Certificates in Secrets of a cluster; the first of a chain is the one that is shown to others. @param {any[]} secrets @param {(secret: any) => string} href @returns {Row[]} */
export const certificateRows = (secrets, href) => secrets.map((secret) => {
  const [one] = certificatesIn(secret.data?.['tls.crt']);
  const shared = { key: secret.id, name: secret.id, href: href(secret) };
  if (!one) return { ...shared, about: '', issuer: '', from: '', until: '', why: 'It holds no certificate that can be read.' };
  return { ...shared, about: one.names.length ? one.names.join(', ') : one.subject, issuer: one.issuer === one.subject ? 'itself' : one.issuer, from: one.from, until: one.until };
});

/** @param {Row[]} rows @param {string} label */
export function certificateTable(rows, label) {
  const head = (/** @type {string} */ word, /** @type {string} */ kind = '') => h('th', { scope: 'col', class: kind, key: word }, word);
  const now = Date.now();
  const sorted = [...rows].sort((a, b) => time(a.until) - time(b.until) || (a.name < b.name ? -1 : 1));
  return h('table', { class: 'rows still', 'aria-label': label }, h('thead', null, h('tr', null, head('State', 'c-state'), head('Name'), head('Issued by', 'p3 c-wide'), head('Expires', 'c-num'), head('Lifetime', 'p3 c-num'))),
    h('tbody', null, sorted.map((row) => {
      const state = expiry(row.until, now);
      const about = row.why || row.about;
      return h('tr', { key: row.key }, h('td', { class: 'c-state' }, badge(state.tone, state.word, absolute(row.until) || undefined)), h('td', null, row.href ? h('a', { class: 'n', href: row.href }, row.name) : h('b', { class: 'n' }, row.name), h('span', { class: 'sub', title: about || null }, about)),
        h('td', { class: 'p3 c-wide', title: row.issuer || null }, row.issuer), h('td', { class: 'c-num' }, ago(row.until)), h('td', { class: 'p3 c-num muted' }, row.from ? span((time(row.until) - time(row.from)) / 1000) : ''));
    })));
}
