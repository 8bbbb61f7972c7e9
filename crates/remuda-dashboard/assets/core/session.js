// Who is logged in, and what they prefer. No token is ever in reach of a script: the session is a cookie of the server's.

import { cookie, get, post } from './api.js';
import { inZone } from './time.js';

/** What a person prefers on this device. @typedef {{theme: 'auto' | 'light' | 'dark', density: 'normal' | 'dense', columns: Record<string, string[]>, zone: string, unsaved?: boolean}} Prefs */

const KEY = 'remuda.prefs';

/** Columns chosen for tables, by the table; what is not that is left out. @param {any} found @returns {Record<string, string[]>} */
export function columnPrefs(found) {
  const good = Object.entries(found && typeof found === 'object' ? found : {}).filter(([, ids]) => Array.isArray(ids) && ids.every((id) => typeof id === 'string'));
  return Object.fromEntries(/** @type {[string, string[]][]} */ (good));
}

/** @returns {Prefs} */
export function loadPrefs() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) || '{}');
    return {
      theme: ['auto', 'light', 'dark'].includes(found.theme) ? found.theme : 'auto',
      density: found.density === 'dense' ? 'dense' : 'normal',
      columns: columnPrefs(found.columns),
      zone: typeof found.zone === 'string' ? found.zone : '',
      unsaved: found.unsaved === true,
    };
  } catch {
    return { theme: 'auto', density: 'normal', columns: {}, zone: '' };
  }
}

/** @param {Prefs} prefs */
export function applyPrefs(prefs) {
  const dark = prefs.theme === 'dark' || (prefs.theme === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  document.documentElement.dataset.density = prefs.density;
  inZone(prefs.zone);
}

/** @param {Prefs} prefs */
export function savePrefs(prefs) {
  applyPrefs(prefs);
  try {
    localStorage.setItem(KEY, JSON.stringify(prefs));
  } catch {
    // A browser that keeps nothing forgets it with the page.
  }
}

/** The caller, or null without a session. */
export async function whoAmI() {
  // The readable half of a session: without it there is none, and nothing has to be asked.
  if (!cookie('CSRF')) return null;
  try {
    const answer = await get('/v3/users?me=true', { quiet: true });
    return answer?.data?.[0] || null;
  } catch (error) {
    const status = /** @type {any} */ (error).status;
    if (status === 401 || status === 403) return null;
    throw error;
  }
}

/** @param {{username: string, password: string, newPassword?: string, otp?: string}} given */
export const login = (given) =>
  post('/v1-public/login', { type: 'localProvider', responseType: 'cookie', description: 'Dashboard', ...given }, { quiet: true });

export const logout = () => post('/v1/logout', {}, { quiet: true });

/** @returns {Promise<any[]>} ways to log in */
export async function providers() {
  try {
    return (await get('/v3-public/authProviders', { quiet: true }))?.data || [];
  } catch {
    return [];
  }
}
