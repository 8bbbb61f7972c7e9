// Paths and queries of the dashboard, and going from one to another without loading it again.

export const BASE = '/dashboard';

/**
 * Parts that begin with a colon are parameters; the first pattern that fits wins.
 * @template T
 * @param {[string, T][]} routes @param {string} path
 * @returns {{page: T, params: Record<string, string>} | null}
 */
export function match(routes, path) {
  const parts = path.split('/').filter(Boolean);
  for (const [pattern, page] of routes) {
    const wanted = pattern.split('/').filter(Boolean);
    if (wanted.length !== parts.length) continue;
    /** @type {Record<string, string>} */
    const params = {};
    const fits = wanted.every((part, place) => {
      if (!part.startsWith(':')) return part === parts[place];
      try {
        params[part.slice(1)] = decodeURIComponent(parts[place]);
        return true;
      } catch {
        return false;
      }
    });
    if (fits) return { page, params };
  }
  return null;
}

/** The address of a page. @param {...string} parts */
export const to = (...parts) => [BASE, ...parts.map(encodeURIComponent)].join('/');

/** A query with some values changed; empty ones are left out. @param {URLSearchParams} query @param {Record<string, string | null>} changes */
export function withQuery(query, changes) {
  const next = new URLSearchParams(query);
  for (const name in changes) {
    const value = changes[name];
    if (value === null || value === '') next.delete(name);
    else next.set(name, value);
  }
  const text = next.toString();
  return text ? `?${text}` : '';
}

export class Router {
  /** @param {(why: 'path' | 'query') => void} changed */
  constructor(changed) {
    this.changed = changed;
    /** Asked before a page is left; false stays. @type {() => boolean} */
    this.mayLeave = () => true;
    addEventListener('popstate', () => this.changed('path'));
    document.addEventListener('click', (event) => this.clicked(event));
  }

  get path() {
    return location.pathname.slice(BASE.length) || '/';
  }

  get query() {
    return new URLSearchParams(location.search);
  }

  /** @param {string} address @param {{replace?: boolean}} [options] */
  go(address, options = {}) {
    const next = new URL(address, location.href);
    const same = next.pathname === location.pathname;
    if (!same && !this.mayLeave()) return;
    if (next.href === location.href) return;
    history[options.replace ? 'replaceState' : 'pushState'](null, '', next);
    if (!same) scrollTo(0, 0);
    this.changed(same ? 'query' : 'path');
  }

  /** @param {Record<string, string | null>} changes */
  setQuery(changes) {
    this.go(location.pathname + withQuery(this.query, changes), { replace: true });
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest('a[href]') : null;
    if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute('download')) return;
    const next = new URL(link.href);
    if (next.origin !== location.origin || !(next.pathname === BASE || next.pathname.startsWith(`${BASE}/`))) return;
    event.preventDefault();
    this.go(next.href);
  }
}
