// Editing an object as YAML: what differs is shown before it is saved, and what the server says stays beside it.

import { ApiError } from '../core/api.js';
import { h } from '../core/dom.js';
import { diff, fieldErrors, lineOf } from '../core/edit.js';
import { YamlError, fromYaml, toYaml } from '../core/yaml.js';
import { button } from './basics.js';
import { openDialog } from './layers.js';

/** @param {{kind: string, text: string}[]} lines */
export const diffView = (lines) =>
  h('div', { class: 'diff', tabindex: 0, role: 'region', 'aria-label': 'What changes' }, lines.map((line, at) => h('div', { key: at, class: line.kind }, `${line.kind === 'add' ? '+' : line.kind === 'cut' ? '-' : ' '} ${line.text}`)));

/** An object in a text, or what is wrong with it. @param {string} text @returns {{object?: any, error?: string}} */
export function parsed(text) {
  try {
    const object = fromYaml(text);
    if (!object || typeof object !== 'object' || Array.isArray(object)) return { error: 'This is no object.' };
    if (!object.apiVersion || !object.kind) return { error: 'apiVersion and kind are missing.' };
    return { object };
  } catch (error) {
    return { error: error instanceof YamlError ? `Line ${error.line}: ${error.message}` : String(error) };
  }
}

/** @type {Record<string, string>} */
const SAID = { '': 'Not saved yet.', asking: 'Asking the server …', good: 'The server would take this.', refused: 'The server would refuse this.', unknown: 'Not saved yet. The server cannot be asked right now.' };

export class YamlEdit {
  /** @param {any} ctx @param {{object: any, save: (object: any) => Promise<any>, check?: (object: any) => Promise<any>, done: () => void, cancel: string, creating?: boolean, note?: any}} options */
  constructor(ctx, options) {
    this.ctx = ctx;
    this.options = options;
    this.before = toYaml(options.object);
    this.text = this.before;
    this.error = '';
    this.busy = false;
    /** What the server would say of the text. @type {'' | 'asking' | 'good' | 'refused' | 'unknown'} */
    this.verdict = '';
    /** @type {Map<string, string[]>} */
    this.errors = new Map();
    this.turn = 0;
    ctx.app.router.mayLeave = () => this.text === this.before || this.busy || window.confirm('What you changed is not saved. Leave it?');
  }

  /** @param {string} text */
  typed(text) {
    this.text = text;
    this.error = '';
    this.judge();
    this.ctx.redraw();
  }

  /** Asks the server what it would say, a moment after the last key. */
  judge() {
    const mine = (this.turn += 1);
    const { check } = this.options;
    const { object } = parsed(this.text);
    this.errors = new Map();
    // Without a name there is nothing to ask about yet.
    if (!check || !object || this.text === this.before || !(object.metadata?.name || object.metadata?.generateName)) {
      this.verdict = '';
      return;
    }
    this.verdict = 'asking';
    this.ctx.later('judge', 400, async () => {
      /** @type {any} */
      let failed = null;
      try {
        await check(object);
      } catch (error) {
        failed = error;
      }
      if (mine !== this.turn) return;
      // Who else writes it meanwhile is asked about when it is saved.
      const refused = failed instanceof ApiError && !failed.passing && failed.status !== 409;
      this.errors = refused ? fieldErrors(failed) : new Map();
      this.verdict = !failed ? 'good' : refused ? 'refused' : 'unknown';
      this.ctx.redraw();
    });
  }

  /** Leads to a line of the text. @param {number} line */
  goTo(line) {
    const field = /** @type {HTMLTextAreaElement | null} */ (document.getElementById('yaml'));
    if (!field) return;
    const lines = this.text.split('\n');
    const from = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    field.focus();
    field.setSelectionRange(from, from + (lines[line - 1] || '').length);
    field.scrollTop = Math.max(0, (field.scrollHeight / lines.length) * (line - 4));
  }

  /** What the server says against it, each with its line. */
  objections() {
    const all = [...this.errors].flatMap(([field, messages]) => messages.map((message) => ({ field, message, line: field ? lineOf(this.text, field) : 0 })));
    return h('div', { role: 'alert' }, h('ul', { class: 'objections' }, all.map(({ field, message, line }) => h('li', { key: `${field} ${message}` },
      line ? h('button', { type: 'button', class: 'plain-button link', onclick: () => this.goTo(line) }, `Line ${line}`) : null, line ? ' ' : null, h('span', null, field && !message.includes(field) ? `${field}: ${message}` : message)))));
  }

  /** @returns {Promise<any>} */
  async send() {
    const { object, error } = parsed(this.text);
    if (!object) throw new Error(error);
    this.busy = true;
    try {
      await this.options.save(object);
      this.before = this.text;
    } finally {
      this.busy = false;
    }
  }

  async create() {
    this.error = '';
    this.ctx.redraw();
    try {
      await this.send();
      this.options.done();
    } catch (failed) {
      this.error = /** @type {any} */ (failed).message;
    }
    this.ctx.redraw();
  }

  async review() {
    let error = '';
    const saved = await openDialog((close, redraw) => h('div', null, h('h2', null, 'Save this change?'), h('div', { class: 'dialog-body' }, diffView(diff(this.before, this.text)), this.options.note || null, error ? h('p', { class: 'error', role: 'alert' }, error) : null),
      h('div', { class: 'act' }, button({ label: 'Back', run: () => close() }), button({ label: this.busy ? 'Saving …' : 'Save', kind: 'primary', id: 'confirm-save', disabled: this.busy, run: () => {
        this.send().then(() => close(true), (failed) => { error = failed.status === 409 ? 'It was changed by others meanwhile. Go back, copy what you wrote, and load it anew.' : failed.message; redraw(); });
        redraw();
      } }))), { label: 'Review the change', class: 'wide' });
    if (saved) this.options.done();
  }

  draw() {
    const wrong = parsed(this.text).error || '';
    const changed = this.text !== this.before;
    const ready = !wrong && !this.busy && this.verdict !== 'refused' && (changed || this.options.creating);
    return h('section', { class: 'card' },
      h('label', { class: 'field' }, h('span', null, 'YAML'), h('textarea', { id: 'yaml', class: 'code-edit', spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off', 'aria-invalid': wrong ? 'true' : null, value: this.text,
        oninput: (/** @type {any} */ event) => this.typed(event.target.value) })),
      this.errors.size && !wrong ? this.objections() : null,
      h('div', { class: 'edit-foot' }, h('p', { class: `verdict ${wrong || this.error ? 'error' : 'muted'}`, role: 'status' }, wrong || this.error || (changed ? SAID[this.verdict] : '')),
        h('div', { class: 'act' }, button({ label: 'Cancel', href: this.options.cancel }),
          this.options.creating ? button({ label: this.busy ? 'Creating …' : 'Create', kind: 'primary', id: 'save', disabled: !ready, run: () => this.create() }) : button({ label: 'Review and save …', kind: 'primary', id: 'save', disabled: !ready, run: () => this.review() }))));
  }
}
