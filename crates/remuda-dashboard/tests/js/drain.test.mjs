import './browser.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';
import { drainOf, drainRequest, offers } from '../../assets/core/drain.js';

await import('../../assets/pages/nodes.js');

const node = (condition) => ({ status: { conditions: condition ? [{ type: 'Ready', status: 'True' }, { type: 'Drained', ...condition }] : [] } });

test('how a drain stands', () => {
  assert.equal(drainOf(node(null)), null);
  assert.equal(drainOf(undefined), null);
  assert.deepEqual([{ status: 'True' }, { status: 'Unknown' }, { status: 'False', reason: 'DrainFailed', message: 'late' }, { status: 'False', reason: 'Interrupted' }].map((one) => { const { word, why } = drainOf(node(one)); return [word, why]; }), [['Drained', ''], ['Draining', ''], ['Drain failed', 'late'], ['Drain failed', 'Interrupted']]);
  assert.ok(offers({ actions: { drain: '/x' } }, 'drain') && !offers({ actions: {} }, 'drain') && !offers(undefined, 'stopDrain'));
});

test('a drain is asked for as it was chosen, and what makes no sense is not asked for', () => {
  const given = { deleteLocalData: true, force: false, grace: '', timeout: '' };
  assert.deepEqual(drainRequest(given), { deleteLocalData: true, force: false, ignoreDaemonSets: true, gracePeriod: -1, timeout: 120 });
  assert.deepEqual([drainRequest({ ...given, grace: ' 0 ', timeout: '10800' })].map((one) => [one.gracePeriod, one.timeout]), [[0, 10_800]]);
  for (const wrong of [{ timeout: '0' }, { timeout: '10801' }, { timeout: '1.5' }, { timeout: '-1' }, { timeout: 'soon' }, { grace: '-1' }, { grace: 'x' }]) assert.throws(() => drainRequest({ ...given, ...wrong }), /seconds/, JSON.stringify(wrong));
});
