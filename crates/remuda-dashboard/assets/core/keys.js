// Keys that do something wherever one is.

/** @typedef {{keys: string, what: string, run: () => void, when?: () => boolean}} Shortcut */

/** Whether a key belongs to what is being typed into. @param {EventTarget | null} target */
export function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName);
}

/** As it is written in lists of shortcuts. @param {{key: string, ctrlKey?: boolean, metaKey?: boolean}} event */
export function nameOf(event) {
  const key = event.key.length === 1 ? event.key : event.key.toLowerCase();
  return (event.ctrlKey || event.metaKey ? 'ctrl+' : '') + key;
}

export class Keys {
  constructor() {
    /** @type {Shortcut[]} */
    this.global = [];
    /** Of the page that is shown. @type {Shortcut[]} */
    this.page = [];
    this.first = '';
    this.timer = 0;
    document.addEventListener('keydown', (event) => this.pressed(event));
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (event.defaultPrevented || event.altKey || event.isComposing) return;
    const name = nameOf(event);
    const typing = isTyping(event.target);
    if (typing && !name.startsWith('ctrl+')) return;
    if (document.querySelector('dialog[open]') && name !== 'ctrl+k') return;
    const all = [...this.page, ...this.global].filter((one) => !one.when || one.when());
    const sequence = this.first ? `${this.first} ${name}` : name;
    const found = all.find((one) => one.keys.split(' or ').includes(sequence));
    clearTimeout(this.timer);
    this.first = '';
    if (found) {
      event.preventDefault();
      found.run();
    } else if (all.some((one) => one.keys.split(' or ').some((keys) => keys.startsWith(`${name} `)))) {
      this.first = name;
      this.timer = setTimeout(() => (this.first = ''), 1200);
    }
  }
}
