// Lists and objects that stay current: read once, told of changes, read again.

import { ApiError, get, v1 } from './api.js';

/** Rows are asked for in pages of so many. */
export const PAGE = 100;
/** Changes come at most this often to one list. */
const DEBOUNCE = 200;
/** While there is no socket, lists look by themselves this often. */
const POLL = 10_000;

/**
 * @typedef {{type: string, root?: string, namespace?: string, filter?: string[], sort?: string, include?: string[], exclude?: string[], excludeValues?: string[]}} Query
 * @typedef {'loading' | 'ready' | 'error' | 'denied' | 'missing'} Phase
 */

/** @param {Query} query @param {number} page @param {number} size */
export function listPath(query, page, size) {
  const search = new URLSearchParams();
  search.set('page', String(page));
  search.set('pagesize', String(size));
  if (query.sort) search.set('sort', query.sort);
  for (const one of query.filter || []) search.append('filter', one);
  for (const one of query.include || []) search.append('include', one);
  search.set('exclude', 'metadata.managedFields');
  for (const one of query.exclude || []) search.append('exclude', one);
  for (const one of query.excludeValues || []) search.append('excludeValues', one);
  return `${v1(query.root || '', query.type, query.namespace)}?${search}`;
}

/** @param {unknown} error @returns {Phase} */
const phaseOf = (error) =>
  error instanceof ApiError && error.status === 403 ? 'denied' : error instanceof ApiError && error.status === 404 ? 'missing' : 'error';

class Live {
  /** @param {import('./socket.js').Socket} socket @param {() => void} changed */
  constructor(socket, changed) {
    this.socket = socket;
    this.changed = changed;
    /** @type {Phase} */
    this.phase = 'loading';
    /** @type {any} */
    this.error = null;
    this.abort = new AbortController();
    this.stopped = false;
    this.reading = false;
    this.again = false;
    /** The server tells nothing of it: it cannot be watched, or not by who asks. */
    this.untold = false;
    /** @type {() => void} */
    this.unwatch = () => {};
    this.timer = 0;
    this.poll = setInterval(() => {
      const told = this.socket.socket?.readyState === WebSocket.OPEN && !this.untold;
      if (!document.hidden && !told) this.refresh();
    }, POLL);
  }

  /** Reads again; while a read is under way, once after it. */
  async refresh() {
    if (this.stopped) return;
    if (this.reading) {
      this.again = true;
      return;
    }
    this.reading = true;
    try {
      await this.read();
      this.error = null;
      if (this.phase !== 'ready') this.phase = 'ready';
    } catch (error) {
      if (this.stopped) return;
      this.error = error;
      // What was shown stays; a page is never emptied by a failure that passes.
      if (this.phase !== 'ready' || phaseOf(error) !== 'error') this.phase = phaseOf(error);
      if (!(error instanceof ApiError) || error.passing) {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.refresh(), 3000);
      }
    } finally {
      this.reading = false;
    }
    if (this.stopped) return;
    this.changed();
    if (this.again) {
      this.again = false;
      this.refresh();
    }
  }

  async read() {}

  /** @returns {string} the API it reads from */
  get root() {
    return '';
  }

  /** @param {any} _socket @returns {() => void} */
  watch(_socket) {
    return () => {};
  }

  /** Goes on over another socket, after a login. @param {any} socket */
  rejoin(socket) {
    if (this.stopped) return;
    this.unwatch();
    this.socket = socket;
    this.unwatch = this.watch(socket);
    this.refresh();
  }

  stop() {
    this.stopped = true;
    this.unwatch();
    this.abort.abort();
    clearInterval(this.poll);
    clearTimeout(this.timer);
  }
}

/** A list as the server filters and sorts it; pages that are looked at are in memory. */
export class LiveList extends Live {
  /** @param {any} socket @param {Query} query @param {() => void} changed @param {{size?: number}} [options] */
  constructor(socket, query, changed, options = {}) {
    super(socket, changed);
    this.query = query;
    this.size = options.size || PAGE;
    this.count = 0;
    /** @type {Map<number, any[]>} */
    this.pages = new Map();
    this.wanted = new Set([1]);
    this.unwatch = this.watch(socket);
    this.refresh();
  }

  get root() {
    return this.query.root || '';
  }

  /** @param {any} socket */
  watch(socket) {
    const topic = { resourceType: this.query.type, namespace: this.query.namespace, mode: 'resource.changes', debounceMs: DEBOUNCE };
    return socket.watch(topic, (/** @type {any} */ message) => {
      if (message.name === 'resource.start') this.untold = false;
      if (message.name === 'resource.error' && message.data?.code !== 'Expired') this.untold = true;
      else if (message.name === 'resource.changes' || message.name === 'resumed' || message.name === 'resource.stop') this.refresh();
    });
  }

  async read() {
    const wanted = [...this.wanted];
    const answers = await Promise.all(
      wanted.map((page) => get(listPath(this.query, page, this.size), { signal: this.abort.signal })),
    );
    const first = answers[0];
    this.count = first?.count ?? first?.data?.length ?? 0;
    const next = new Map();
    wanted.forEach((page, place) => next.set(page, answers[place]?.data || []));
    this.pages = next;
  }

  /** All rows that are in memory, in order. @returns {any[]} */
  get items() {
    return [...this.pages.keys()].sort((a, b) => a - b).flatMap((page) => this.pages.get(page) || []);
  }

  /** @param {number} index */
  row(index) {
    return this.pages.get(Math.floor(index / this.size) + 1)?.[index % this.size];
  }

  /** Makes sure that these rows are read. @param {number} from @param {number} to */
  need(from, to) {
    const first = Math.floor(from / this.size) + 1;
    const last = Math.floor(Math.max(from, to - 1) / this.size) + 1;
    const wanted = new Set();
    for (let page = first; page <= last; page += 1) wanted.add(page);
    const missing = [...wanted].some((page) => !this.pages.has(page));
    this.wanted = wanted;
    if (missing && this.phase === 'ready') this.refresh();
  }
}

/** One object. */
export class LiveObject extends Live {
  /** @param {any} socket @param {{type: string, id: string, root?: string}} what @param {() => void} changed */
  constructor(socket, what, changed) {
    super(socket, changed);
    this.what = what;
    /** @type {any} */
    this.item = null;
    this.gone = false;
    this.unwatch = this.watch(socket);
    this.refresh();
  }

  get root() {
    return this.what.root || '';
  }

  /** @param {any} socket */
  watch(socket) {
    const { type, id } = this.what;
    return socket.watch({ resourceType: type, id }, (/** @type {any} */ message) => {
      if (message.name === 'resource.remove') {
        this.gone = true;
        this.changed();
      } else if (message.name === 'resource.change' || message.name === 'resource.create') {
        // Links depend on who asks and for what, so the object is read as it is shown.
        this.gone = false;
        this.item = message.data?.links ? message.data : this.item;
        if (!message.data?.links) this.refresh();
        else this.changed();
      } else if (message.name === 'resumed' || message.name === 'resource.stop') this.refresh();
    });
  }

  async read() {
    const path = v1(this.what.root || '', this.what.type, this.what.id);
    try {
      this.item = await get(path, { signal: this.abort.signal });
      this.gone = false;
    } catch (error) {
      // What was there and is not any more has gone; it was no mistake to ask.
      if (!this.item || !(error instanceof ApiError) || error.status !== 404) throw error;
      this.gone = true;
    }
  }
}
