import './browser.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';
import { operationsOf } from '../../assets/core/operations.js';
import { QUERY, failureOf, keyOf, webhookOf, webhookSecret } from '../../assets/core/webhooks.js';

await import('../../assets/pages/operations.js');
await import('../../assets/pages/notifications.js');

const cluster = (name, rkeConfig, state = {}, more = {}) => ({ id: `d/${name}`, metadata: { name, namespace: 'd', state, ...more }, spec: { kubernetesVersion: 'v1.35.2+k3s1', rkeConfig } });
const plane = (name, status) => ({ metadata: { name, namespace: 'd' }, status });
const told = (clusters, planes) => operationsOf(clusters, planes).map((one) => [one.cluster.metadata.name, one.what, one.phase, one.tone]);
const moving = { name: 'updating', transitioning: true, message: 'draining cp-1' };

test('what is under way is named by what it is', () => {
  const applied = (kubernetesVersion) => ({ appliedSpec: { kubernetesVersion } });
  assert.deepEqual(told([cluster('new', {}, moving), cluster('old', {}, moving), cluster('same', {}, moving), cluster('well', {}, { name: 'active' }), cluster('seen', undefined, { name: 'pending', transitioning: true })],
    [plane('new', {}), plane('old', applied('v1.35.1+k3s1')), plane('same', applied('v1.35.2+k3s1')), plane('well', applied('v1.35.1+k3s1'))]),
  [['new', 'Creation', 'updating', 'move'], ['old', 'Upgrade v1.35.1+k3s1 to v1.35.2+k3s1', 'updating', 'move'], ['same', 'Change', 'updating', 'move'], ['seen', 'Change', 'pending', 'move']]);
});

test('an operation that was asked for is told once, failed ones first', () => {
  const restore = { etcdSnapshotRestore: { generation: 2 } };
  const status = (phase) => ({ etcdSnapshotRestore: { generation: 2 }, etcdSnapshotRestorePhase: phase, waitingFor: { code: 'Restore', machines: ['m'] } });
  const clusters = [cluster('a', restore, moving), cluster('b', restore, moving), cluster('c', restore, { name: 'active' }), cluster('d', { rotateCertificates: { generation: 1 } }, { name: 'active' })];
  const planes = [plane('a', status('PostRestorePodCleanup')), plane('b', status('Failed')), plane('c', status('Finished')), plane('d', { certificateRotationGeneration: 0 })];
  assert.deepEqual(told(clusters, planes), [['b', 'Restore', 'failed', 'bad'], ['a', 'Restore', 'post restore pod cleanup', 'move'], ['d', 'Rotation of certificates', 'under way', 'move']]);
  const [first, second] = operationsOf(clusters, planes);
  assert.deepEqual([first.machines, second.message], [['m'], 'Draining cp-1']);
  assert.deepEqual(told([cluster('e', {}, moving)], [plane('e', { rotateEncryptionKeysPhase: 'PostRotationRestart' })]), [['e', 'Rotation of encryption keys', 'post rotation restart', 'move']]);
  assert.deepEqual(told([cluster('e', {}, { name: 'active' })], [plane('e', { rotateEncryptionKeysPhase: 'Done' })]), []);
});

test('a cluster that goes does nothing else', () => {
  const going = { deletionTimestamp: '2026-01-01T00:00:00Z' };
  assert.deepEqual(told([cluster('a', { etcdSnapshotRestore: { generation: 1 } }, { name: 'removing', transitioning: true }, going), cluster('b', {}, { name: 'removing', error: true, message: 'stuck' }, going)], []), [['b', 'Deletion', 'under way', 'bad'], ['a', 'Deletion', 'under way', 'move']]);
});

test('a webhook is written so that the server follows it', () => {
  const given = { name: ' ops ', url: ' https://x/y ', topics: ['broken', 'fixed', 'expiring', 'update-available'], after: '', authorities: '' };
  assert.deepEqual(webhookSecret(given, 'whsec_k'), { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'ops', namespace: 'cattle-system' }, type: 'remuda.io/webhook', stringData: { url: 'https://x/y', key: 'whsec_k' } });
  assert.deepEqual(webhookSecret({ ...given, topics: ['fixed'], after: '5m', authorities: 'PEM' }, 'k').stringData, { url: 'https://x/y', key: 'k', events: 'fixed', after: '5m', 'ca.crt': 'PEM' });
  const key = keyOf(new Uint8Array(32).fill(255));
  assert.ok(key.startsWith('whsec_') && atob(key.slice(6)).length === 32);
});

test('what is read of a webhook is what it tells, and nothing secret', () => {
  assert.deepEqual(webhookOf({ data: { events: btoa(' broken, fixed'), after: btoa('10m') } }), { topics: ['broken', 'fixed'], after: '10m' });
  assert.deepEqual(webhookOf({}), { topics: ['broken', 'fixed', 'expiring', 'update-available'], after: '2m' });
  assert.ok(QUERY.include.every((one) => one === 'metadata' || /^data\.(events|after)$/.test(one)));
  const event = (name, _type, kind = 'Secret') => ({ _type, message: name, involvedObject: { kind, name } });
  const secret = { metadata: { name: 'ops' } };
  assert.equal(failureOf(secret, [event('other', 'Warning'), event('ops', 'Normal'), event('ops', 'Warning', 'Pod')]), null);
  assert.equal(failureOf(secret, [event('ops', 'Warning')])?.message, 'ops');
});
