// The application: session, shell, routes, and what every page may use.

import { get, mayAsk, mayDo, whenExpired } from './core/api.js';
import { PATH as AUDIT } from './core/audit.js';
import { h, render, scheduler } from './core/dom.js';
import { Keys } from './core/keys.js';
import { CLUSTER, MACHINE, NODE_DRIVER, SETTING, USER, mayCreate } from './core/objects.js';
import { BASE, Router, match, to } from './core/router.js';
import { keep, kept } from './core/preferences.js';
import { applyPrefs, loadPrefs, logout, savePrefs, whoAmI } from './core/session.js';
import { Socket } from './core/socket.js';
import { LiveList, LiveObject } from './core/store.js';
import { ago, button, empty, failure, skeleton } from './parts/basics.js';
import { icon, logo } from './parts/icons.js';
import { openDialog, openMenu, toast } from './parts/layers.js';
import { openPalette } from './parts/palette.js';
import { loginForm, loginPage } from './pages/login.js';
import { homePage } from './pages/home.js';
import { clustersPage } from './pages/clusters.js';
import { clusterPage } from './pages/cluster.js';
import { machinesPage } from './pages/machines.js';
import { GLOBAL_ROLE, SECRET, configSchemas } from './core/access.js';
import { WEBHOOKS } from './core/webhooks.js';

/** Modules of pages that are not the first one: they are fetched while nothing else is to do, or when one is opened. */
const MODULES = {
  create: () => import('./pages/create.js'),
  machine: () => import('./pages/machine.js'),
  nodes: () => import('./pages/nodes.js'),
  overview: () => import('./pages/explore/overview.js'),
  kind: () => import('./pages/explore/kind.js'),
  object: () => import('./pages/explore/object.js'),
  certificates: () => import('./pages/explore/certificates.js'),
  users: () => import('./pages/users.js'),
  tokens: () => import('./pages/tokens.js'),
  settings: () => import('./pages/settings.js'),
  audit: () => import('./pages/audit.js'),
  roles: () => import('./pages/roles.js'),
  infrastructure: () => import('./pages/infrastructure.js'),
  operations: () => import('./pages/operations.js'),
  notifications: () => import('./pages/notifications.js'),
};

/**
 * A page whose module is fetched when it is opened.
 * @template T @param {() => Promise<T>} load @param {(loaded: T) => (ctx: any) => any} choose
 */
const later = (load, choose) => (/** @type {any} */ ctx) => {
  /** @type {any} */
  let page = null;
  /** @type {any} */
  let failed = null;
  let stopped = false;
  ctx.onStop(() => { stopped = true; });
  load().then((loaded) => { if (!stopped) page = choose(loaded)(ctx); }).catch((error) => { failed = error; }).then(ctx.redraw);
  const title = () => (typeof page?.title === 'function' ? page.title() : page?.title || '');
  // A browser does not ask again for a module that failed; a page that is loaded anew does, and has the newest program.
  return { title, onQuery: () => page?.onQuery?.(), commands: () => page?.commands?.() || [], render: () => (page ? page.render() : failed ? failure(failed, () => location.reload()) : skeleton(6)) };
};

/** One for each page, however many addresses it has: the next address of a page goes on with what is there. */
const LATER = {
  createPage: later(MODULES.create, (page) => page.createPage),
  editPage: later(MODULES.create, (page) => page.editPage),
  machinePage: later(MODULES.machine, (page) => page.machinePage),
  overviewPage: later(MODULES.overview, (page) => page.overviewPage),
  kindsPage: later(MODULES.kind, (page) => page.kindsPage),
  certificatesPage: later(MODULES.certificates, (page) => page.certificatesPage),
  kindPage: later(MODULES.kind, (page) => page.kindPage),
  objectPage: later(MODULES.object, (page) => page.objectPage),
  nodesPage: later(MODULES.nodes, (page) => page.nodesPage),
  nodePage: later(MODULES.nodes, (page) => page.nodePage),
  usersPage: later(MODULES.users, (page) => page.usersPage),
  tokensPage: later(MODULES.tokens, (page) => page.tokensPage),
  settingsPage: later(MODULES.settings, (page) => page.settingsPage),
  auditPage: later(MODULES.audit, (page) => page.auditPage),
  rolesPage: later(MODULES.roles, (page) => page.rolesPage),
  credentialsPage: later(MODULES.infrastructure, (page) => page.credentialsPage),
  driversPage: later(MODULES.infrastructure, (page) => page.driversPage),
  configsPage: later(MODULES.infrastructure, (page) => page.configsPage),
  operationsPage: later(MODULES.operations, (page) => page.operationsPage),
  notificationsPage: later(MODULES.notifications, (page) => page.notificationsPage),
};

/** @type {[string, (ctx: any) => any][]} */
const ROUTES = [
  ['/', homePage],
  ['/clusters', clustersPage],
  ['/create', LATER.createPage],
  ['/clusters/:namespace/:name', clusterPage],
  ['/clusters/:namespace/:name/edit', LATER.editPage],
  ['/clusters/:namespace/:name/:tab', clusterPage],
  ['/machines', machinesPage],
  ['/machines/:namespace/:name', LATER.machinePage],
  ['/machines/:namespace/:name/:tab', LATER.machinePage],
  ['/explore/:cluster', LATER.overviewPage],
  ['/explore/:cluster/kinds', LATER.kindsPage],
  ['/explore/:cluster/certificates', LATER.certificatesPage],
  ['/explore/:cluster/r/:type', LATER.kindPage],
  ['/explore/:cluster/r/:type/:namespace/:name', LATER.objectPage],
  ['/explore/:cluster/r/:type/:namespace/:name/:tab', LATER.objectPage],
  ['/explore/:cluster/nodes', LATER.nodesPage],
  ['/explore/:cluster/nodes/:name', LATER.nodePage],
  ['/explore/:cluster/nodes/:name/:tab', LATER.nodePage],
  ['/users', LATER.usersPage],
  ['/tokens', LATER.tokensPage],
  ['/settings', LATER.settingsPage],
  ['/audit', LATER.auditPage],
  ['/roles', LATER.rolesPage],
  ['/credentials', LATER.credentialsPage],
  ['/drivers', LATER.driversPage],
  ['/configurations', LATER.configsPage],
  ['/operations', LATER.operationsPage],
  ['/notifications', LATER.notificationsPage],
];

class App {
  constructor() {
    this.prefs = loadPrefs();
    applyPrefs(this.prefs);
    this.place = /** @type {HTMLElement} */ (document.getElementById('app'));
    /** @type {any} */
    this.user = null;
    /** @type {Map<string, any>} */
    this.schemas = new Map();
    /** @type {any} */
    this.page = null;
    /** Instead of the shell: login, or a failure to start. @type {(() => any) | null} */
    this.alone = null;
    this.mayAudit = false;
    this.mayNotify = false;
    this.navOpen = false;
    this.lostSince = 0;
    this.expired = false;
    /** Of the login over a page. @type {(() => any) | undefined} */
    this.form = undefined;
    this.redraw = scheduler(() => this.draw());
    this.router = new Router((why) => this.moved(why));
    this.keys = new Keys();
    /** @type {Map<string, Socket>} */
    this.sockets = new Map();
    /** @type {any} */
    this.keeping = 0;
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => applyPrefs(this.prefs));
    whenExpired(() => this.ended());
    this.keys.global = [
      { keys: 'ctrl+k', what: 'find anything', run: () => this.palette(), when: () => Boolean(this.user) },
      { keys: 'g h', what: 'home', run: () => this.go(to()) },
      { keys: 'g c', what: 'clusters', run: () => this.go(to('clusters')) },
      { keys: 'g m', what: 'machines', run: () => this.go(to('machines')) },
      { keys: '/', what: 'filter', run: () => document.getElementById('filter')?.focus() },
      { keys: '?', what: 'these keys', run: () => this.help() },
    ];
  }

  /** @param {string} address */
  go(address) {
    this.router.go(address);
  }

  /** @param {string} type */
  schema(type) {
    return this.schemas.get(type);
  }

  /** @param {string} [root] */
  socket(root = '') {
    let socket = this.sockets.get(root);
    if (!socket) {
      socket = new Socket(root, (up, since) => {
        if (root) return;
        this.lostSince = up ? 0 : this.lostSince || since;
        this.redraw();
      });
      this.sockets.set(root, socket);
    }
    return socket;
  }

  async start() {
    this.alone = null;
    try {
      this.user = await whoAmI();
      if (!this.user) {
        const page = loginPage({ redraw: this.redraw, done: () => this.start() });
        this.alone = page;
        document.title = 'Log in · Remuda';
        return this.redraw();
      }
      const schemas = await get('/v1/schemas');
      this.schemas = new Map(schemas.data.map((/** @type {any} */ one) => [one.id, one]));
    } catch (error) {
      const shown = () => h('main', { class: 'login' }, failure(error, () => this.start()));
      this.alone = shown;
      setTimeout(() => this.alone === shown && this.start(), 3000);
      return this.redraw();
    }
    this.socket().connect();
    // What was chosen just before a page was left is not on the server yet.
    if (this.prefs.unsaved) this.prefer({});
    else kept(this.user.id).then((found) => this.prefer(found, false));
    // The rest is fetched while nothing else is to do, so that no page is waited for.
    const rest = () => Object.values(MODULES).forEach((load) => load().catch(() => {}));
    setTimeout(() => ('requestIdleCallback' in window ? requestIdleCallback(rest) : rest()), 1500);
    if (this.schema(SECRET)) mayDo('', { verb: 'list', resource: 'secrets', namespace: WEBHOOKS }).then((may) => { this.mayNotify = may; this.redraw(); }, () => {});
    mayAsk('get', AUDIT).then((may) => { this.mayAudit = may; this.redraw(); }, () => {});
    this.moved('path');
  }

  /** The session has ended while a page is open: it stays, with a login over it. */
  async ended() {
    if (this.expired || !this.user) return;
    this.expired = true;
    await openDialog((close, redraw) => {
      this.form ??= loginForm({ redraw, username: this.user.username, done: () => close() });
      return h('div', { class: 'login-box' }, h('h2', null, 'Your session has ended'), h('p', { class: 'muted' }, 'Log in again to go on where you were. Nothing on this page is lost.'), this.form());
    }, { label: 'Your session has ended', sticky: true });
    this.form = undefined;
    const before = this.user?.id;
    this.expired = false;
    for (const socket of this.sockets.values()) socket.close();
    this.sockets.clear();
    this.user = await whoAmI();
    if (this.user?.id !== before) return location.reload();
    for (const live of this.page?.ctx.lives || []) live.rejoin(this.socket(live.root));
    this.redraw();
  }

  async logout() {
    try {
      await logout();
    } catch {
      // Without a session there is none to end.
    }
    location.assign(BASE);
  }

  /** @param {'path' | 'query'} why */
  moved(why) {
    if (!this.user) return;
    this.navOpen = false;
    if (why === 'query' && this.page) {
      this.page.ctx.query = this.router.query;
      this.page.onQuery?.();
      return this.redraw();
    }
    const found = match(ROUTES, this.router.path);
    // Another part of the same page goes on with what is there.
    const identity = found ? `${ROUTES.findIndex(([, page]) => page === found.page)} ${JSON.stringify({ ...found.params, tab: '' })}` : this.router.path;
    if (why === 'path' && found && this.page?.identity === identity) {
      this.page.ctx.params.tab = found.params.tab;
      this.page.ctx.query = this.router.query;
      this.page.onQuery?.();
      return this.redraw();
    }
    this.page?.ctx.stop();
    this.keys.page = [];
    this.router.mayLeave = () => true;
    const ctx = this.context(found?.params || {});
    this.page = found ? found.page(ctx) : { title: 'Not found', render: () => empty({ title: 'There is no such page', text: location.pathname, actions: button({ label: 'Home', href: to() }) }) };
    this.page.ctx = ctx;
    this.page.identity = identity;
    this.redraw();
  }

  /** What a page gets. @param {Record<string, string>} params */
  context(params) {
    /** @type {(() => void)[]} */
    const stops = [];
    /** @type {Record<string, number>} */
    const timers = {};
    /** @type {Set<any>} */
    const lives = new Set();
    /** What was replaced by another list is forgotten. @param {any} live */
    const keep = (live) => {
      for (const one of lives) if (one.stopped) lives.delete(one);
      lives.add(live);
      return live;
    };
    return {
      app: this,
      lives,
      params,
      query: this.router.query,
      redraw: this.redraw,
      go: (/** @type {string} */ address) => this.go(address),
      setQuery: (/** @type {Record<string, string | null>} */ changes) => this.router.setQuery(changes),
      onStop: (/** @type {() => void} */ stop) => stops.push(stop),
      keys: (/** @type {import('./core/keys.js').Shortcut[]} */ more) => this.keys.page.push(...more),
      /** @param {import('./core/store.js').Query} query @param {any} [options] */
      list: (query, options) => {
        const list = new LiveList(this.socket(query.root), query, this.redraw, options);
        return keep(list);
      },
      /** @param {any} what */
      object: (what) => {
        const object = new LiveObject(this.socket(what.root), what, this.redraw);
        return keep(object);
      },
      /** Does something a little later, and the last one asked for only. @param {string} name @param {number} wait @param {() => void} run */
      later: (name, wait, run) => {
        clearTimeout(timers[name]);
        timers[name] = setTimeout(run, wait);
      },
      stop: () => {
        for (const stop of stops) stop();
        for (const live of lives) live.stop();
        for (const name in timers) clearTimeout(timers[name]);
      },
    };
  }

  /** Everything that can be done from anywhere. */
  commands() {
    const go = (/** @type {string} */ label, /** @type {string} */ picture, /** @type {string} */ address) => ({ label, icon: picture, run: () => this.go(address) });
    const own = this.page?.commands?.() || [];
    return [
      ...own,
      go('Home', 'home', to()),
      ...this.places().map(([, label, picture, address]) => go(label, picture, address)),
      ...(mayCreate(this.schema(CLUSTER)) ? [go('Create cluster', 'plus', to('create')), go('Import cluster', 'import', `${to('create')}?kind=import`)] : []),
      { label: 'Theme: light', icon: 'sun', run: () => this.prefer({ theme: 'light' }) },
      { label: 'Theme: dark', icon: 'moon', run: () => this.prefer({ theme: 'dark' }) },
      { label: 'Theme: as the system', icon: 'sun', run: () => this.prefer({ theme: 'auto' }) },
      { label: this.prefs.density === 'dense' ? 'Rows: normal' : 'Rows: dense', icon: 'density', run: () => this.prefer({ density: this.prefs.density === 'dense' ? 'normal' : 'dense' }) },
      { label: 'Preferences', icon: 'settings', run: () => this.preferences() },
      { label: 'Keys', icon: 'search', run: () => this.help() },
      { label: 'Log out', icon: 'out', run: () => this.logout() },
    ];
  }

  /** @param {any} change @param {boolean} [tell] whether the server keeps it */
  prefer(change, tell = true) {
    this.prefs = { ...this.prefs, ...change, unsaved: tell };
    savePrefs(this.prefs);
    this.redraw();
    if (!tell) return;
    clearTimeout(this.keeping);
    // Several choices are one.
    this.keeping = setTimeout(() => keep(this.user.id, this.prefs).then(() => { this.prefs.unsaved = false; savePrefs(this.prefs); }, () => toast('Your preferences are kept in this browser only: the server did not take them', 'bad')), 500);
  }

  preferences() {
    const zones = Intl.supportedValuesOf ? Intl.supportedValuesOf('timeZone') : [];
    const choice = (/** @type {string} */ label, /** @type {'theme' | 'density' | 'zone'} */ name, /** @type {[string, string][]} */ of, /** @type {() => void} */ redraw) => h('label', { class: 'field' }, h('span', null, label),
      h('select', { name, value: this.prefs[name], onchange: (/** @type {any} */ event) => { this.prefer({ [name]: event.target.value }); redraw(); } }, of.map(([value, word]) => h('option', { key: value, value }, word))));
    openDialog((close, redraw) => h('div', null, h('h2', null, 'Preferences'), h('div', { class: 'dialog-body fields' },
      choice('Theme', 'theme', [['auto', 'As the system'], ['light', 'Light'], ['dark', 'Dark']], redraw),
      choice('Rows', 'density', [['normal', 'Normal'], ['dense', 'Dense']], redraw),
      choice('Times', 'zone', [['', `Of this browser (${Intl.DateTimeFormat().resolvedOptions().timeZone})`], ['UTC', 'UTC'], ...zones.filter((one) => one !== 'UTC').map((one) => /** @type {[string, string]} */ ([one, one.replaceAll('_', ' ')]))], redraw),
      h('p', { class: 'muted small' }, 'They are kept with your user, for every browser you log in with.')), h('div', { class: 'act' }, button({ label: 'Done', kind: 'primary', run: () => close() }))), { label: 'Preferences' });
  }

  palette() {
    if (!document.querySelector('dialog[open]')) openPalette(this);
  }

  help() {
    const all = [...this.keys.global, ...this.keys.page];
    openDialog((close) => h('div', null, h('h2', null, 'Keys'), h('div', { class: 'keys dialog-body' },
      all.flatMap((one) => [h('span', null, one.keys.split(' or ').map((key, place) => [place ? ' ' : null, h('kbd', null, key)])), h('span', null, one.what)])),
      h('p', { class: 'muted small' }, 'A machine is a server and what runs Kubernetes on it; a node is what the cluster itself knows of it. A cluster is what you asked for; it is ready when its machines are nodes.'),
      h('div', { class: 'act' }, button({ label: 'Close', run: () => close() }))), { label: 'Keys' });
  }

  /** Pages of the rail the caller may see: group, label, icon, address. @returns {[string, string, string, string][]} */
  places() {
    /** @type {[string, string, string, string][]} */
    const places = [];
    if (this.schema(CLUSTER)) places.push(['', 'Clusters', 'cluster', to('clusters')]);
    if (this.schema(MACHINE)) places.push(['', 'Machines', 'machine', to('machines')]);
    if (this.schema(CLUSTER)) places.push(['', 'Operations', 'refresh', to('operations')]);
    if (this.schema(USER)) places.push(['Access', 'Users', 'people', to('users')]);
    if (this.schema(GLOBAL_ROLE)) places.push(['Access', 'Roles', 'shield', to('roles')]);
    places.push(['Access', 'Tokens', 'key', to('tokens')]);
    if (this.schema(SECRET)?.collectionMethods?.includes('GET')) places.push(['Providers', 'Credentials', 'lock', to('credentials')]);
    if (this.schema(NODE_DRIVER)) places.push(['Providers', 'Drivers', 'import', to('drivers')]);
    if (configSchemas(this.schemas.values()).length) places.push(['Providers', 'Configurations', 'sheet', to('configurations')]);
    if (this.schema(SETTING)) places.push(['Server', 'Settings', 'settings', to('settings')]);
    if (this.mayNotify) places.push(['Server', 'Notifications', 'bell', to('notifications')]);
    if (this.mayAudit) places.push(['Server', 'Audit', 'clock', to('audit')]);
    return places;
  }

  rail() {
    const path = location.pathname.replace(/\/$/, '');
    const link = (/** @type {string} */ label, /** @type {string} */ picture, /** @type {string} */ address) => {
      const here = address === BASE ? path === BASE : path === address || path.startsWith(`${address}/`) || (address === to('clusters') && path.startsWith(`${to('explore')}/`));
      return h('a', { key: address, class: 'nav', href: address, 'aria-current': here ? 'page' : null }, icon(picture), label);
    };
    let group = '';
    return h('nav', { class: `rail ${this.navOpen ? 'open' : ''}`, 'aria-label': 'Pages' },
      h('a', { class: 'logo', href: to(), 'aria-label': 'Remuda, home' }, logo(), 'Remuda'),
      link('Home', 'home', BASE),
      this.places().map(([name, label, picture, address]) => {
        const head = name !== group ? h('div', { class: 'group', key: `group ${name}` }, name) : null;
        group = name;
        return [head, link(label, picture, address)];
      }),
      h('div', { class: 'rail-foot' },
        h('button', { type: 'button', class: 'ghost', title: 'Theme', 'aria-label': 'Change theme', onclick: () => this.prefer({ theme: document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark' }) }, icon(document.documentElement.dataset.theme === 'dark' ? 'sun' : 'moon')),
        h('button', { type: 'button', class: 'ghost', title: 'Dense rows', 'aria-label': 'Dense rows', 'aria-pressed': String(this.prefs.density === 'dense'), onclick: () => this.prefer({ density: this.prefs.density === 'dense' ? 'normal' : 'dense' }) }, icon('density')),
        h('button', { type: 'button', class: 'ghost', title: 'Keys (?)', 'aria-label': 'Keys', onclick: () => this.help() }, h('kbd', null, '?'))));
  }

  top() {
    const away = this.lostSince > 0;
    const name = this.user.name || this.user.username || this.user.id;
    return h('div', { class: 'top' },
      h('button', { type: 'button', class: 'button square burger', 'aria-label': 'Pages', 'aria-expanded': String(this.navOpen), onclick: (/** @type {Event} */ event) => { event.stopPropagation(); this.navOpen = !this.navOpen; this.redraw(); } }, icon('menu')),
      h('button', { type: 'button', class: 'find', id: 'find', onclick: () => this.palette() }, icon('search'), h('span', null, 'Find clusters, machines, actions …'), h('kbd', null, 'Ctrl K')),
      h('div', { class: 'live', title: away ? 'Changes are looked for every few seconds' : 'Changes appear as they happen' }, h('span', { class: `dot ${away ? 'away' : ''}` }), h('span', { class: 'live-word' }, away ? 'not live' : 'live')),
      h('button', { type: 'button', class: 'me', title: name, 'aria-label': `${name}: log out and more`, onclick: (/** @type {any} */ event) => openMenu(event.currentTarget, [
        { label: 'Preferences …', icon: 'settings', run: () => this.preferences() },
        { label: 'Tokens and sessions', icon: 'key', href: to('tokens') },
        { label: 'Log out', icon: 'out', run: () => this.logout() },
      ]) }, icon('people'), h('span', null, name)));
  }

  draw() {
    const focused = document.activeElement;
    this.show();
    // What had the focus may be gone with its page; the next Tab begins at the new one.
    if (focused && focused !== document.body && !focused.isConnected) document.getElementById('main')?.focus({ preventScroll: true });
  }

  show() {
    if (this.alone) return render(this.place, this.alone());
    if (!this.page) return;
    const title = typeof this.page.title === 'function' ? this.page.title() : this.page.title;
    document.title = title ? `${title} · Remuda` : 'Remuda';
    let content;
    try {
      content = this.page.render();
    } catch (error) {
      // One page that fails is not the end of the others.
      console.error(error);
      content = failure(error);
    }
    render(this.place, h('div', { class: 'app', key: 'app' },
      h('a', { class: 'skip', href: '#main', onclick: (/** @type {Event} */ event) => { event.preventDefault(); document.getElementById('main')?.focus(); } }, 'To the content'),
      this.rail(),
      h('main', { id: 'main', tabindex: -1, onclick: () => { if (this.navOpen) { this.navOpen = false; this.redraw(); } } },
        this.top(),
        this.lostSince && Date.now() - this.lostSince > 3000 ? h('div', { class: 'lost', role: 'status' }, 'The live connection was lost ', ago(new Date(this.lostSince).toISOString()), '. Until it is back, this page looks for changes every few seconds.') : null,
        h('div', { key: this.page.identity }, content))));
  }
}

const app = new App();
app.start();
addEventListener('error', (event) => {
  // Files of an older version are gone after the server was replaced.
  if (event.target instanceof HTMLScriptElement) toast('The dashboard was replaced: reload the page', 'bad');
});
