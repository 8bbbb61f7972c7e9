// The way into a cluster, what is known of it here, and which kinds it has.

import { get } from '../../core/api.js';
import { h } from '../../core/dom.js';
import { WORKLOADS, collectionAllows, kindHref } from '../../core/kinds.js';
import { MANAGEMENT_CLUSTER, conditionOf } from '../../core/objects.js';
import { to } from '../../core/router.js';
import { empty, failure, pageHead, skeleton, tabs } from '../../parts/basics.js';

/** Kinds of a cluster, for as long as going from page to page takes. @type {Map<string, {at: number, schemas: Map<string, any>}>} */
const known = new Map();
const FRESH = 30_000;

/** @param {any} ctx */
export function explored(ctx) {
  const id = ctx.params.cluster;
  const root = `/k8s/clusters/${encodeURIComponent(id)}`;
  // The server's own API is no cluster that connects.
  const management = id !== 'local' && ctx.app.schema(MANAGEMENT_CLUSTER) ? ctx.object({ type: MANAGEMENT_CLUSTER, id }) : null;
  const where = {
    id, root, management,
    /** @type {Map<string, any> | null} */
    schemas: known.get(id)?.schemas || null,
    /** @type {any} */
    error: null,
    name: () => (id === 'local' ? 'This server' : management?.item?.spec?.displayName || id),
    connected: () => !management || management.phase !== 'ready' || conditionOf(management.item, 'Connected')?.status === 'True',
    crumbs: (/** @type {any[]} */ ...more) => [h('a', { href: to('clusters') }, 'Clusters'), ' / ', h('a', { href: to('explore', id) }, where.name()), ...more],
    schema: (/** @type {string} */ type) => where.schemas?.get(type),
    /** Whether objects of a kind can be listed. @param {string} type */
    lists: (type) => collectionAllows(where.schema(type), 'GET'),
    async read() {
      try {
        const answer = await get(`${root}/v1/schemas`);
        where.schemas = new Map(answer.data.map((/** @type {any} */ one) => [one.id, one]));
        known.set(id, { at: Date.now(), schemas: where.schemas });
        where.error = null;
      } catch (error) {
        where.error = error;
        if (/** @type {any} */ (error).passing) ctx.later('schemas', 3000, () => where.read());
      }
      ctx.redraw();
    },
  };
  if (Date.now() - (known.get(id)?.at ?? 0) > FRESH) where.read();
  return where;
}

/** A cluster that cannot be reached. @param {any} where */
export const away = (where) => {
  const condition = conditionOf(where.management?.item, 'Connected');
  return h('div', { class: 'cause warn' }, h('div', null, h('b', null, `${where.name()} is not connected`), h('p', null, condition?.message || 'Its agent has not been heard from. What was last known is on the page of the cluster.')));
};

/** Places of the explorer that the caller may look at. @param {any} where @returns {[string, string, string][]} */
function places(where) {
  const workload = WORKLOADS.find((type) => where.lists(type));
  /** @type {[string, string, string | undefined][]} */
  const all = [['nodes', 'Nodes', 'node'], ['workloads', 'Workloads', workload], ['pod', 'Pods', 'pod'], ['service', 'Services', 'service'], ['configmap', 'Config maps', 'configmap'], ['secret', 'Secrets', 'secret'], ['certificates', 'Certificates', 'secret'], ['event', 'Events', 'event']];
  /** @type {[string, string, string][]} */
  const found = [['overview', 'Overview', to('explore', where.id)]];
  for (const [id, label, type] of all) if (type && where.lists(type)) found.push([id, label, id === 'certificates' ? to('explore', where.id, id) : kindHref(where.id, type)]);
  found.push(['kinds', 'All kinds', `${to('explore', where.id)}/kinds`]);
  return found;
}

/**
 * A page of the explorer: where one is, and what is there once the kinds of the cluster are known.
 * @param {any} where @param {{current: string, head: any, body: () => any}} page
 */
export function explorer(where, page) {
  return [
    pageHead({ crumbs: where.crumbs(), ...page.head }),
    where.connected() ? null : away(where),
    where.schemas ? tabs(places(where), page.current) : null,
    where.schemas ? page.body() : where.error ? (where.connected() ? h('section', { class: 'card' }, failure(where.error, where.read)) : empty({ title: 'Nothing is known of what is in it', text: 'It is read from the cluster itself, once its agent is back.' })) : h('section', { class: 'card' }, skeleton(6)),
  ];
}
