import assert from 'node:assert/strict';
import test from 'node:test';
import { CLUSTER, MACHINE, bytes, causeOf, compareVersions, conditionTone, distroOf, machineBar, may, minorOf, plain, progressOf, providerOf, quantity, quoted, rolesOf, stateOf, stepsOf } from '../../assets/core/objects.js';

const object = (state, more = {}) => ({ type: CLUSTER, metadata: { state, ...more } });

test('a state has a tone, a word and one sentence', () => {
  assert.deepEqual(stateOf(object({ name: 'active' })), { tone: 'ok', word: 'Ready', name: 'active', message: '', rank: 4 });
  assert.equal(stateOf(object({ name: 'active', error: true, message: 'no quorum' })).tone, 'bad');
  assert.equal(stateOf(object({ name: 'updating', transitioning: true })).tone, 'move');
  assert.equal(stateOf(object({ name: 'never-heard-of' })).tone, 'warn');
  assert.equal(stateOf(object({ name: 'waitingfornoderef', transitioning: true })).word, 'Waiting for node');
  assert.equal(stateOf({}).word, 'Unknown');
  assert.equal(stateOf({ type: MACHINE, metadata: { state: { name: 'running' } } }).word, 'Ready');
  const ranks = ['error', 'updating', 'active'].map((name) => stateOf(object({ name })).rank);
  assert.deepEqual(ranks, [...ranks].sort());
});

test('the cause outranks the message, and what is well has none', () => {
  assert.equal(causeOf(object({ error: true, message: 'later' }, { cause: { code: 'X', message: 'first' } })), 'First');
  assert.equal(causeOf(object({ message: 'all is well' })), '');
});

test('what is blocked or has no link is not offered', () => {
  assert.equal(may({ links: { update: '/x' } }, 'update'), true);
  assert.equal(may({ links: { update: 'blocked' } }, 'update'), false);
  assert.equal(may({ links: {} }, 'remove'), false);
  assert.equal(may(null, 'remove'), false);
});

test('machines of pools add up', () => {
  const pool = (replicas, status, state = {}) => ({ spec: { replicas }, status, metadata: { state } });
  assert.deepEqual(machineBar([pool(3, { replicas: 3, availableReplicas: 3, upToDateReplicas: 3 })]), { desired: 3, ready: 3, changing: 0, broken: 0, missing: 0 });
  assert.deepEqual(machineBar([pool(3, { replicas: 2, availableReplicas: 1, upToDateReplicas: 2 }), pool(1, {})]), { desired: 4, ready: 1, changing: 1, broken: 0, missing: 2 });
  assert.equal(machineBar([pool(2, { replicas: 2, availableReplicas: 1, upToDateReplicas: 2 }, { error: true })]).broken, 1);
});

test('where machines come from', () => {
  assert.equal(providerOf({ spec: { rkeConfig: { machinePools: [{ machineConfigRef: { kind: 'LocalConfig' } }] } } }), 'Local');
  assert.equal(providerOf({ spec: { rkeConfig: {} } }), 'Custom');
  assert.equal(providerOf({ spec: {} }), 'Imported');
  assert.equal(distroOf('v1.35.1+rke2r1'), 'rke2');
  assert.equal(minorOf('v1.35.1+k3s1'), 'v1.35');
});

test('versions sort by their numbers', () => {
  assert.deepEqual(['v1.9.0', 'v1.35.1+k3s1', 'v1.35.1+k3s2', 'v1.34.9'].sort(compareVersions), ['v1.35.1+k3s2', 'v1.35.1+k3s1', 'v1.34.9', 'v1.9.0']);
});

test('steps of a machine', () => {
  const machine = { status: { conditions: [{ type: 'BootstrapConfigReady', status: 'True' }, { type: 'InfrastructureReady', status: 'False', message: 'quota', error: true }] } };
  const steps = stepsOf(machine);
  assert.deepEqual([steps[0].done, steps[1].failed, steps[1].message], [true, true, 'quota']);
  assert.ok(progressOf(machine) > 0 && progressOf(machine) < 0.5);
  assert.deepEqual(rolesOf({ metadata: { labels: { 'node-role.kubernetes.io/control-plane': '', 'rke.cattle.io/etcd-role': 'true' } } }), ['etcd', 'control plane']);
});

test('conditions that are good when false', () => {
  assert.equal(conditionTone({ type: 'Stalled', status: 'False' }), 'ok');
  assert.equal(conditionTone({ type: 'MemoryPressure', status: 'True' }), 'move');
  assert.equal(conditionTone({ type: 'Ready', status: 'False' }), 'warn');
  assert.equal(conditionTone({ type: 'Ready', status: 'False', error: true }), 'bad');
});

test('quantities', () => {
  assert.equal(quantity('24684096Ki'), 24684096 * 1024);
  assert.equal(quantity('250m'), 0.25);
  assert.ok(Number.isNaN(quantity('many')));
  assert.equal(bytes(quantity('24684096Ki')), '24 GiB');
});

test('an object is written without what is only shown', () => {
  const shown = { id: 'a/b', type: 'v1.secret', _type: 'Opaque', links: {}, actions: {}, kind: 'Secret', metadata: { name: 'b', state: {}, cause: {}, relationships: [], fields: [] }, status: { conditions: [{ type: 'A', status: 'True', error: false, transitioning: false }] } };
  assert.deepEqual(plain(shown), { type: 'Opaque', kind: 'Secret', metadata: { name: 'b' }, status: { conditions: [{ type: 'A', status: 'True' }] } });
  assert.equal('type' in plain({ type: CLUSTER, kind: 'Cluster', metadata: {} }), false);
  assert.ok(shown.id, 'the original is left alone');
});

test('values of filters are no syntax', () => {
  assert.equal(quoted('a",metadata.name~"b'), '"a,metadata.name~b"');
});
