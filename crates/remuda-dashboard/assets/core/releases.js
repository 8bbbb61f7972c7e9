// Channels of K3s and RKE2: the newest release of each minor version, and until when it is maintained.

import { get } from './api.js';

/** @typedef {{distro: string, minor: string, latest: string, ends: string}} Channel */

/** Those of both distributions; none of one that cannot be asked. @returns {Promise<Channel[]>} */
export async function channels() {
  const both = await Promise.all(['k3s', 'rke2'].map(async (distro) => {
    try {
      const { data } = await get(`/v1-${distro}-release/channels`);
      return data.filter((/** @type {any} */ one) => /^v\d/.test(one.name)).map((/** @type {any} */ one) => ({ distro, minor: one.name, latest: one.latest || '', ends: one.endOfLife || '' }));
    } catch {
      return [];
    }
  }));
  return both.flat();
}
