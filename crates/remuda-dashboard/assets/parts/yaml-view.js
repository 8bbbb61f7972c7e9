// An object as YAML to read: line numbers, colours, copy and download.

import { h } from '../core/dom.js';
import { plain } from '../core/objects.js';
import { toYaml } from '../core/yaml.js';
import { button } from './basics.js';
import { copy, save } from './layers.js';

/** Longer texts are shown without colours: each coloured word is an element. */
const COLOURED = 3000;

/** @param {string} line */
function coloured(line) {
  const found = /^(\s*(?:- )*)([^\s:#"'|>-][^:]*?|"(?:[^"\\]|\\.)*")(:)(\s.*)?$/.exec(line);
  if (!found) return line;
  const value = found[4] || '';
  const kind = /^\s(".*"|[|>][+-]?)$/.test(value) ? 's' : /^\s(true|false|null|-?\d[\d.]*|\[\]|\{\})$/.test(value) ? 'v' : '';
  return [found[1], h('span', { class: 'k' }, found[2]), found[3], kind ? h('span', { class: kind }, value) : value];
}

/** @param {string} text */
export function code(text) {
  const lines = text.replace(/\n$/, '').split('\n');
  return h('pre', { class: 'code', tabindex: 0, 'aria-label': 'YAML' }, lines.map((line, at) => h('span', { class: 'l', key: at }, lines.length > COLOURED ? line : coloured(line), '\n')));
}

/** @param {any} object */
export function yamlView(object) {
  const text = toYaml(plain(object));
  return h('section', { class: 'card' }, h('div', { class: 'card-head' }, h('h2', null, 'YAML'),
    h('div', { class: 'act' }, button({ label: 'Copy', icon: 'copy', run: () => copy(text) }), button({ label: 'Download', icon: 'download', run: () => save(`${object.metadata.name}.yaml`, text) }))), code(text));
}

/** A command one can paste. @param {string} text @param {string} [label] */
export const command = (text, label) =>
  h('div', { class: 'command' }, h('code', { 'aria-label': label }, text), button({ icon: 'copy', label: '', title: 'Copy the command', kind: 'square', run: () => copy(text) }));

/** Commands look in the usual workspace by themselves. @param {string} namespace */
export const flag = (namespace) => (namespace === 'fleet-default' ? '' : ` -n ${namespace}`);

/** How to do the same with the tools. @param {string[]} lines @param {string} path of the API */
export const tools = (lines, path) =>
  h('section', { class: 'card' }, h('h2', null, 'The same on the command line'), h('div', { class: 'tools' }, lines.map((line) => command(line)), h('p', { class: 'muted small mono' }, `GET ${path}`)));
