// Objects of one kind in a cluster, by the columns the kind itself has.

import { del, post, v1 } from '../../core/api.js';
import { h } from '../../core/dom.js';
import { WORKLOADS, cellText, cellsOf, collectionAllows, groupsOf, hasState, holdsData, kindHref, nativePath, objectHref, titleOf } from '../../core/kinds.js';
import { STATE_FILTERS, may, quoted } from '../../core/objects.js';
import { to } from '../../core/router.js';
import { ageOf, button, card, empty, stateBadge } from '../../parts/basics.js';
import { Table, filterBar, nothing, sortOf } from '../../parts/table.js';
import { YamlEdit } from '../../parts/yaml-edit.js';
import { nameCell } from '../clusters.js';
import { explored, explorer } from './where.js';

/** Which tab of the explorer a kind belongs to. @param {string} type */
const tabOf = (type) => (WORKLOADS.includes(type) ? 'workloads' : ['pod', 'service', 'configmap', 'secret', 'event'].includes(type) ? type : 'kinds');

/** Rows of some kinds say nothing with their state unless something is wrong. @param {any} row */
const worthSaying = (row) => Boolean(row.metadata.state?.error || row.metadata.state?.transitioning || row.status?.conditions?.length || row.status?.phase);

/** @param {any} where @param {string} type @returns {import('../../parts/table.js').Column[]} */
export function columnsFor(where, type) {
  const schema = where.schema(type);
  const href = (/** @type {any} */ row) => objectHref(where.id, type, row.id);
  const own = schema?.attributes?.group?.includes('.') && !schema.attributes.group.endsWith('.k8s.io');
  /** @type {import('../../parts/table.js').Column[]} */
  const columns = [];
  if (hasState(type) || own) columns.push({ id: 'state', label: 'State', class: 'c-state', fixed: true, sort: '-metadata.state.error,-metadata.state.transitioning,metadata.state.name', draw: (row) => (hasState(type) || worthSaying(row) ? stateBadge(row) : '') });
  const cells = cellsOf(schema);
  const events = type === 'event' || type === 'events.k8s.io.event';
  const says = (/** @type {any} */ row, /** @type {string} */ label) => cellText(row, /** @type {any} */ (cells.find((cell) => cell.label === label) || { place: -1 }));
  if (!cells.some((cell) => cell.role === 'name') || events) {
    columns.push({ id: 'object', label: events ? 'Object' : 'Name', sort: events ? 'involvedObject.name' : 'metadata.name', fixed: true, draw: (row) => [h('a', { class: 'n', href: href(row) }, (events && says(row, 'Object')) || row.metadata.name), h('span', { class: 'sub', title: events ? says(row, 'Message') : null }, events ? says(row, 'Message') : row.metadata.namespace || '')] });
  }
  let shown = 0;
  for (const cell of cells) {
    if (events && ['Object', 'Message', 'Name'].includes(cell.label)) continue;
    if (cell.role === 'name') columns.push({ id: 'name', label: 'Name', sort: 'metadata.namespace,metadata.name', fixed: true, draw: (row) => [nameCell(row, href(row)), row.metadata.namespace && !row.metadata.state?.message ? h('span', { class: 'sub' }, row.metadata.namespace) : null] });
    else if (cell.role === 'age') columns.push({ id: 'age', label: 'Age', class: 'c-age', priority: 3, sort: cell.sort, usual: cell.usual, draw: (row) => h('span', { class: 'muted' }, ageOf(row.metadata.creationTimestamp)) });
    else {
      if (cell.usual) shown += 1;
      columns.push({ id: cell.id, label: cell.label, class: 'c-mid', priority: shown > 3 ? 3 : 2, sort: cell.sort, usual: cell.usual, draw: (row) => h('span', { title: cellText(row, cell) || null }, cellText(row, cell)) });
    }
  }
  return columns;
}

/** Namespaces to choose from, or a field for one where they cannot be listed. @param {any} ctx @param {any} namespaces */
function namespaceChoice(ctx, namespaces) {
  const chosen = ctx.query.get('ns') || '';
  const names = (namespaces?.items || []).map((/** @type {any} */ one) => one.metadata.name);
  if (chosen && !names.includes(chosen)) names.unshift(chosen);
  const change = (/** @type {any} */ event) => ctx.setQuery({ ns: event.target.value.trim() });
  return h('label', { class: 'field-inline' }, h('span', null, 'Namespace'), namespaces
    ? h('select', { id: 'namespace', value: chosen, onchange: change }, h('option', { value: '' }, 'All'), names.map((/** @type {string} */ name) => h('option', { key: name, value: name }, name)))
    : h('input', { id: 'namespace', value: chosen, placeholder: 'All', autocomplete: 'off', spellcheck: 'false', onchange: change }));
}

/** @param {any} ctx */
export function kindPage(ctx) {
  const where = explored(ctx);
  const { type } = ctx.params;
  const table = new Table(ctx);
  const base = kindHref(where.id, type);
  const stated = hasState(type);
  /** @type {any} */
  let list = null;
  /** @type {any} */
  let namespaces = null;
  /** @type {import('../../parts/table.js').Column[]} */
  let columns = [];
  /** @type {YamlEdit | null} */
  let creating = null;

  function ask() {
    if (!where.schema(type)) return;
    columns = columnsFor(where, type);
    const q = ctx.query.get('q') || '';
    const filter = stated ? [...(STATE_FILTERS[ctx.query.get('state') || ''] || [])] : [];
    if (q) filter.push(type === 'event' ? `metadata.name~${quoted(q)},message~${quoted(q)},reason~${quoted(q)}` : `metadata.name~${quoted(q)}`);
    list?.stop();
    list = ctx.list({
      type, root: where.root, namespace: ctx.query.get('ns') || undefined, filter,
      // What is in a row; values of Secrets and the like stay where they are.
      include: ['metadata', 'status.conditions', 'status.phase'], exclude: ['metadata.annotations'],
      sort: sortOf(columns, ctx.query.get('sort') || '', type === 'event' ? '-lastTimestamp,-metadata.creationTimestamp' : 'metadata.namespace,metadata.name'),
    });
    if (!namespaces && where.schema(type).attributes?.namespaced && where.lists('namespace')) namespaces = ctx.list({ type: 'namespace', root: where.root, sort: 'metadata.name', include: ['metadata.name'] }, { size: 1000 });
  }

  function create() {
    const { group, version, kind, namespaced } = where.schema(type).attributes;
    const object = { apiVersion: group ? `${group}/${version}` : version, kind, metadata: { name: '', ...(namespaced ? { namespace: ctx.query.get('ns') || 'default' } : {}) } };
    /** @type {any} */
    let made = null;
    creating = new YamlEdit(ctx, {
      object, creating: true, cancel: base,
      check: (given) => post(`${nativePath(where.root, where.schema(type), given.metadata?.namespace)}?dryRun=All&fieldValidation=Strict`, given),
      save: async (given) => { made = await post(v1(where.root, type, given.metadata?.namespace || ''), given); },
      done: () => ctx.go(objectHref(where.id, type, made?.id || '')),
    });
  }

  /** @param {any} title */
  function body(title) {
    const schema = where.schema(type);
    if (!schema) return card('', empty({ title: 'No such kind', text: `${type} is not a kind of this cluster, or it is not for you to see.`, actions: button({ label: 'All kinds', href: `${to('explore', where.id)}/kinds` }) }));
    if (ctx.query.get('new') === '1' && collectionAllows(schema, 'POST')) {
      if (!creating) create();
      return creating?.draw();
    }
    creating = null;
    if (!list) ask();
    const filtered = Boolean(ctx.query.get('q') || ctx.query.get('state'));
    const siblings = WORKLOADS.includes(type) ? WORKLOADS.filter((one) => where.lists(one)) : [];
    return [
      siblings.length ? h('nav', { class: 'chips card-gap', 'aria-label': 'Kinds of workloads' }, siblings.map((one) => h('a', { key: one, class: 'chip', href: kindHref(where.id, one), 'aria-current': one === type ? 'page' : null }, titleOf(where.schema(one))))) : null,
      filterBar(ctx, {
        placeholder: type === 'event' ? 'Filter' : 'Filter by name', chips: stated ? [['broken', 'Not well'], ['changing', 'Changing'], ['ready', 'Ready']] : [],
        more: schema.attributes?.namespaced ? namespaceChoice(ctx, namespaces) : null, count: list.phase === 'ready' ? `${list.count} ${list.count === 1 ? 'object' : 'objects'}` : '', columns: table.chooser(type, columns),
      }),
      table.draw({
        // A column of states that say nothing is none.
        list, columns: stated || list.items.some(worthSaying) ? columns : columns.filter((one) => one.id !== 'state'), name: type, href: (row) => objectHref(where.id, type, row.id), label: title,
        bulk: [{
          label: 'Delete', danger: true, may: (row) => may(row, 'remove'), run: (row) => del(v1(where.root, type, row.id)),
          ask: (rows) => ({ title: `Delete ${rows.length} ${rows.length === 1 ? titleOf(schema, true).toLowerCase() : title.toLowerCase()}?`, action: 'Delete', typed: holdsData(type) ? 'delete' : undefined, body: [h('ul', { class: 'mono small' }, rows.slice(0, 10).map((row) => h('li', { key: row.id }, row.id)), rows.length > 10 ? h('li', null, `and ${rows.length - 10} more`) : null), type === 'namespace' ? h('p', null, 'Everything in them is deleted too.') : null] }),
        }],
        empty: nothing(filtered, ctx, empty({ title: `No ${title.toLowerCase()}`, text: ctx.query.get('ns') ? `There are none in ${ctx.query.get('ns')}.` : 'The cluster has none that you may see.' })),
      }),
    ];
  }

  return {
    title: () => `${titleOf(where.schema(type) || { id: type })} of ${where.name()}`,
    onQuery: ask,
    render() {
      const schema = where.schema(type);
      const title = titleOf(schema || { id: type });
      const kind = tabOf(type) === 'kinds' ? schema?.attributes?.group || '' : '';
      return explorer(where, {
        current: tabOf(type), head: { title, sub: kind ? h('span', { class: 'mono' }, `${kind}/${schema.attributes.version}`) : null, actions: collectionAllows(schema, 'POST') && type !== 'event' && ctx.query.get('new') !== '1' ? button({ label: 'Create', icon: 'plus', href: `${base}?new=1`, id: 'create' }) : null },
        body: () => body(title),
      });
    },
  };
}

/** Every kind the cluster has. @param {any} ctx */
export function kindsPage(ctx) {
  const where = explored(ctx);
  return {
    title: () => `Kinds of ${where.name()}`,
    render: () => explorer(where, {
      current: 'kinds', head: { title: 'All kinds', sub: 'Everything the API of the cluster has and you may see; what was added to it first.' },
      body: () => {
        const q = (ctx.query.get('q') || '').toLowerCase();
        const groups = groupsOf(where.schemas?.values() || []).map(([group, kinds]) => /** @type {[string, any[]]} */ ([group, kinds.filter((one) => `${one.attributes.kind} ${group}`.toLowerCase().includes(q))])).filter(([, kinds]) => kinds.length);
        return [
          filterBar(ctx, { placeholder: 'Filter kinds', chips: [], count: '' }),
          groups.length ? groups.map(([group, kinds]) => h('section', { class: 'card', key: group }, h('h2', { class: 'mono' }, group), h('div', { class: 'kind-list' }, kinds.map((one) => h('a', { key: one.id, href: kindHref(where.id, one.id) }, one.attributes.kind))))) : card('', empty({ title: 'No kind is called that' })),
        ];
      },
    }),
  };
}
