import './browser.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';
import { gzipSync } from 'node:zlib';
import { logQuery, planOf, planQuery, unpacked } from '../../assets/core/plan.js';

await import('../../assets/pages/machine.js');

const packed = (value) => gzipSync(JSON.stringify(value)).toString('base64');
const data = (entries) => ({ data: Object.fromEntries(Object.entries(entries).map(([key, value]) => [key, /output/.test(key) ? value : btoa(value)])) });

test('a plan stands where its agent says', async () => {
  const state = async (entries) => (await planOf(data(entries))).state.word;
  assert.deepEqual(await Promise.all([{}, { 'plan-state': 'pending' }, { 'plan-state': 'in-progress' }, { 'plan-state': 'succeeded' }, { 'plan-state': 'failed' }, { 'plan-state': 'in-progress', 'failure-count': '2' }, { 'applied-checksum': 'abc' }].map(state)),
    ['Not taken yet', 'Delivered', 'Running', 'Applied', 'Failed', 'Failing', 'Applied']);
  assert.equal((await planOf(undefined)).state.word, 'Not taken yet');
});

test('what steps wrote is read; of a failed run its own output and why', async () => {
  const applied = packed({ install: btoa('all good\n') });
  const failed = packed({ install: btoa('no space left\n'), other: '', 'remuda-agent-error': btoa('install: exit status 1') });
  const good = await planOf(data({ 'plan-state': 'succeeded', 'applied-output': applied, 'failed-output': failed }));
  assert.deepEqual([good.steps, good.error], [[{ name: 'install', text: 'all good\n' }], '']);
  const bad = await planOf(data({ 'plan-state': 'failed', 'failure-count': '3', 'applied-output': applied, 'failed-output': failed, 'last-apply-time': '2026-01-01T00:00:00Z' }));
  assert.deepEqual([bad.error, bad.failures, bad.at, bad.steps.map((one) => [one.name, one.text])], ['install: exit status 1', 3, '2026-01-01T00:00:00Z', [['install', 'no space left\n'], ['other', '']]]);
});

test('what agents pack is unpacked', async () => {
  const reference = '1f8b08000000000000ff002800d7ff7b2262223a22222c22696e7374616c6c223a22614756736247384b222c226e696c223a6e756c6c7d03004444247b28000000';
  assert.deepEqual(await unpacked(Buffer.from(reference, 'hex').toString('base64')), { b: '', install: 'aGVsbG8K', nil: null });
});

test('probes that fail come first, and what runs again and again has its last end', async () => {
  const plan = await planOf(data({ 'probe-statuses': JSON.stringify({ kubelet: { healthy: true }, etcd: { failureCount: 3 }, calico: {} }), 'applied-periodic-output': packed({ 'etcd-list': { exitCode: 1, stdout: btoa('a'), stderr: btoa('b'), failures: 2, lastFailedRunTime: 'then', lastSuccessfulRunTime: 'before' } }) }));
  assert.deepEqual(plan.probes.map((one) => [one.name, one.healthy, one.failures]), [['calico', false, 0], ['etcd', false, 3], ['kubelet', true, 0]]);
  assert.deepEqual(plan.periodic, [{ name: 'etcd-list', code: 1, text: 'a\nb', failures: 2, at: 'then' }]);
});

test('what an agent wrote wrongly, or much too large, is nothing', async () => {
  for (const none of [undefined, '', 'not base64!', btoa('no gzip'), packed([1]), packed(null), packed('x'), gzipSync('{"a":').toString('base64')]) assert.deepEqual(await unpacked(none), {});
  assert.deepEqual(await unpacked(gzipSync(`{"a":"${'x'.repeat(9 << 20)}"}`).toString('base64')), {});
  const plan = await planOf(data({ 'probe-statuses': '{broken', 'failure-count': 'many' }));
  assert.deepEqual([plan.probes, plan.failures], [[], 0]);
});

test('the plan itself stays on the server', () => {
  const query = planQuery('fleet-default', 'a",type="b');
  assert.ok(!query.include.some((one) => /\[(plan|appliedPlan)\]|^data$/.test(one)), query.include.join());
  assert.deepEqual(query.filter, ['type="rke.cattle.io/machine-plan"', 'metadata.labels[rke.cattle.io/machine-name]="a,type=b"']);
  assert.equal(logQuery('d', 'm').filter[1], 'metadata.labels[rke.cattle.io/infra-machine-name]="m"');
});
