import './browser.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';
import { Past, allocatable, axisTop, fullness, podRequest, requested, roomOf, roundUp, total } from '../../assets/core/room.js';

const { nearest, pathOf, thinned } = await import('../../assets/parts/plot.js');

const asks = (cpu, more = {}) => ({ resources: { requests: { cpu } }, ...more });
const pod = (cpu, phase, nodeName) => ({ status: { phase }, spec: { nodeName, containers: [asks(cpu), {}] } });
const node = (name, cpu, memory = '1Gi', pods = '10') => ({ metadata: { name }, status: { allocatable: { cpu, memory, pods } } });

test('room is what pods have asked for, of what nodes have', () => {
  assert.equal(requested([pod('250m', 'Running'), pod('1', 'Pending'), pod('4', 'Succeeded'), pod('2', 'Failed')], 'cpu'), 1.25);
  assert.equal(allocatable([node('a', '2'), {}, node('b', 'nonsense')], 'cpu'), 2);
});

test('a pod is counted as the scheduler counts it', () => {
  const of = (spec) => podRequest({ spec }, 'cpu');
  assert.equal(of({ containers: [asks('1'), asks('500m')], initContainers: [asks('1')] }), 1.5, 'init containers come before');
  assert.equal(of({ containers: [asks('1')], initContainers: [asks('3')] }), 3);
  assert.equal(of({ containers: [asks('1')], initContainers: [asks('500m', { restartPolicy: 'Always' }), asks('1')] }), 1.5, 'a sidecar stays');
  assert.equal(of({ containers: [asks('1')], initContainers: [asks('500m', { restartPolicy: 'Always' }), asks('2')] }), 2.5);
  assert.equal(of({ containers: [asks('1')], overhead: { cpu: '250m' } }), 1.25);
  assert.equal(podRequest({}, 'cpu'), 0);
});

test('the fullest node comes first, by what it uses where that is known', () => {
  const pods = [pod('3', 'Running', 'a'), pod('1', 'Running', 'b'), pod('1', 'Pending', undefined), pod('9', 'Succeeded', 'b')];
  const nodes = [node('a', '4'), node('b', '4')];
  const asked = roomOf(nodes, pods, null);
  assert.deepEqual(asked.map((row) => [row.name, row.asked.cpu, row.asked.pods, row.used]), [['a', 3, 1, null], ['b', 1, 1, null]]);
  const used = roomOf(nodes, pods, [{ metadata: { name: 'b' }, usage: { cpu: '3900m', memory: '1Mi' } }]);
  assert.deepEqual(used.map((row) => row.name), ['b', 'a']);
  assert.equal(fullness(used[0]), 0.975);
  assert.equal(fullness({ ...used[0], has: { cpu: 0, memory: 0, pods: 0 } }), 0, 'a node without room is no reason to divide by nothing');
});

test('all nodes together; what is not measured is not made up', () => {
  const rows = roomOf([node('a', '4'), node('b', '4')], [pod('3', 'Running', 'a')], null);
  assert.deepEqual([total(rows).used, total(rows).asked.pods, total(rows).has.cpu], [null, 1, 8]);
  const measured = roomOf([node('a', '4'), node('b', '4')], [], [{ metadata: { name: 'a' }, usage: { cpu: '250m', memory: '1Ki' } }]);
  assert.deepEqual(total(measured).used, { cpu: 0.25, memory: 1024 });
});

test('an hour is remembered, of a few things', () => {
  const past = new Past();
  const sample = (at) => ({ at, asked: { cpu: 1, memory: 1, pods: 1 }, used: null });
  for (let turn = 0; turn < 1000; turn += 1) past.add('a', sample(turn * 15_000));
  assert.equal(past.of('a').length, 240);
  assert.equal(past.of('a').at(-1).at, 999 * 15_000);
  past.add('a', sample(999 * 15_000 + 100));
  assert.equal(past.of('a').length, 240, 'samples that are close are one');
  for (let turn = 0; turn < 100; turn += 1) {
    past.add(`b${turn}`, sample(0));
    past.add('a', sample(20_000_000 + turn * 15_000));
  }
  assert.ok(past.kept.size <= 40 && past.of('a').length > 0 && past.of('b0').length === 0, 'what was looked at last stays');
});

test('an axis ends at a round number, or at all there is', () => {
  assert.deepEqual([0, 0.7, 1, 7.3, 88, 1234].map((value) => roundUp(value)), [1, 0.8, 1, 8, 100, 1500]);
  assert.equal(roundUp(5.5 * 2 ** 30, true), 6 * 2 ** 30);
  assert.equal(axisTop(5, 8), 8);
  assert.equal(axisTop(9, 8), 9, 'more than there is fits in');
  assert.equal(axisTop(0.1, 64), 0.15, 'a little of much is still seen');
  assert.equal(axisTop(3, 0), 4);
});

test('values are drawn where they belong, and a gap is one', () => {
  const axes = { from: 0, to: 100, top: 10 };
  assert.deepEqual(pathOf([[0, 0], [50, 5], [100, 20]], axes, 60), [[[4, 94], [160, 54], [316, 14]]]);
  assert.deepEqual(pathOf([[0, 0], [100, 10]], axes, 60), [[[4, 94]], [[316, 14]]]);
  assert.deepEqual(pathOf([[7, 5]], { from: 7, to: 7, top: 10 }, 60), [[[316, 54]]]);
  assert.deepEqual(pathOf([], axes, 60), []);
});

test('the pointer finds the nearest value, and a table has a few of them', () => {
  assert.equal(nearest([0, 10, 20], 14), 1);
  assert.equal(nearest([], 5), -1);
  assert.deepEqual(thinned(Array.from({ length: 100 }, (_, at) => at), 4), [0, 33, 66, 99]);
  assert.deepEqual(thinned([1, 2], 4), [1, 2]);
});
