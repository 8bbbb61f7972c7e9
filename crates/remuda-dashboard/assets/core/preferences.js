// What a person prefers, kept with their user on the server, so that it is the same in every browser.

import { get, put } from './api.js';
import { columnPrefs } from './session.js';

/** Of the dashboard, among those of other clients. */
const KEY = 'remuda.dashboard';

/** @param {any} found @returns {Partial<import('./session.js').Prefs>} */
export function known(found) {
  /** @type {Partial<import('./session.js').Prefs>} */
  const prefs = {};
  if (['auto', 'light', 'dark'].includes(found?.theme)) prefs.theme = found.theme;
  if (['normal', 'dense'].includes(found?.density)) prefs.density = found.density;
  if (typeof found?.zone === 'string') prefs.zone = found.zone;
  if (found?.columns) prefs.columns = columnPrefs(found.columns);
  return prefs;
}

/** What others have put there is left as it is. @param {string} user @returns {Promise<Record<string, string>>} */
const all = async (user) => (await get(`/v1/userpreferences/${encodeURIComponent(user)}`, { quiet: true }))?.data || {};

/** What is kept; nothing if nothing is, or it cannot be read. @param {string} user @returns {Promise<Partial<import('./session.js').Prefs>>} */
export async function kept(user) {
  try {
    return known(JSON.parse((await all(user))[KEY] || '{}'));
  } catch {
    return {};
  }
}

/** @param {string} user @param {import('./session.js').Prefs} prefs */
export async function keep(user, prefs) {
  const { unsaved: _, ...kept } = prefs;
  const data = await all(user);
  await put(`/v1/userpreferences/${encodeURIComponent(user)}`, { data: { ...data, [KEY]: JSON.stringify(kept) } }, { quiet: true });
}
