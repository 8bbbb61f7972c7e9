// What a certificate says of itself: whose it is, of whom, and how long it is good. It is read and not judged: whether to
// trust it is decided elsewhere. What is no certificate is nothing.

/** @typedef {{subject: string, issuer: string, names: string[], from: string, until: string, authority: boolean}} Certificate */

/** Longer texts are no certificates people keep in objects. */
const LONGEST = 1 << 20;
/** Certificates of a chain that are read. */
const MOST = 8;

/** The value at a place, its kind, and where the next one begins. @param {Uint8Array} bytes @param {number} at @param {number} end */
function read(bytes, at, end) {
  let length = bytes[at + 1];
  let from = at + 2;
  if (length & 0x80) {
    const size = length & 0x7f;
    if (!size || size > 4) throw new RangeError('length');
    length = 0;
    for (let place = 0; place < size; place += 1) length = length * 256 + bytes[from + place];
    from += size;
  }
  if (!(from + length <= end)) throw new RangeError('end');
  return { tag: bytes[at], from, to: from + length };
}

/** All values within one. @param {Uint8Array} bytes @param {{from: number, to: number}} outer */
function within(bytes, outer) {
  const found = [];
  for (let at = outer.from; at < outer.to; ) {
    const one = read(bytes, at, outer.to);
    found.push(one);
    at = one.to;
  }
  return found;
}

const text = (/** @type {Uint8Array} */ bytes, /** @type {{from: number, to: number}} */ value) => new TextDecoder().decode(bytes.subarray(value.from, value.to));
const hex = (/** @type {Uint8Array} */ bytes, /** @type {{from: number, to: number}} */ value) => Array.from(bytes.subarray(value.from, value.to), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Parts of a name worth showing: common name, organization, unit. @type {Record<string, string>} */
const PARTS = { 550403: 'CN', '55040a': 'O', '55040b': 'OU' };
const [ALTERNATIVES, CONSTRAINTS] = ['551d11', '551d13'];

/** @param {Uint8Array} bytes @param {{from: number, to: number}} value */
function nameOf(bytes, value) {
  const parts = [];
  for (const set of within(bytes, value)) for (const one of within(bytes, set)) {
    const [kind, said] = within(bytes, one);
    const word = kind && said && PARTS[hex(bytes, kind)];
    if (word) parts.push(`${word}=${text(bytes, said)}`);
  }
  return parts.reverse().join(', ');
}

/** `261231235959Z`, or with four digits of the year. @param {string} said */
function timeOf(said) {
  const found = /^(\d{2}|\d{4})(\d{2})(\d{2})(\d{2})(\d{2})(\d{2})Z$/.exec(said);
  if (!found) throw new RangeError('time');
  const [, year, month, day, hour, minute, second] = found;
  const whole = year.length === 4 ? year : Number(year) < 50 ? `20${year}` : `19${year}`;
  return new Date(`${whole}-${month}-${day}T${hour}:${minute}:${second}Z`).toISOString();
}

/** @param {Uint8Array} bytes @param {{from: number, to: number}} value */
function address(bytes, value) {
  const raw = bytes.subarray(value.from, value.to);
  if (raw.length === 4) return raw.join('.');
  return Array.from({ length: raw.length / 2 }, (_, place) => ((raw[place * 2] << 8) | raw[place * 2 + 1]).toString(16)).join(':');
}

/** @param {Uint8Array} bytes @returns {Certificate | null} */
export function parse(bytes) {
  try {
    const [body] = within(bytes, read(bytes, 0, bytes.length));
    const fields = within(bytes, body);
    // The version comes first, where it is told.
    const at = fields[0].tag === 0xa0 ? 1 : 0;
    const [issuer, validity, subject] = [fields[at + 2], fields[at + 3], fields[at + 4]];
    const [from, until] = within(bytes, validity).map((one) => timeOf(text(bytes, one)));
    /** @type {string[]} */
    const names = [];
    let authority = false;
    const extensions = fields.find((one) => one.tag === 0xa3);
    for (const one of extensions ? within(bytes, within(bytes, extensions)[0]) : []) {
      const parts = within(bytes, one);
      const [kind, value] = [hex(bytes, parts[0]), parts[parts.length - 1]];
      if (kind === CONSTRAINTS) authority = within(bytes, within(bytes, value)[0]).some((each) => each.tag === 1 && bytes[each.from] !== 0);
      if (kind === ALTERNATIVES) for (const each of within(bytes, within(bytes, value)[0])) {
        if (each.tag === 0x82) names.push(text(bytes, each));
        else if (each.tag === 0x87) names.push(address(bytes, each));
      }
    }
    return { subject: nameOf(bytes, subject), issuer: nameOf(bytes, issuer), names, from, until, authority };
  } catch {
    return null;
  }
}

/** The certificates in a text, first to last. @param {string} pem @returns {Certificate[]} */
export function certificates(pem) {
  if (pem.length > LONGEST) return [];
  const found = [...pem.matchAll(/-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----/g)].slice(0, MOST);
  return found.flatMap(([, base64]) => {
    try {
      return parse(Uint8Array.from(atob(base64.replace(/\s/g, '')), (letter) => letter.charCodeAt(0))) ?? [];
    } catch {
      return [];
    }
  });
}

/** The same of a field of an object. @param {string | undefined} base64 */
export function certificatesIn(base64) {
  try {
    return certificates(atob(base64 || ''));
  } catch {
    return [];
  }
}

/** How it stands with something that ends. @param {string | undefined} until @param {number} now @param {number} [days] @returns {{tone: import('./objects.js').Tone, word: string}} */
export function expiry(until, now, days = 30) {
  const end = Date.parse(until || '');
  if (Number.isNaN(end)) return { tone: 'off', word: 'Unknown' };
  if (end < now) return { tone: 'bad', word: 'Expired' };
  return end < now + days * 86_400_000 ? { tone: 'warn', word: 'Ends soon' } : { tone: 'ok', word: 'Good' };
}
