import assert from 'node:assert/strict';
import test from 'node:test';
import { YamlError, fromYaml, toYaml } from '../../assets/core/yaml.js';

test('what is written is read back as it was', () => {
  const object = {
    apiVersion: 'v1', empty: {}, none: [], nothing: null, yes: true, number: -3, float: 1.5,
    words: ['true', 'null', '1', '1.0', '~', 'no: yes', '- a', '# x', '', ' x', 'x ', 'a: b', '@a', '{', "it's", '"q"', '0x1', '1e3', '2026-11-18T06:38:22Z', '👻', '\u0000', 'a\tb', '\\'],
    'odd key: yes': { '': 1, '-': 2, 'a#b': 3, 'with "quotes"': 4, 7: 5, true: 6 },
    text: 'one\n two\n\nthree\n', open: 'no end', many: 'end\n\n', spaced: ' first\nsecond', carriage: 'a\r\nb',
    list: [[1, [2]], { a: [{ b: 1, c: { d: [] } }, {}] }, null],
  };
  assert.deepEqual(fromYaml(toYaml(object)), object);
});

test('YAML as people write it', () => {
  assert.deepEqual(fromYaml('---\na: 1 # one\nb:\n- x: 1\n  y: [1, "2", {c: d}]\n- - p\n  - q\n-\n  z: \'it\'\'s\'\nc: {}\n"k:e": http://x:1/y\nd: |\n  one\n   two\n\ne: >-\n  folded\n  text\nf: a:b c\n'), {
    a: 1, b: [{ x: 1, y: [1, '2', { c: 'd' }] }, ['p', 'q'], { z: "it's" }], c: {}, 'k:e': 'http://x:1/y', d: 'one\n two\n', e: 'folded text', f: 'a:b c',
  });
  assert.equal(fromYaml('# nothing\n'), null);
});

test('what cannot be read says where', () => {
  for (const [text, line] of [['a: 1\na: 2', 2], ['a: &x 1', 1], ['a: "b', 1], ['a:\n  b: 1\n    c: 2', 3], ['a: [1, 2', 1], ['a: 1\n\tb: 2', 2], ['a: 1\n---\nb: 2', 2], ['a: 1\nb', 2]]) {
    assert.throws(() => fromYaml(text), (error) => error instanceof YamlError && error.line === line, JSON.stringify(text));
  }
  assert.throws(() => fromYaml('a: ' + '['.repeat(5000)), YamlError);
});

test('a key called __proto__ is a key', () => {
  const read = fromYaml('__proto__: {polluted: true}\n');
  assert.equal({}.polluted, undefined);
  assert.deepEqual(Object.keys(read), ['__proto__']);
});
