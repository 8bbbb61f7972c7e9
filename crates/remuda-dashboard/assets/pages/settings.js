// Settings of the server, with their defaults.

import { mergePatch, v1 } from '../core/api.js';
import { h } from '../core/dom.js';
import { SETTING, may } from '../core/objects.js';
import { badge, button, empty, pageHead, phase } from '../parts/basics.js';
import { openDialog, toast } from '../parts/layers.js';
import { filterBar } from '../parts/table.js';

/** A setting that is not set shows its default. @param {any} setting */
export const isSet = (setting) => Boolean(setting.value) && setting.value !== setting.default;

/** @param {any} ctx */
export function settingsPage(ctx) {
  const settings = ctx.list({ type: SETTING, sort: 'metadata.name' }, { size: 1000 });

  /** @param {any} setting */
  async function edit(setting) {
    let value = setting.value || '';
    let error = '';
    const save = async (/** @type {string} */ next, /** @type {(result?: any) => void} */ close, /** @type {() => void} */ redraw) => {
      try {
        await mergePatch(v1('', SETTING, setting.id), { value: next });
        close(true);
      } catch (failed) {
        error = /** @type {any} */ (failed).message;
        redraw();
      }
    };
    const saved = await openDialog((close, redraw) => h('form', { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); save(value, close, redraw); } }, h('h2', { class: 'mono' }, setting.metadata.name), h('div', { class: 'dialog-body' },
      h('label', { class: 'field' }, h('span', null, 'Value'), h('textarea', { rows: 3, value, autofocus: true, spellcheck: 'false', oninput: (/** @type {any} */ e) => { value = e.target.value; } })),
      setting.default ? h('p', { class: 'muted small wrap' }, `Default: ${setting.default}`) : null, error ? h('p', { class: 'error', role: 'alert' }, error) : null),
    h('div', { class: 'act' }, isSet(setting) ? button({ label: 'Back to the default', run: () => save('', close, redraw) }) : null, button({ label: 'Cancel', run: () => close() }), button({ label: 'Save', kind: 'primary', type: 'submit' }))), { label: `Setting ${setting.metadata.name}` });
    if (saved) {
      toast(`${setting.metadata.name} was changed`);
      settings.refresh();
    }
  }

  return {
    title: 'Settings',
    render() {
      const q = (ctx.query.get('q') || '').toLowerCase();
      const only = ctx.query.get('state') === 'set';
      const shown = settings.items.filter((/** @type {any} */ one) => one.metadata.name.includes(q) && (!only || isSet(one)));
      return [
        pageHead({ title: 'Settings', sub: 'Of this server. What is not set has its default.' }),
        filterBar(ctx, { placeholder: 'Filter by name', chips: [['set', 'Changed']], count: settings.phase === 'ready' ? `${shown.length} settings` : '' }),
        h('section', { class: 'card' }, phase(settings, () => shown.length ? shown.map((/** @type {any} */ one) => h('div', { class: 'setting', key: one.id }, h('span', { class: 'mono' }, one.metadata.name),
          h('code', { class: 'mono muted', title: one.value || one.default || null }, one.value || one.default || '–'), h('span', { class: 'act' }, isSet(one) ? badge('move', 'Changed') : null, may(one, 'update') && one.source !== 'env' ? button({ label: 'Edit …', run: () => edit(one) }) : null))) : empty({ title: 'No setting fits' }), 10)),
      ];
    },
  };
}
