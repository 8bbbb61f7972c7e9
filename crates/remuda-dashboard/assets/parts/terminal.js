// A terminal. The server emulates it and says which rows have changed; here they are drawn, and keys are sent.

import { h } from '../core/dom.js';
import { keyMessage, lookOf, terminalPath } from '../core/terminal.js';
import { badge, button } from './basics.js';

/** @typedef {{cluster: string, namespace: string, pod: string, container: string}} Source */

export class TerminalView {
  /** @param {() => void} redraw of the page around it @param {() => void} leave puts the focus outside */
  constructor(redraw, leave) {
    this.redraw = redraw;
    this.leave = leave;
    /** @type {Source | null} */
    this.source = null;
    /** @type {WebSocket | null} */
    this.socket = null;
    /** @type {'opening' | 'live' | 'ended'} */
    this.phase = 'opening';
    this.why = '';
    this.back = 0;
    this.size = [80, 24];
    this.scrolled = 0;
    this.cell = { width: 8, height: 18 };
    /** @type {any} */
    this.waiting = 0;
    this.rows = document.createElement('div');
    this.rows.className = 'term-rows';
    this.cursor = document.createElement('i');
    this.cursor.className = 'term-cursor';
    this.cursor.hidden = true;
    this.input = document.createElement('textarea');
    this.input.className = 'term-input';
    for (const [name, value] of Object.entries({ autocapitalize: 'off', autocomplete: 'off', autocorrect: 'off', spellcheck: 'false', rows: '1', 'aria-describedby': 'term-help' })) this.input.setAttribute(name, value);
    this.input.addEventListener('keydown', (event) => this.pressed(event));
    this.input.addEventListener('input', (event) => this.typed(event));
    this.input.addEventListener('compositionend', () => this.typed(null));
    this.input.addEventListener('paste', (event) => {
      event.preventDefault();
      const text = event.clipboardData?.getData('text/plain');
      if (text) this.say({ paste: text });
    });
    /** @type {HTMLElement | null} */
    this.box = null;
    this.observer = new ResizeObserver(() => this.fit());
  }

  /** Opens a terminal, if it is not the one that is open. @param {Source} source */
  open(source) {
    if (JSON.stringify(source) === JSON.stringify(this.source)) return;
    this.stop();
    this.source = source;
    this.begin();
  }

  begin() {
    if (!this.source) return;
    this.phase = 'opening';
    this.why = '';
    this.back = 0;
    this.rows.replaceChildren();
    this.input.setAttribute('aria-label', `Terminal of ${this.source.container} in ${this.source.pod}`);
    this.measure();
    const address = new URL(terminalPath({ ...this.source, columns: this.size[0], rows: this.size[1] }), location.href);
    address.protocol = location.protocol === 'http:' ? 'ws:' : 'wss:';
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.onmessage = (event) => this.told(JSON.parse(event.data));
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (this.phase !== 'ended') this.end(this.phase === 'opening' ? 'the server did not open a terminal' : 'the connection was lost');
    };
  }

  /** @param {string} why */
  end(why) {
    this.phase = 'ended';
    this.why = why;
    this.cursor.hidden = true;
    this.redraw();
  }

  stop() {
    const socket = this.socket;
    this.socket = null;
    this.source = null;
    socket?.close();
    clearTimeout(this.waiting);
  }

  /** @param {any} message */
  say(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  /** @param {any} message */
  told(message) {
    if (this.phase === 'opening') {
      this.phase = 'live';
      this.redraw();
      this.input.focus({ preventScroll: true });
      this.fit();
    }
    if (message.size) {
      this.size = message.size;
      const rows = Array.from({ length: message.size[1] }, () => {
        const row = document.createElement('div');
        row.className = 'term-row';
        return row;
      });
      this.rows.replaceChildren(...rows);
    }
    for (const [place, runs] of message.rows || []) this.draws(/** @type {HTMLElement} */ (this.rows.children[place]), runs);
    if ('cursor' in message) {
      this.cursor.hidden = !message.cursor;
      if (message.cursor) {
        this.cursor.style.left = `${message.cursor[0] * this.cell.width}px`;
        this.cursor.style.top = `${message.cursor[1] * this.cell.height}px`;
      }
    }
    if ('back' in message) {
      this.back = message.back;
      this.redraw();
    }
    if ('ended' in message) this.end(message.ended);
  }

  /** @param {HTMLElement | undefined} row @param {import('../core/terminal.js').Run[]} runs */
  draws(row, runs) {
    row?.replaceChildren(...runs.map((run) => {
      const look = lookOf(run);
      if (!look.className && !look.color && !look.background) return document.createTextNode(run[0]);
      const piece = document.createElement('span');
      piece.textContent = run[0];
      piece.className = look.className;
      if (look.color) piece.style.color = look.color;
      if (look.background) piece.style.backgroundColor = look.background;
      return piece;
    }));
  }

  /** How large a cell is, and how many fit. */
  measure() {
    if (!this.box) return;
    const probe = document.createElement('span');
    probe.className = 'term-probe';
    probe.textContent = 'M'.repeat(20);
    this.box.append(probe);
    const { width, height } = probe.getBoundingClientRect();
    probe.remove();
    if (!width || !height) return;
    this.cell = { width: width / 20, height };
    const style = getComputedStyle(this.box);
    const room = (/** @type {number} */ all, /** @type {string} */ one, /** @type {string} */ other) => all - parseFloat(one) - parseFloat(other);
    this.size = [Math.max(2, Math.floor(room(this.box.clientWidth, style.paddingLeft, style.paddingRight) / this.cell.width)), Math.max(2, Math.floor(room(this.box.clientHeight, style.paddingTop, style.paddingBottom) / this.cell.height))];
  }

  fit() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      const before = this.size.join();
      this.measure();
      if (this.phase === 'live' && this.size.join() !== before) this.say({ size: this.size });
    }, 80);
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (event.shiftKey && event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      return this.leave();
    }
    if (event.shiftKey && (event.key === 'PageUp' || event.key === 'PageDown')) {
      event.preventDefault();
      return this.look(this.back + (event.key === 'PageUp' ? 1 : -1) * (this.size[1] - 1));
    }
    const message = keyMessage({ key: event.key, ctrlKey: event.ctrlKey, altKey: event.altKey, shiftKey: event.shiftKey, metaKey: event.metaKey, isComposing: event.isComposing, graph: event.getModifierState('AltGraph') }, Boolean(String(getSelection() || '')));
    // Keys of the page are not for what is typed into a terminal.
    event.stopPropagation();
    if (!message) return;
    event.preventDefault();
    this.say(message);
  }

  /** Text that came without keys: other ways to write, and telephones. @param {Event | null} event */
  typed(event) {
    if (/** @type {any} */ (event)?.isComposing) return;
    const text = this.input.value;
    this.input.value = '';
    if (text) this.say({ text: text.replaceAll('\n', '\r') });
  }

  /** @param {number} rows */
  look(rows) {
    this.say({ back: Math.max(0, Math.round(rows)) });
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    event.preventDefault();
    this.scrolled -= event.deltaMode ? event.deltaY : event.deltaY / this.cell.height;
    const rows = Math.trunc(this.scrolled);
    if (!rows) return;
    this.scrolled -= rows;
    this.look(this.back + rows);
  }

  /** @param {HTMLElement} box */
  attach(box) {
    this.box = box;
    const screen = document.createElement('div');
    screen.className = 'term-screen';
    screen.append(this.rows, this.cursor, this.input);
    box.append(screen);
    box.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    box.addEventListener('mouseup', () => String(getSelection() || '') || this.input.focus({ preventScroll: true }));
    this.observer.observe(box);
    const before = this.size.join();
    this.measure();
    if (this.phase === 'live' && this.size.join() !== before) this.say({ size: this.size });
  }

  /** @param {any} controls */
  draw(controls) {
    const state = { opening: badge('move', 'Opening'), live: badge('ok', 'Open'), ended: badge(this.why ? 'bad' : 'off', 'Ended') }[this.phase];
    return h('section', { class: 'card term-card' },
      h('div', { class: 'filters' }, controls, state, this.back ? button({ label: `${this.back} rows back: to the newest`, run: () => this.look(0) }) : null, this.phase === 'ended' ? button({ label: 'Open again', id: 'again', run: () => { this.begin(); this.redraw(); } }) : null),
      this.phase === 'ended' ? h('p', { class: 'small', role: 'status' }, this.why ? this.why.charAt(0).toUpperCase() + this.why.slice(1) : 'The shell has ended.') : null,
      h('div', { class: 'term', ref: (/** @type {HTMLElement} */ box) => this.attach(box), gone: () => this.observer.disconnect() }),
      h('p', { class: 'muted small', id: 'term-help' }, h('kbd', null, 'Shift Esc'), ' leaves the terminal, ', h('kbd', null, 'Shift PageUp'), ' looks back, ', h('kbd', null, 'Ctrl Shift C'), ' or a selection and ', h('kbd', null, 'Ctrl C'), ' copies.'));
  }
}
