// What lies above a page: dialogs, menus, toasts, the palette. The topmost closes with Escape.

import { h, render } from '../core/dom.js';
import { button } from './basics.js';
import { icon } from './icons.js';

const layers = () => /** @type {HTMLElement} */ (document.getElementById('layers'));

/**
 * A dialog of the browser's own kind: focus stays in it and returns where it was.
 * @param {(close: (result?: any) => void, redraw: () => void) => any} draw
 * @param {{class?: string, label: string, sticky?: boolean}} options
 * @returns {Promise<any>} what it was closed with
 */
export function openDialog(draw, options) {
  return new Promise((resolve) => {
    const dialog = document.createElement('dialog');
    dialog.className = `dialog ${options.class || ''}`;
    dialog.setAttribute('aria-label', options.label);
    layers().append(dialog);
    let over = false;
    const close = (/** @type {any} */ result = undefined) => {
      if (over) return;
      over = true;
      dialog.close();
      dialog.remove();
      resolve(result);
    };
    const redraw = () => over || render(dialog, draw(close, redraw));
    dialog.addEventListener('cancel', (event) => {
      event.preventDefault();
      if (!options.sticky) close();
    });
    dialog.addEventListener('click', (event) => {
      if (event.target === dialog && !options.sticky) close();
    });
    redraw();
    dialog.showModal();
    /** @type {HTMLElement | null} */ (dialog.querySelector('[autofocus]'))?.focus();
  });
}

/**
 * Says what will happen, and does it; a refusal stays in the dialog.
 * @param {{title: string, body: any | ((redraw: () => void) => any), action: string, danger?: boolean, typed?: string, wide?: boolean, run: () => Promise<any>}} options
 */
export function confirm(options) {
  let typed = '';
  let busy = false;
  let error = '';
  return openDialog((close, redraw) => {
    const ready = !busy && (!options.typed || typed === options.typed);
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      if (!ready) return;
      busy = true;
      error = '';
      redraw();
      try {
        await options.run();
        close(true);
      } catch (failed) {
        busy = false;
        error = /** @type {any} */ (failed)?.message || String(failed);
        redraw();
      }
    };
    return h('form', { onsubmit: submit, novalidate: true }, h('h2', null, options.title), h('div', { class: 'dialog-body' }, typeof options.body === 'function' ? options.body(redraw) : options.body,
      options.typed ? h('label', { class: 'field' }, h('span', null, 'Type ', h('b', { class: 'mono' }, options.typed), ' to go on'),
        h('input', { name: 'typed', autofocus: true, autocomplete: 'off', spellcheck: 'false', value: typed, oninput: (/** @type {any} */ e) => { typed = e.target.value; redraw(); } })) : null,
      error ? h('p', { class: 'error', role: 'alert' }, error) : null),
      h('div', { class: 'act' }, button({ label: 'Cancel', run: () => close() }),
        button({ label: busy ? 'Working …' : options.action, kind: options.danger ? 'danger' : 'primary', type: 'submit', disabled: !ready })));
  }, { label: options.title, class: options.wide ? 'wide' : '' });
}

/** @typedef {{label: string, icon?: string, run?: () => void, href?: string, danger?: boolean}} MenuItem */

/** @param {Element} anchor @param {MenuItem[]} items */
export function openMenu(anchor, items) {
  const box = anchor.getBoundingClientRect();
  const menu = document.createElement('dialog');
  menu.className = 'menu';
  menu.setAttribute('aria-label', 'Actions');
  layers().append(menu);
  const close = () => {
    menu.close();
    menu.remove();
  };
  render(menu, h('div', { role: 'menu' }, items.map((item) => {
    const content = [item.icon ? icon(item.icon) : null, h('span', null, item.label)];
    const shared = { role: 'menuitem', class: `menu-item ${item.danger ? 'danger' : ''}` };
    if (item.href) return h('a', { ...shared, href: item.href, onclick: close }, content);
    return h('button', { ...shared, type: 'button', onclick: () => { close(); item.run?.(); } }, content);
  })));
  menu.addEventListener('cancel', (event) => { event.preventDefault(); close(); });
  menu.addEventListener('click', (event) => event.target === menu && close());
  menu.addEventListener('keydown', (event) => {
    const all = /** @type {HTMLElement[]} */ ([...menu.querySelectorAll('[role=menuitem]')]);
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const place = all.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    all[(place + step + all.length) % all.length]?.focus();
  });
  menu.showModal();
  const own = menu.getBoundingClientRect();
  menu.style.setProperty('left', `${Math.max(8, Math.min(box.right - own.width, innerWidth - own.width - 8))}px`);
  menu.style.setProperty('top', `${Math.max(8, Math.min(box.bottom + 4, innerHeight - own.height - 8))}px`);
}

/** @type {{id: number, text: any, tone: string}[]} */
let toasts = [];
let count = 0;

/** @param {any} text @param {'ok' | 'bad'} [tone] */
export function toast(text, tone = 'ok') {
  const id = (count += 1);
  toasts = [...toasts, { id, text, tone }].slice(-4);
  showToasts();
  setTimeout(() => dropToast(id), tone === 'bad' ? 10_000 : 5000);
}

/** @param {number} id */
function dropToast(id) {
  toasts = toasts.filter((one) => one.id !== id);
  showToasts();
}

function showToasts() {
  const place = document.getElementById('toasts');
  if (place) render(place, toasts.map((one) => h('div', { key: one.id, class: `toast ${one.tone}` }, h('span', null, one.text),
    h('button', { type: 'button', class: 'ghost', 'aria-label': 'Dismiss', onclick: () => dropToast(one.id) }, icon('close', { size: 14 })))));
}

/** @param {string} text */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast('Copied');
  } catch {
    toast('The browser does not let this page copy', 'bad');
  }
}

/** Gives a text to the person as a file. @param {string} name @param {string} text @param {string} [type] */
export function save(name, text, type = 'application/yaml') {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
