import test from 'node:test';
import assert from 'node:assert/strict';
import { keyMessage, lookOf, paletteColour, terminalPath } from '../../assets/core/terminal.js';

const event = (key, held = '') => ({ key, ctrlKey: held.includes('c'), altKey: held.includes('a'), shiftKey: held.includes('s'), metaKey: held.includes('m'), graph: held.includes('g') });

test('keys are for the terminal, but for those that copy, paste and leave', () => {
  assert.deepEqual(keyMessage(event('a'), false), { key: 'a' });
  assert.deepEqual(keyMessage(event('A', 's'), false), { key: 'A' });
  assert.deepEqual(keyMessage(event('c', 'c'), false), { key: 'c', control: true });
  assert.deepEqual(keyMessage(event('k', 'c'), false), { key: 'k', control: true });
  assert.deepEqual(keyMessage(event('ArrowUp', 'a'), false), { key: 'ArrowUp', alt: true });
  assert.deepEqual(keyMessage(event('Tab', 's'), false), { key: 'Tab', shift: true });
  assert.deepEqual(keyMessage(event('@', 'cag'), false), { text: '@' });
  for (const [key, held, selected] of [['c', 'c', true], ['v', 'c', false], ['C', 'cs', false], ['r', 'm', false], ['Escape', 's', false], ['PageUp', 's', false], ['Shift', 's', false], ['MediaPlay', '', false]]) {
    assert.equal(keyMessage(event(key, held), selected), null, `${held} ${key}`);
  }
});

test('colours and looks are classes or colours, and never anything else', () => {
  assert.equal(paletteColour(16), 'rgb(0, 0, 0)');
  assert.equal(paletteColour(231), 'rgb(255, 255, 255)');
  assert.equal(paletteColour(232), 'rgb(8, 8, 8)');
  assert.equal(paletteColour(255), 'rgb(238, 238, 238)');
  assert.deepEqual(lookOf(['x']), { color: '', background: '', className: '' });
  assert.deepEqual(lookOf(['x', 1, null, 9]), { color: '', background: '', className: 't-bold t-under t-f1' });
  assert.deepEqual(lookOf(['x', null, null, 16]).className, 't-inverse');
  assert.equal(lookOf(['x', 2, null, 16]).className, 't-b2');
  assert.deepEqual(lookOf(['x', '#010203', 200]).color, '#010203');
  assert.equal(lookOf(['x', 'red;background:url(x)', null]).color, '');
});

test('a terminal is asked for by its place', () => {
  assert.equal(terminalPath({ cluster: 'c-1', namespace: 'a', pod: 'p', container: '', columns: 80, rows: 24 }), '/remuda/v1/terminal?cluster=c-1&namespace=a&pod=p&container=&columns=80&rows=24');
});
