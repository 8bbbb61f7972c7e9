import assert from 'node:assert/strict';
import test from 'node:test';
import { certificateServices, contentOf, loses, modesOf, nextOperation, operationOf, reportOf, restorable, snapshotState } from '../../assets/core/snapshots.js';

const VERIFICATION = 'remuda.io/snapshot-verification';
const of = (report, more = {}) => ({ metadata: { name: 's', annotations: { [VERIFICATION]: typeof report === 'string' ? report : JSON.stringify(report) }, ...more.metadata }, snapshotFile: { status: 'successful', createdAt: '2026-11-17T10:00:00Z', ...more.file } });
const whole = of({ file: 'f', verified: { revision: 7, keys: 5, size: 100, objects: { '/registry/pods': 3, '/registry/apps/deployments': 1, '/other/pods': 1 } } });

test('a snapshot is called what the command line calls it', () => {
  assert.deepEqual([snapshotState(whole).tone, snapshotState(whole).word], ['ok', 'Verified']);
  const damaged = snapshotState(of({ file: 'f', code: 'ChecksumMismatch', message: 'a byte' }));
  assert.deepEqual(damaged, { tone: 'bad', word: 'ChecksumMismatch', why: 'a byte' });
  assert.equal(snapshotState(of('null')).word, 'Taken');
  assert.equal(snapshotState(of('{nonsense')).word, 'Taken');
  assert.deepEqual(snapshotState(of('null', { file: { status: 'failed', message: 'no space' } })), { tone: 'bad', word: 'Failed', why: 'no space' });
  assert.equal(snapshotState(of('null', { metadata: { deletionTimestamp: 'x' } })).word, 'Deleting');
  assert.equal(reportOf({}), null);
});

test('only what may be whole is restored from', () => {
  assert.ok(restorable(whole) && restorable(of('null')));
  assert.ok(!restorable(of({ code: 'Cut' })) && !restorable(of('null', { file: { status: 'failed' } })));
});

test('what a restore costs is said', () => {
  assert.match(loses(whole, 'demo', Date.parse('2026-11-17T10:05:00Z')), /^demo becomes what it was 5 min ago, at revision 7\. Everything written to it since then is lost/);
  assert.match(loses({}, 'demo', 0), /what it was then\./);
  assert.deepEqual(contentOf(whole), [['pods', 4], ['deployments', 1]]);
});

test('modes are those of the snapshot, and none that is not known', () => {
  const modes = (text) => modesOf({ metadata: { annotations: { 'etcdsnapshot.rke.io/restore-mode-options': text } } });
  assert.deepEqual(modes('none,kubernetesVersion,all'), ['none', 'kubernetesVersion', 'all']);
  assert.deepEqual(modes('all, made-up'), ['all']);
  assert.deepEqual(modesOf({}), ['none']);
});

test('an operation is asked for by its next generation, and nothing of the last one is left', () => {
  const cluster = { metadata: { name: 'c' }, spec: { rkeConfig: { etcdSnapshotRestore: { generation: 3, name: 'old', s3: {} }, other: 1 } } };
  const next = nextOperation(cluster, 'etcdSnapshotRestore', { name: 'new', restoreRKEConfig: 'none' });
  assert.deepEqual(next.spec.rkeConfig, { etcdSnapshotRestore: { generation: 4, name: 'new', restoreRKEConfig: 'none' }, other: 1 });
  assert.equal(cluster.spec.rkeConfig.etcdSnapshotRestore.generation, 3, 'what was given is left alone');
  assert.equal(nextOperation(cluster, 'etcdSnapshotCreate', {}).spec.rkeConfig.etcdSnapshotCreate.generation, 1);
  assert.throws(() => nextOperation({ metadata: { name: 'c' }, spec: {} }, 'etcdSnapshotCreate', {}), /was not made here/);
});

test('an operation is under way until its own generation has ended', () => {
  const cluster = { spec: { rkeConfig: { etcdSnapshotCreate: { generation: 2 } } } };
  const plane = (generation, phase) => ({ status: { etcdSnapshotCreate: { generation }, etcdSnapshotCreatePhase: phase, conditions: [{ type: 'EtcdSnapshotCreated', message: 'disk full' }] } });
  assert.equal(operationOf(cluster, plane(1, 'Finished')).phase, 'Asked for', 'that of before is not it');
  assert.equal(operationOf(cluster, plane(2, 'Started')).phase, 'Started');
  assert.deepEqual(operationOf(cluster, plane(2, 'Failed')), { what: 'Snapshot', phase: 'Failed', failed: true, message: 'disk full' });
  assert.equal(operationOf(cluster, plane(2, 'Finished')), null);
  assert.equal(operationOf({ spec: { rkeConfig: {} } }, {}), null);
  assert.match(operationOf({ spec: { rkeConfig: { rotateCertificates: { generation: 1 } } } }, { status: {} }).what, /certificates/);
  assert.equal(operationOf({ spec: { rkeConfig: { rotateCertificates: { generation: 1 } } } }, { status: { certificateRotationGeneration: 1 } }), null);
});

test('services of certificates are those of the distribution', () => {
  assert.ok(certificateServices('k3s').includes('k3s-server') && !certificateServices('k3s').includes('rke2-server'));
});
