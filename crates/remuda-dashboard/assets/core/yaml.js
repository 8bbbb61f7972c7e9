// Objects as YAML, and back for what people write by hand.
//
// Reading knows block mappings and sequences, scalars in three styles, block scalars and short flow collections: what
// objects are written in. Anchors, tags and several documents are refused with their line; the server reads the text
// itself and knows them all.

/** @param {any} value @returns {string} */
export function toYaml(value) {
  return lines(value, 0).join('\n') + '\n';
}

/** @param {any} value @param {number} depth @returns {string[]} */
function lines(value, depth) {
  const pad = '  '.repeat(depth);
  if (Array.isArray(value)) {
    return value.flatMap((item) => {
      if (isLeaf(item)) return [`${pad}- ${scalar(item, depth + 1)}`];
      const inner = lines(item, depth + 1);
      return [`${pad}- ${inner[0].trimStart()}`, ...inner.slice(1)];
    });
  }
  return Object.entries(value).flatMap(([key, item]) => {
    if (item === undefined) return [];
    const name = isPlain(key) ? key : JSON.stringify(key);
    if (isLeaf(item)) return [`${pad}${name}: ${scalar(item, depth + 1)}`];
    return [`${pad}${name}:`, ...lines(item, Array.isArray(item) ? depth : depth + 1)];
  });
}

/** @param {any} value */
const isLeaf = (value) =>
  value === null || typeof value !== 'object' || (Array.isArray(value) ? !value.length : !Object.keys(value).length);

/** @param {string} text */
function isPlain(text) {
  if (!/^[A-Za-z0-9_./$][A-Za-z0-9_./$+@%-]*( [A-Za-z0-9_./$(][A-Za-z0-9_./$+@%()-]*)*$/.test(text)) return false;
  return typeof fromPlain(text) === 'string' && !/^[.\d]*$/.test(text);
}

/** @param {any} value @param {number} depth */
function scalar(value, depth) {
  if (Array.isArray(value)) return '[]';
  if (value !== null && typeof value === 'object') return '{}';
  if (typeof value !== 'string') return String(value);
  const text = value;
  if (isPlain(text)) return text;
  if (text.includes('\n') && !/[^\S\n]$|\r|[\u0000-\u0008\u000b-\u001f]/m.test(text) && !text.startsWith(' ') && !text.startsWith('\n')) {
    const pad = '  '.repeat(depth);
    const sign = text.endsWith('\n\n') ? '|+' : text.endsWith('\n') ? '|' : '|-';
    const body = text.replace(/\n$/, '').split('\n');
    return [sign, ...body.map((line) => (line ? pad + line : ''))].join('\n');
  }
  return JSON.stringify(text);
}

/** @param {string} text @returns {any} */
function fromPlain(text) {
  if (/^(~|null|Null|NULL|)$/.test(text)) return null;
  if (/^(true|True|TRUE)$/.test(text)) return true;
  if (/^(false|False|FALSE)$/.test(text)) return false;
  // Words of YAML 1.1, which some readers still take for truth.
  if (/^[-+]?(0|[1-9]\d*)$/.test(text)) return Number(text);
  if (/^[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?$/.test(text)) return Number(text);
  return text;
}

export class YamlError extends Error {
  /** @param {string} message @param {number} line counted from one */
  constructor(message, line) {
    super(`line ${line}: ${message}`);
    this.line = line;
  }
}

/** @param {string} text @returns {any} */
export function fromYaml(text) {
  const reader = new Reader(text);
  reader.skip();
  if (reader.done) return null;
  const value = reader.block(reader.indent, 0);
  reader.skip();
  if (!reader.done) throw reader.error('this does not belong to what is above it');
  return value;
}

const DEEPEST = 64;

class Reader {
  /** @param {string} text */
  constructor(text) {
    this.lines = text.split(/\r?\n/);
    this.at = 0;
    if (this.lines.findIndex((line) => line === '---') === 0) this.at = 1;
  }

  get done() {
    return this.at >= this.lines.length;
  }

  get line() {
    return this.lines[this.at];
  }

  get indent() {
    return this.line.search(/\S/);
  }

  /** @param {string} message */
  error(message) {
    return new YamlError(message, this.at + 1);
  }

  skip() {
    while (!this.done && /^\s*(#.*)?$/.test(this.line)) this.at += 1;
    if (!this.done && /^\s*\t/.test(this.line)) throw this.error('indentation is of spaces, not of tabs');
    if (!this.done && /^(---|\.\.\.)/.test(this.line)) throw this.error('there is one document only');
  }

  /** @param {number} indent @param {number} depth @returns {any} */
  block(indent, depth) {
    if (depth > DEEPEST) throw this.error('this is too deep');
    if (/^\s*-(\s|$)/.test(this.line)) return this.sequence(indent, depth);
    if (keyOf(this.line.trimStart())) return this.mapping(indent, depth);
    const value = this.inline(this.line.trim(), indent);
    return value;
  }

  /** @param {number} indent @param {number} depth */
  sequence(indent, depth) {
    const list = [];
    for (this.skip(); !this.done && this.indent === indent && /^\s*-(\s|$)/.test(this.line); this.skip()) {
      const rest = this.line.slice(indent + 1);
      const text = rest.trim();
      if (!text || text.startsWith('#')) {
        this.at += 1;
        this.skip();
        if (!this.done && this.indent > indent) list.push(this.block(this.indent, depth + 1));
        else list.push(null);
      } else if (keyOf(text) || /^-(\s|$)/.test(text)) {
        // The dash is indentation of what stands after it.
        const inner = indent + 1 + rest.search(/\S/);
        this.lines[this.at] = ' '.repeat(inner) + text;
        list.push(this.block(inner, depth + 1));
      } else list.push(this.inline(text, indent));
    }
    if (!this.done && this.indent > indent) throw this.error('this is indented too far');
    return list;
  }

  /** @param {number} indent @param {number} depth */
  mapping(indent, depth) {
    /** @type {Record<string, any>} */
    const map = {};
    for (this.skip(); !this.done && this.indent === indent; this.skip()) {
      const found = keyOf(this.line.trimStart());
      if (!found) throw this.error('a line here is `key: value`');
      const { key, rest } = found;
      if (Object.hasOwn(map, key)) throw this.error(`${key} is here twice`);
      /** @type {any} */
      let value;
      if (!rest || rest.startsWith('#')) {
        this.at += 1;
        this.skip();
        const below = this.done ? -1 : this.indent;
        if (below > indent) value = this.block(below, depth + 1);
        else if (below === indent && /^\s*-(\s|$)/.test(this.line)) value = this.sequence(indent, depth + 1);
        else value = null;
      } else value = this.inline(rest, indent);
      Object.defineProperty(map, key, { value, enumerable: true, writable: true, configurable: true });
    }
    if (!this.done && this.indent > indent) throw this.error('this is indented too far');
    return map;
  }

  /** What stands in a line after its key or dash. @param {string} text @param {number} indent */
  inline(text, indent) {
    if (/^[|>]/.test(text)) return this.literal(text, indent);
    if (/^[&*!]/.test(text)) throw this.error('anchors and tags cannot be read here');
    const flow = new Flow(text, this);
    const value = flow.value(0);
    flow.end();
    this.at += 1;
    return value;
  }

  /** @param {string} head @param {number} indent */
  literal(head, indent) {
    const found = /^([|>])([+-]?)\s*(#.*)?$/.exec(head);
    if (!found) throw this.error('this is no block of text');
    this.at += 1;
    const body = [];
    let own = -1;
    while (!this.done && (this.line.trim() === '' || this.indent > indent)) {
      if (own < 0 && this.line.trim()) own = this.indent;
      body.push(this.line.trim() ? this.line.slice(own) : '');
      this.at += 1;
    }
    const text = found[1] === '|' ? body.join('\n') : body.join('\n').replace(/([^\n])\n(?!\n)/g, '$1 ');
    const bare = text.replace(/\n+$/, '');
    if (found[2] === '-') return bare;
    if (found[2] === '+') return text + '\n';
    return bare ? bare + '\n' : '';
  }
}

/** @param {string} text @returns {{key: string, rest: string} | null} */
function keyOf(text) {
  const found = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#&*!|>'"%@`{[\],-][^#]*?|-[^\s#:][^#]*?)\s*:(?:\s+(.*)|)$/.exec(text);
  if (!found) return null;
  const [, raw, rest] = found;
  if (raw.startsWith('"')) {
    try {
      return { key: JSON.parse(raw), rest: (rest || '').trim() };
    } catch {
      return null;
    }
  }
  const key = raw.startsWith("'") ? raw.slice(1, -1).replaceAll("''", "'") : raw;
  if (!raw.startsWith("'") && /:\s/.test(raw)) {
    const place = raw.search(/:\s/);
    return { key: raw.slice(0, place), rest: text.slice(place + 1).trim() };
  }
  return { key, rest: (rest || '').trim() };
}

/** Scalars, and collections in brackets, in one line. */
class Flow {
  /** @param {string} text @param {Reader} reader */
  constructor(text, reader) {
    this.text = text;
    this.at = 0;
    this.reader = reader;
    this.deep = 0;
  }

  space() {
    while (this.text[this.at] === ' ') this.at += 1;
  }

  end() {
    this.space();
    if (this.at < this.text.length && !(this.text[this.at] === '#' && this.text[this.at - 1] === ' ')) throw this.reader.error('there is more here than a value');
  }

  /** @param {number} depth @returns {any} */
  value(depth) {
    if (depth > DEEPEST) throw this.reader.error('this is too deep');
    this.space();
    const first = this.text[this.at];
    if (first === '"') return this.double();
    if (first === "'") return this.single();
    if (first === '[' || first === '{') return this.collection(first, depth);
    const rest = this.text.slice(this.at);
    const end = depth ? rest.search(/[,\]}]|:\s|\s#/) : rest.search(/\s#/);
    const raw = (end < 0 ? rest : rest.slice(0, end)).trimEnd();
    this.at += raw.length;
    return fromPlain(raw);
  }

  double() {
    const found = /^"(?:[^"\\]|\\.)*"/.exec(this.text.slice(this.at));
    if (!found) throw this.reader.error('the quotation mark is not closed');
    this.at += found[0].length;
    try {
      return JSON.parse(found[0]);
    } catch {
      throw this.reader.error('this is not escaped as in JSON');
    }
  }

  single() {
    const found = /^'((?:[^']|'')*)'/.exec(this.text.slice(this.at));
    if (!found) throw this.reader.error('the quotation mark is not closed');
    this.at += found[0].length;
    return found[1].replaceAll("''", "'");
  }

  /** @param {string} open @param {number} depth */
  collection(open, depth) {
    const close = open === '[' ? ']' : '}';
    /** @type {any} */
    const made = open === '[' ? [] : {};
    this.at += 1;
    for (;;) {
      this.space();
      if (this.text[this.at] === close) break;
      if (this.at >= this.text.length) throw this.reader.error(`${open} is not closed in its line`);
      const item = this.value(depth + 1);
      if (open === '{') {
        this.space();
        if (this.text[this.at] !== ':') throw this.reader.error('a colon is missing');
        this.at += 1;
        const value = this.value(depth + 1);
        Object.defineProperty(made, String(item), { value, enumerable: true, writable: true, configurable: true });
      } else made.push(item);
      this.space();
      if (this.text[this.at] === ',') this.at += 1;
      else if (this.text[this.at] !== close) throw this.reader.error('a comma is missing');
    }
    this.at += 1;
    return made;
  }
}
