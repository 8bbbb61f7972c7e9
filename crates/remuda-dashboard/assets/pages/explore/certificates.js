// Certificates in Secrets of a cluster, by when they end. Only their public half is read: keys stay in the cluster.

import { h } from '../../core/dom.js';
import { objectHref } from '../../core/kinds.js';
import { SECRET } from '../../core/access.js';
import { empty, phase } from '../../parts/basics.js';
import { filterBar, nothing } from '../../parts/table.js';
import { expiry } from '../../core/x509.js';
import { certificateRows, certificateTable } from '../parts/certificates.js';
import { explored, explorer } from './where.js';

/** @param {any} ctx */
export function certificatesPage(ctx) {
  const where = explored(ctx);
  /** @type {any} */
  let list = null;
  const begin = () => (list ??= ctx.list({ type: SECRET, root: where.root, filter: ['type="kubernetes.io/tls"'], sort: 'metadata.namespace,metadata.name', include: ['metadata.name', 'metadata.namespace', 'data[tls.crt]'] }, { size: 2000 }));
  return {
    title: () => `Certificates of ${where.name()}`,
    render: () => explorer(where, {
      current: 'certificates', head: { title: 'Certificates', sub: 'In Secrets of this cluster. Those of the cluster itself are on its page.' },
      body: () => {
        if (!where.lists(SECRET)) return empty({ title: 'Secrets of this cluster are not for you to see', icon: 'lock' });
        begin();
        const q = (ctx.query.get('q') || '').toLowerCase();
        const soon = ctx.query.get('state') === 'soon';
        const rows = certificateRows(list.items, (secret) => objectHref(where.id, SECRET, secret.id));
        const shown = rows.filter((row) => `${row.name} ${row.about} ${row.issuer}`.toLowerCase().includes(q) && (!soon || expiry(row.until, Date.now()).tone !== 'ok'));
        return [
          filterBar(ctx, { placeholder: 'Filter by name', chips: [['soon', 'Needs you']], count: list.phase === 'ready' ? `${shown.length} of ${list.count}` : '' }),
          h('section', { class: 'card table-card' }, phase(list, () => (shown.length ? certificateTable(shown, 'Certificates') : nothing(Boolean(q || soon), ctx, empty({ title: 'No certificates', icon: 'shield', text: 'Secrets of type kubernetes.io/tls appear here, with when they expire.' }))))),
        ];
      },
    }),
  };
}
