// A cluster to make or to change: form and YAML of one object, judged by the server while one types.

import { CREDENTIALS, SECRET, credentialFields, credentialOf } from '../core/access.js';
import { ApiError, del, get, post, put } from '../core/api.js';
import { h } from '../core/dom.js';
import { fieldsOf, usableDrivers, withValue } from '../core/driver.js';
import { configRef, diff, draft, effects, errorsElsewhere, fieldErrors, neededConfigs, renamed, write } from '../core/edit.js';
import { CLUSTER, NODE_DRIVER, compareVersions, may, mayCreate, plain } from '../core/objects.js';
import { channels } from '../core/releases.js';
import { to } from '../core/router.js';
import { listPath } from '../core/store.js';
import { fromYaml, toYaml } from '../core/yaml.js';
import { button, card, empty, failure, pageHead, phase, skeleton } from '../parts/basics.js';
import { shape } from '../parts/icons.js';
import { openDialog, toast } from '../parts/layers.js';
import { SHOWN, clusterForm } from './parts/cluster-form.js';

const API = '/apis/provisioning.cattle.io/v1';
const CONFIGS = '/apis/rke-machine-config.cattle.io/v1';
const LOCAL_CONFIG = 'rke-machine-config.cattle.io.localconfig';

/** Where an object is written, without or with its name. @param {any} object @param {string} query @param {boolean} named */
const place = (object, query, named) =>
  `${API}/namespaces/${encodeURIComponent(object.metadata?.namespace || '')}/clusters${named ? `/${encodeURIComponent(object.metadata.name)}` : ''}?fieldValidation=Strict${query}`;

/** Newest version of each minor, both distributions. */
const releases = async () => (await channels()).map((one) => ({ id: one.latest, note: one.ends && Date.parse(one.ends) < Date.now() ? 'end of life' : '', distro: one.distro }))
  .sort((a, b) => (a.distro === b.distro ? compareVersions(a.id, b.id) : a.distro < b.distro ? -1 : 1));

/** The two sides and what the server says of them. @param {any} ctx @param {{editing: boolean, send: (object: any, query: string) => Promise<any>}} options */
function editor(ctx, { editing, send }) {
  const state = {
    /** @type {any} */ object: null,
    /** As it was. @type {any} */ before: null,
    text: '', syntax: '', /** @type {Map<string, string[]>} */ errors: new Map(), verdict: '', busy: false, touched: false,
    /** @type {{id: string, note: string}[]} */ versions: [], /** @type {string[]} */ namespaces: ['fleet-default'],
    /** @type {import('../core/driver.js').Driver[]} */ drivers: [], /** @type {{id: string, driver: string, note: string}[]} */ credentials: [],
    /** What configurations of pools say, by pool. @type {Record<string, Record<string, any>>} */ configs: {},
  };
  let turn = 0;
  providers(ctx).then((found) => {
    Object.assign(state, found);
    const pools = state.object?.spec?.rkeConfig?.machinePools;
    // The draft was begun before it was known which drivers there are.
    if (!editing && pools?.[0]?.machineConfigRef?.kind === '' && state.drivers.length) take(write(state.object, 'spec.rkeConfig.machinePools', pools.map((/** @type {any} */ pool) => ({ ...pool, machineConfigRef: configRef(state.object.metadata.name, pool.name, state.drivers[0].kind) }))));
    ctx.redraw();
  }, () => {});
  ctx.app.router.mayLeave = () => !state.touched || confirmLeave();
  releases().then((found) => {
    state.versions = found;
    const version = found.find((one) => !one.note)?.id;
    if (!editing && state.object?.spec?.rkeConfig && !state.object.spec.kubernetesVersion && version) take(write(state.object, 'spec.kubernetesVersion', version));
    ctx.redraw();
  });

  function confirmLeave() {
    // The browser's own question: it is asked once, for work that would be lost.
    return window.confirm('Leave without saving?');
  }

  /** @param {any} object */
  function take(object) {
    state.object = object;
    state.text = toYaml(object);
    state.syntax = '';
    judge();
  }

  /** Asks the server what it would say, a moment after the last key. */
  function judge() {
    const mine = (turn += 1);
    state.verdict = 'asking';
    ctx.redraw();
    ctx.later('judge', 350, async () => {
      const object = state.object;
      if (!object?.metadata?.name) {
        state.errors = new Map();
        state.verdict = 'incomplete';
        return ctx.redraw();
      }
      try {
        await send(object, '&dryRun=All');
        if (mine !== turn) return;
        state.errors = new Map();
        state.verdict = 'good';
      } catch (error) {
        if (mine !== turn) return;
        const passing = error instanceof ApiError && error.passing;
        state.errors = passing ? new Map() : fieldErrors(error);
        state.verdict = passing ? 'unknown' : 'refused';
      }
      ctx.redraw();
    });
  }

  /** @param {string} pool @param {import('../core/driver.js').Field} field @param {any} value */
  const setConfig = (pool, field, value) => {
    state.touched = true;
    state.configs = { ...state.configs, [pool]: withValue(state.configs[pool], field, value) };
    ctx.redraw();
  };
  const set = (/** @type {string} */ path, /** @type {any} */ value) => {
    state.touched = true;
    take(renamedIfNew(write(state.object, path, value)));
  };
  // Configurations of pools that exist keep their names.
  const renamedIfNew = (/** @type {any} */ object) => (editing ? object : renamed(object));

  function typed(/** @type {string} */ text) {
    state.touched = true;
    state.text = text;
    try {
      const object = fromYaml(text);
      if (!object || typeof object !== 'object' || Array.isArray(object)) throw new Error('line 1: this is no object');
      state.syntax = '';
      state.object = object;
      judge();
    } catch (error) {
      turn += 1;
      state.syntax = /** @type {any} */ (error).message;
      ctx.redraw();
    }
  }

  function verdict() {
    const elsewhere = errorsElsewhere(state.errors, SHOWN);
    if (state.syntax) return h('p', { class: 'verdict', role: 'alert' }, h('span', { class: 'bad bare' }, shape('bad')), h('span', null, `The YAML cannot be read. ${state.syntax}`));
    if (state.verdict === 'refused') return h('p', { class: 'verdict', role: 'alert' }, h('span', { class: 'bad bare' }, shape('bad')), h('span', null, elsewhere.length ? elsewhere.join(' ') : 'The server would refuse this; the fields say why.'));
    if (state.verdict === 'unknown') return h('p', { class: 'verdict' }, h('span', { class: 'warn bare' }, shape('warn')), 'The server cannot be asked right now.');
    if (state.verdict === 'good') return h('p', { class: 'verdict' }, h('span', { class: 'ok bare' }, shape('ok')), 'The server would take this.');
    return h('p', { class: 'verdict muted' }, state.verdict === 'incomplete' ? 'A name is missing.' : 'Asking the server …');
  }

  /** @param {any} top @param {any} actions */
  const view = (top, actions) => h('div', { class: 'split' },
    h('div', null, top, card('Cluster', state.syntax ? h('p', { class: 'muted' }, 'The form is back when the YAML can be read.') : clusterForm({ object: state.object, set, errors: state.errors, editing, versions: state.versions, namespaces: state.namespaces, drivers: state.drivers, credentials: state.credentials, configs: state.configs, setConfig, had: state.before?.spec?.rkeConfig?.machinePools?.length || 0 })), verdict(), h('div', { class: 'act' }, actions)),
    h('section', { class: 'card yaml-side' }, h('div', { class: 'card-head' }, h('h2', null, 'YAML'), h('span', { class: 'muted small' }, 'both sides are one object')),
      h('textarea', { class: 'code-edit', id: 'yaml', 'aria-label': 'YAML of the cluster', spellcheck: 'false', autocapitalize: 'none', value: state.text, oninput: (/** @type {any} */ event) => typed(event.target.value) })));

  return { state, take, view, ready: () => state.verdict === 'good' && !state.syntax && !state.busy };
}

/** Drivers with the fields of their machines, and credentials for them, as far as one may see them. @param {any} ctx */
async function providers(ctx) {
  const list = async (/** @type {any} */ query) => (ctx.app.schema(query.type) ? (await get(listPath(query, 1, 1000))).data : []);
  const [known, secrets] = await Promise.all([
    list({ type: NODE_DRIVER, sort: 'metadata.name' }),
    list({ type: SECRET, namespace: CREDENTIALS, sort: 'metadata.name', excludeValues: ['data'] }),
  ]);
  const drivers = usableDrivers(known, [...ctx.app.schemas.values()], (driver) => credentialFields(driver).map((one) => one.name));
  await Promise.all(drivers.map(async (driver) => { driver.fields = fieldsOf(await get(`/v3/schemas/${driver.name}config`), driver.credentialKeys); }));
  const credentials = secrets.flatMap((/** @type {any} */ secret) => {
    const of = credentialOf(secret);
    return of ? [{ id: `${CREDENTIALS}:${secret.metadata.name}`, driver: of.driver, note: secret.metadata.annotations?.['field.cattle.io/description'] || '' }] : [];
  });
  return { drivers, credentials };
}

/** Makes what a cluster refers to and then the cluster; what was made is taken back if that fails. @param {any} object @param {any} before @param {any} state @param {() => Promise<any>} save */
async function withConfigs(object, before, state, save) {
  const made = [];
  const base = (/** @type {string} */ kind) => `${CONFIGS}/namespaces/${encodeURIComponent(object.metadata.namespace)}/${state.drivers.find((/** @type {any} */ one) => one.kind === kind)?.plural || `${kind.toLowerCase()}s`}`;
  try {
    for (const config of neededConfigs(object, before, state.configs)) {
      try {
        await post(`${base(config.kind)}?fieldValidation=Strict`, config);
        made.push(`${base(config.kind)}/${encodeURIComponent(config.metadata.name)}`);
      } catch (error) {
        // One that is there already is used.
        if (/** @type {any} */ (error).status !== 409) throw error;
      }
    }
    return await save();
  } catch (error) {
    await Promise.allSettled(made.map((path) => del(path)));
    throw error;
  }
}

/** @param {any} ctx */
export function createPage(ctx) {
  const send = (/** @type {any} */ object, /** @type {string} */ query) => post(place(object, query, false), object);
  const edit = editor(ctx, { editing: false, send });
  const { state } = edit;
  const local = Boolean(ctx.app.schema(LOCAL_CONFIG)?.collectionMethods?.includes('POST') ?? ctx.app.schema(NODE_DRIVER));
  const kinds = /** @type {[string, string, string][]} */ ([
    ...(local ? [['local', 'On this host', 'Machines made of Linux namespaces']] : []),
    ['cloud', 'A provider', 'Servers a driver makes'],
    ['custom', 'Your servers', 'They join by a command'],
    ['import', 'Import', 'A cluster that exists'],
  ]);
  const asked = ctx.query.get('kind') || '';
  let kind = kinds.some(([id]) => id === asked) ? asked : kinds[0][0];
  const begin = () => edit.take(draft(kind, { config: kind === 'cloud' ? state.drivers[0]?.kind || '' : undefined, name: state.object?.metadata?.name || '', namespace: state.object?.metadata?.namespace || 'fleet-default', version: state.object?.spec?.kubernetesVersion || state.versions.find((one) => !one.note)?.id || '' }));
  begin();
  if (ctx.app.schema('management.cattle.io.fleetworkspace')) {
    get(listPath({ type: 'management.cattle.io.fleetworkspace', sort: 'metadata.name' }, 1, 100)).then((list) => {
      const names = list.data.map((/** @type {any} */ one) => one.metadata.name).filter((/** @type {string} */ one) => one !== 'fleet-local');
      if (names.length) state.namespaces = names;
      ctx.redraw();
    }, () => {});
  }

  const choose = (/** @type {string} */ id) => {
    kind = id;
    ctx.setQuery({ kind: id });
    begin();
  };

  async function save() {
    if (!edit.ready()) return;
    state.busy = true;
    ctx.redraw();
    const object = state.object;
    try {
      await withConfigs(object, null, state, () => send(object, ''));
      state.touched = false;
      const page = to('clusters', object.metadata.namespace, object.metadata.name);
      const made = kind === 'local' || kind === 'cloud';
      ctx.go(made ? page : `${page}/registration`);
      toast(made ? `${object.metadata.name} is being made` : `${object.metadata.name} waits for ${kind === 'import' ? 'its agent' : 'servers'}`);
    } catch (error) {
      state.errors = fieldErrors(error);
      state.verdict = 'refused';
    }
    state.busy = false;
    ctx.redraw();
  }

  return {
    title: 'Create cluster',
    render() {
      const head = pageHead({ title: kind === 'import' ? 'Import cluster' : 'Create cluster', crumbs: h('a', { href: to('clusters') }, 'Clusters') });
      if (!mayCreate(ctx.app.schema(CLUSTER))) return [head, empty({ title: 'You may not create clusters', text: 'Whoever runs this server can give you a role with that right.' })];
      const top = h('fieldset', { class: 'kinds card-gap' }, h('legend', { class: 'visually-hidden' }, 'Where its machines come from'), kinds.map(([id, label, note]) =>
        h('label', { class: 'kind', key: id }, h('input', { type: 'radio', name: 'kind', value: id, checked: kind === id, onchange: () => choose(id) }), h('b', null, label), h('span', null, note))));
      return [head, edit.view(top, [button({ label: 'Cancel', href: to('clusters') }), button({ label: state.busy ? 'Creating …' : kind === 'import' ? 'Import cluster' : 'Create cluster', kind: 'primary', disabled: !edit.ready(), run: save, id: 'save' })])];
    },
  };
}

/** @param {any} ctx */
export function editPage(ctx) {
  const { namespace, name } = ctx.params;
  const base = to('clusters', namespace, name);
  const cluster = ctx.object({ type: CLUSTER, id: `${namespace}/${name}` });
  const edit = editor(ctx, { editing: true, send });
  const { state } = edit;
  /** @type {any} */
  let raw = null;
  /** @type {any} */
  let error = null;

  // Rows of the list API leave out what is the server's own; what is written back has to have all of it.
  const load = async () => {
    try {
      raw = await get(place({ metadata: { name, namespace } }, '', true));
      error = null;
    } catch (failed) {
      error = failed;
    }
    ctx.redraw();
  };
  load();

  /** What a person edits: neither status nor what only the server writes. @param {any} object */
  const written = (object) => {
    const copy = plain(object);
    delete copy.status;
    for (const field of ['uid', 'creationTimestamp', 'generation', 'resourceVersion']) delete copy.metadata[field];
    return copy;
  };

  /** A status that changed meanwhile is no conflict; another spec is. @param {any} object @param {string} query @param {boolean} [again] */
  async function send(object, query, again = true) {
    const { generation, resourceVersion } = raw.metadata;
    try {
      return await put(place(object, query, true), { ...object, metadata: { ...object.metadata, resourceVersion } });
    } catch (failed) {
      if (/** @type {any} */ (failed).status !== 409 || !again) throw failed;
      const now = await get(place(object, '', true));
      if (now.metadata.generation !== generation) throw failed;
      raw = now;
      return send(object, query, false);
    }
  }

  async function save() {
    const object = state.object;
    state.busy = true;
    ctx.redraw();
    try {
      await withConfigs(object, state.before, state, () => send(object, ''));
      state.touched = false;
      return true;
    } finally {
      state.busy = false;
      ctx.redraw();
    }
  }

  async function review() {
    if (!edit.ready()) return;
    const lines = diff(toYaml(state.before), state.text);
    const done = effects(state.before, state.object);
    let error = '';
    const saved = await openDialog((close, redraw) => h('div', null, h('h2', null, `Change ${name}?`), h('div', { class: 'dialog-body' },
      h('div', { class: 'diff', tabindex: 0, 'aria-label': 'What changes' }, lines.map((line, at) => h('div', { key: at, class: line.kind }, `${line.kind === 'add' ? '+' : line.kind === 'cut' ? '-' : ' '} ${line.text}`))),
      done.length ? h('ul', { class: 'effects', 'aria-label': 'What it does to machines' }, done.map((one) => h('li', { key: one.text }, h('span', { class: `${one.tone} bare` }, shape(one.tone)), h('span', null, one.text)))) : null,
      h('p', { class: 'muted small' }, 'Versions change machines in place. A change of what machines are made of replaces them, one pool at a time.'),
      error ? h('p', { class: 'error', role: 'alert' }, error) : null),
    h('div', { class: 'act' }, button({ label: 'Back', run: () => close() }), button({ label: state.busy ? 'Saving …' : 'Save', kind: 'primary', id: 'confirm-save', disabled: state.busy, run: () => {
      save().then(() => close(true), (failed) => { error = failed.status === 409 ? 'The cluster was changed meanwhile. Go back, reload and edit again.' : failed.message; redraw(); });
      redraw();
    } }))), { label: 'Review the change', class: 'wide' });
    if (saved) {
      toast(`${name} was changed`);
      ctx.go(base);
    }
  }

  return {
    title: `Edit ${name}`,
    render() {
      const head = pageHead({ title: `Edit ${name}`, crumbs: [h('a', { href: to('clusters') }, 'Clusters'), ' / ', h('a', { href: base }, name)] });
      if (error) return [head, failure(error, load)];
      if (raw && !state.object) {
        state.before = written(raw);
        edit.take(structuredClone(state.before));
      }
      if (!cluster.item || !state.object) return [head, phase(cluster, () => skeleton(6))];
      if (!may(cluster.item, 'update')) return [head, empty({ title: 'You may not change this cluster' })];
      const stale = cluster.item.metadata.generation !== raw.metadata.generation && !state.busy;
      const changed = toYaml(state.before) !== state.text;
      return [head,
        stale ? h('div', { class: 'cause warn' }, shape('warn'), h('div', null, h('b', null, 'The cluster was changed by others while you edit.')), button({ label: 'Load it anew', run: () => { state.object = null; state.touched = false; raw = null; load(); } })) : null,
        edit.view(null, [button({ label: 'Cancel', href: base }), button({ label: 'Review and save …', kind: 'primary', disabled: !edit.ready() || !changed, run: review, id: 'save' })])];
    },
  };
}
