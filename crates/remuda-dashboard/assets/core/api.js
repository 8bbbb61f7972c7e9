// Requests to the server: errors as one type, the proof that a page of ours asks, and what happens when a session ends.

/** What a request was refused with. */
export class ApiError extends Error {
  /** @param {number} status @param {string} message @param {any} [body] @param {string} [path] */
  constructor(status, message, body, path) {
    super(message);
    this.status = status;
    this.reason = body?.reason || body?.code || '';
    this.details = body?.details;
    this.body = body;
    this.path = path || '';
  }

  /** Whether trying again by itself has a point. */
  get passing() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** @type {() => void} */
let onExpired = () => {};

/** Is told when an answer says that there is no session any more. @param {() => void} tell */
export function whenExpired(tell) {
  onExpired = tell;
}

/** @param {string} name */
export function cookie(name) {
  for (const pair of document.cookie.split(';')) {
    const [key, ...value] = pair.trim().split('=');
    if (key === name) return value.join('=');
  }
  return '';
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{body?: any, headers?: Record<string, string>, signal?: AbortSignal, quiet?: boolean, raw?: boolean}} [options]
 * @returns {Promise<any>}
 */
export async function request(method, path, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { accept: 'application/json', ...options.headers };
  /** @type {string | undefined} */
  let body;
  if (options.body !== undefined) {
    body = typeof options.body === 'string' ? options.body : JSON.stringify(options.body);
    headers['content-type'] ??= 'application/json';
  }
  if (method !== 'GET' && method !== 'HEAD') headers['x-api-csrf'] = cookie('CSRF');
  const ask = () => fetch(path, { method, headers, body, signal: options.signal, credentials: 'same-origin', redirect: 'error' });
  let response;
  try {
    // A device that changes its network loses what is under way. What only reads is asked for once more.
    response = await ask().catch(async (error) => {
      if (error?.name === 'AbortError' || method !== 'GET') throw error;
      await new Promise((resolve) => setTimeout(resolve, 250));
      return ask();
    });
  } catch (error) {
    if (/** @type {any} */ (error)?.name === 'AbortError') throw error;
    throw new ApiError(0, 'the server cannot be reached', undefined, path);
  }
  const text = await response.text();
  if (options.raw && response.ok) return text;
  let parsed;
  try {
    parsed = text ? JSON.parse(text) : undefined;
  } catch {
    parsed = undefined;
  }
  if (!response.ok) {
    if (response.status === 401 && !options.quiet) onExpired();
    const message = parsed?.message || text.slice(0, 300) || `${response.status} ${response.statusText}`;
    throw new ApiError(response.status, message, parsed, path);
  }
  return parsed;
}

/** An answer that goes on, piece by piece; it ends with the signal. @param {string} path @param {AbortSignal} signal @param {(text: string) => void} tell */
export async function stream(path, signal, tell) {
  let response;
  try {
    response = await fetch(path, { headers: { accept: '*/*' }, signal, credentials: 'same-origin', redirect: 'error' });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ApiError(0, 'the server cannot be reached', undefined, path);
  }
  if (!response.ok || !response.body) {
    if (response.status === 401) onExpired();
    const text = await response.text();
    let parsed;
    try {
      parsed = JSON.parse(text);
    } catch {
      parsed = undefined;
    }
    throw new ApiError(response.status, parsed?.message || text.slice(0, 300) || `${response.status} ${response.statusText}`, parsed, path);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) tell(piece.value);
}

/** @param {string} path @param {any} [options] */
export const get = (path, options) => request('GET', path, options);
/** @param {string} path @param {any} [body] @param {any} [options] */
export const post = (path, body, options) => request('POST', path, { ...options, body });
/** @param {string} path @param {any} body @param {any} [options] */
export const put = (path, body, options) => request('PUT', path, { ...options, body });
/** @param {string} path @param {any} [options] */
export const del = (path, options) => request('DELETE', path, options);
/** @param {string} path @param {any} body */
export const mergePatch = (path, body) =>
  request('PATCH', path, { body, headers: { 'content-type': 'application/merge-patch+json' } });

/** A path below `/v1`; parts are encoded. @param {string} root @param {string} type @param {string} [id] */
export function v1(root, type, id) {
  const parts = (id || '').split('/').filter(Boolean).map(encodeURIComponent);
  return [`${root}/v1/${type}`, ...parts].join('/');
}

/** What a review says about the caller. @param {string} root @param {any} spec */
async function reviewed(root, spec) {
  const answer = await post(`${root}/apis/authorization.k8s.io/v1/selfsubjectaccessreviews`, { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec });
  return Boolean(answer?.status?.allowed);
}

/** Whether a cluster lets the caller do something that links and schemas do not tell of. @param {string} root @param {any} attributes */
export const mayDo = (root, attributes) => reviewed(root, { resourceAttributes: attributes });
/** The same of a path of this server. @param {string} verb @param {string} path */
export const mayAsk = (verb, path) => reviewed('', { nonResourceAttributes: { verb, path } });
