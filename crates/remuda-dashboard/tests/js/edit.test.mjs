import assert from 'node:assert/strict';
import test from 'node:test';
import { diff, draft, effects, errorsAt, errorsElsewhere, fieldErrors, lineOf, neededConfigs, read, renamed, write } from '../../assets/core/edit.js';

test('values by path', () => {
  const before = { spec: { pools: [{ name: 'a' }] } };
  const after = write(before, 'spec.pools[0].quantity', 3);
  assert.equal(read(after, 'spec.pools[0].quantity'), 3);
  assert.equal(read(before, 'spec.pools[0].quantity'), undefined, 'the original is left alone');
  assert.deepEqual(write(after, 'spec.pools[0].quantity', undefined), before);
  assert.deepEqual(write({}, 'a.b[0].c', 1), { a: { b: [{ c: 1 }] } });
});

test('errors of the server are at their fields', () => {
  const errors = fieldErrors({ message: 'invalid', details: { causes: [{ field: 'spec.pools[0].name', message: 'bad (e.g. x)' }, { field: 'spec.pools[10].name', message: 'worse' }, { field: 'spec.other', message: 'odd' }] } });
  assert.deepEqual(errorsAt(errors, 'spec.pools[0].name'), ['bad']);
  assert.deepEqual(errorsAt(errors, 'spec.pools[1]'), [], '10 is not below 1');
  assert.deepEqual(errorsElsewhere(errors, ['spec.pools']), ['spec.other: odd']);
  assert.deepEqual([...fieldErrors({ message: 'strict decoding error: unknown field "spec.x"' })], [['spec.x', ['There is no such field.']]]);
  assert.deepEqual([...fieldErrors({ message: 'no' })], [['', ['no']]]);
  assert.equal(fieldErrors(null).size, 0);
});

test('a diff has what changed and a little around it', () => {
  const lines = Array.from({ length: 30 }, (_, at) => `line ${at}`);
  const changed = diff(lines.join('\n'), lines.map((line, at) => (at === 15 ? 'new' : line)).filter((_, at) => at !== 20).join('\n'));
  assert.deepEqual(changed.filter((line) => line.kind === 'add').map((line) => line.text), ['new']);
  assert.deepEqual(changed.filter((line) => line.kind === 'cut').map((line) => line.text), ['line 15', 'line 20']);
  assert.equal(changed[0].kind, 'skip');
  assert.ok(changed.length < 20);
});

test('drafts and the configurations they need', () => {
  const cluster = renamed(write(draft('local', { name: '', namespace: 'w', version: 'v1' }), 'metadata.name', 'x'));
  assert.deepEqual(neededConfigs(cluster).map((one) => one.metadata), [{ name: 'nc-x-servers', namespace: 'w' }, { name: 'nc-x-workers', namespace: 'w' }]);
  assert.deepEqual(neededConfigs(cluster, cluster), []);
  assert.deepEqual(draft('import', { name: 'i', namespace: 'w', version: '' }).spec, {});
});

test('a field of an error is found in the text', () => {
  const text = ['apiVersion: v1', 'kind: Pod', 'metadata:', '  name: x', '  annotations:', '    "a.b/c": d', 'spec:', '  containers:', '  - name: one', '    image: i', '    ports:', '      - containerPort: 1', '      -', '        containerPort: 2', '  - image: j', '    name: two', '  dnsPolicy: None'].join('\n');
  const at = (path) => lineOf(text, path);
  assert.deepEqual(['kind', 'metadata.name', 'metadata.annotations[a.b/c]', 'spec.containers[0].image', 'spec.containers[1].name', 'spec.dnsPolicy'].map(at), [2, 4, 6, 10, 16, 17]);
  assert.deepEqual(['spec.containers[0].ports[0].containerPort', 'spec.containers[0].ports[1].containerPort'].map(at), [12, 14]);
  assert.equal(at('spec.containers[1].resources.limits'), 15, 'what is missing is where it would be');
  assert.equal(at('metadata.labels'), 3);
  assert.equal(at('status.phase'), 0);
  assert.equal(at(''), 0);
  assert.equal(lineOf('name: a\nspec:\n  name: b', 'spec.name'), 3);
});

test('an edit says what it does to machines, worst first', () => {
  const cluster = (version, ...machinePools) => ({ spec: { kubernetesVersion: version, rkeConfig: { machinePools } } });
  const pool = (name, quantity, config = name) => ({ name, quantity, machineConfigRef: { kind: 'LocalConfig', name: config } });
  const said = (before, after) => effects(before, after).map((one) => [one.tone, one.text]);
  const before = cluster('v1.35.1+k3s1', pool('servers', 3), pool('workers', 2), pool('old', 1), pool('none', 0));
  assert.deepEqual(said(before, cluster('v1.35.2+k3s1', pool('servers', 5), pool('workers', 1), pool('new', undefined))), [
    ['bad', 'Pool old goes, and its machine with all that is on it.'], ['bad', 'Pool none goes. It has no machines.'], ['bad', 'Pool workers: 1 of 2 machines is removed, with all that is on it.'],
    ['warn', 'Kubernetes goes from v1.35.1+k3s1 to v1.35.2+k3s1 on every machine.'],
    ['move', 'Pool servers: 2 more machines are made, 5 in all.'], ['move', 'Pool new is new: 1 machine is made.'],
  ]);
  assert.deepEqual(said(cluster('v', pool('a', 3), pool('b', 1)), cluster('v', pool('a', 2, 'other'), pool('b', 1, 'other'))), [['bad', 'Pool a: 1 of 3 machines is removed, with all that is on it.'], ['warn', 'Pool a: its 2 machines are replaced by what LocalConfig other says.'], ['warn', 'Pool b: its machine is replaced by what LocalConfig other says.']]);
  assert.deepEqual(said(before, before), []);
  assert.deepEqual(said({ spec: {} }, { spec: {} }), []);
});
