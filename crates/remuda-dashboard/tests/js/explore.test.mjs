import './browser.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';
import { cellText, cellsOf, containerState, decoded, groupsOf, hasState, holdsData, isSecret, kindHref, masked, nativePath, objectHref, podFilter, titleOf, writable } from '../../assets/core/kinds.js';
import { Lines, coloured, comparable, hits, logPath, timed } from '../../assets/core/log.js';

await import('../../assets/pages/explore/overview.js');
const { columnsFor } = await import('../../assets/pages/explore/kind.js');
const { parsed } = await import('../../assets/parts/yaml-edit.js');

const column = (name, at, priority = 0) => ({ name, field: `$.metadata.fields[${at}]`, priority });
const schema = (id, kind, columns, group = '') => ({ id, collectionMethods: ['GET'], attributes: { kind, group, version: 'v1', columns } });

test('kinds have names that people read', () => {
  const of = (kind) => titleOf({ attributes: { kind } });
  assert.deepEqual(['ConfigMap', 'Pod', 'Ingress', 'NetworkPolicy', 'APIService', 'Endpoints', 'ETCDSnapshotFile'].map(of), ['Config maps', 'Pods', 'Ingresses', 'Network policies', 'API services', 'Endpoints', 'ETCD snapshot files']);
  assert.equal(titleOf({ attributes: { kind: 'ConfigMap' } }, true), 'Config map');
  assert.equal(titleOf({ id: 'made-up' }), 'made-ups');
});

test('columns are those of the kind, and the state stands for the status', () => {
  const pod = schema('pod', 'Pod', [column('Name', 0), column('Ready', 1), column('Status', 2), column('Age', 3), column('Node', 4, 1)]);
  assert.deepEqual(cellsOf(pod).map((cell) => [cell.label, cell.role, cell.usual]), [['Name', 'name', true], ['Ready', 'cell', true], ['Age', 'age', true], ['Node', 'cell', false]]);
  const columns = columnsFor({ id: 'c', schema: () => pod }, 'pod');
  assert.deepEqual(columns.map((one) => one.id), ['state', 'name', 'c1', 'age', 'c4']);
  assert.equal(columns.find((one) => one.id === 'c1').sort, 'metadata.fields[1]');
  const event = schema('event', 'Event', [column('Last Seen', 0), column('Object', 3), column('Message', 6), column('Name', 9, 1)]);
  assert.deepEqual(columnsFor({ id: 'c', schema: () => event }, 'event').map((one) => one.label), ['Object', 'Last Seen'], 'the message stands below its object');
  assert.deepEqual(cellsOf(undefined), []);
});

test('cells are text, whatever they hold', () => {
  const cell = { place: 1 };
  assert.equal(cellText({ metadata: { fields: ['a', 7] } }, cell), '7');
  assert.equal(cellText({ metadata: { fields: ['a', '<none>'] } }, cell), '');
  assert.equal(cellText({ metadata: { fields: ['a', { x: 1 }] } }, cell), '{"x":1}');
  assert.equal(cellText({ metadata: {} }, cell), '');
});

test('what was added to a cluster comes before what every cluster has', () => {
  const all = [schema('pod', 'Pod', []), schema('apps.deployment', 'Deployment', [], 'apps'), schema('x.k8s.io.y', 'Y', [], 'x.k8s.io'), schema('ranch.example.horse', 'Horse', [], 'ranch.example'), { id: 'count', attributes: {}, collectionMethods: ['GET'] }, { ...schema('hidden', 'Hidden', []), collectionMethods: ['POST'] }];
  assert.deepEqual(groupsOf(all).map(([group, kinds]) => [group, kinds.length]), [['ranch.example', 1], ['core', 1], ['apps', 1], ['x.k8s.io', 1]]);
});

test('objects have pages, with and without a namespace', () => {
  assert.equal(objectHref('c-1', 'pod', 'default/p'), '/dashboard/explore/c-1/r/pod/default/p');
  assert.equal(objectHref('c-1', 'namespace', 'default'), '/dashboard/explore/c-1/r/namespace/-/default');
  assert.equal(objectHref('c-1', 'node', 'n'), '/dashboard/explore/c-1/nodes/n');
  assert.equal(kindHref('c-1', 'node'), '/dashboard/explore/c-1/nodes');
});

test('the Kubernetes API has every object at one path', () => {
  const kind = (group, namespaced) => ({ attributes: { group, version: 'v1', resource: 'things', namespaced } });
  assert.equal(nativePath('/k8s/clusters/c', kind('', true), 'n s', 'a/b'), '/k8s/clusters/c/api/v1/namespaces/n%20s/things/a%2Fb');
  assert.equal(nativePath('', kind('x.io', false), '', 'a'), '/apis/x.io/v1/things/a');
  assert.equal(nativePath('', kind('x.io', true), 'n'), '/apis/x.io/v1/namespaces/n/things');
});

test('a secret is shown without its values, the copy kubectl keeps included', () => {
  const applied = 'kubectl.kubernetes.io/last-applied-configuration';
  const secret = { apiVersion: 'v1', kind: 'Secret', data: { a: 'aHVudGVyMg==' }, metadata: { annotations: { [applied]: '{"stringData":{"a":"hunter2"}}', other: 'x' } } };
  const text = JSON.stringify(masked(secret));
  assert.ok(!/hunter2|aHVudGVy/.test(text) && text.includes('"other":"x"'), text);
  assert.equal(secret.data.a, 'aHVudGVyMg==', 'the original is left alone');
  assert.ok(isSecret(secret) && !isSecret({ apiVersion: 'x/v1', kind: 'Secret' }));
  assert.deepEqual(decoded('aHVudGVyMg=='), { text: 'hunter2', size: 7 });
  assert.deepEqual(decoded('AAECAw=='), { text: null, size: 4 });
  assert.deepEqual(decoded('/////w=='), { text: null, size: 4 });
  assert.deepEqual(decoded('not base64!'), { text: null, size: 0 });
});

test('pods are found by what chooses them', () => {
  assert.deepEqual(podFilter({ kind: 'Deployment', spec: { selector: { matchLabels: { 'a/b': 'x"y' } } } }), ['metadata.labels[a/b]="xy"']);
  assert.deepEqual(podFilter({ kind: 'Service', spec: { selector: { app: 'web' } } }), ['metadata.labels[app]="web"']);
  assert.equal(podFilter({ kind: 'Service', spec: {} }), null, 'one that chooses none does not choose all');
});

test('containers say how they stand', () => {
  assert.equal(containerState({ state: { running: {} }, ready: true }).tone, 'ok');
  assert.equal(containerState({ state: { running: {} }, ready: false }).tone, 'move');
  assert.deepEqual(containerState({ state: { waiting: { reason: 'CrashLoopBackOff', message: 'm' } } }), { tone: 'bad', word: 'CrashLoopBackOff', why: 'm' });
  assert.equal(containerState({ state: { terminated: { exitCode: 3 } } }).why, 'exit code 3');
  assert.equal(containerState({ state: { terminated: { exitCode: 0, reason: 'Completed' } } }).tone, 'off');
  assert.equal(containerState(undefined).word, 'Unknown');
  assert.ok(hasState('pod') && !hasState('configmap') && holdsData('namespace') && !holdsData('pod'));
});

test('what is edited has nothing the server writes', () => {
  const object = { kind: 'X', status: {}, metadata: { name: 'x', uid: 'u', resourceVersion: '1', generation: 2, creationTimestamp: 't' } };
  assert.deepEqual(writable(object), { kind: 'X', metadata: { name: 'x' } });
  assert.deepEqual(parsed('apiVersion: v1\nkind: X\n').object, { apiVersion: 'v1', kind: 'X' });
  assert.match(parsed('a: 1').error, /missing/);
  assert.match(parsed('- 1').error, /no object/);
  assert.match(parsed('a: 1\nb: "').error, /^Line 2/);
});

test('lines are made of pieces', () => {
  const lines = new Lines();
  assert.deepEqual(lines.push('a\r\nb'), ['a']);
  assert.deepEqual(lines.push('c\n\n'), ['bc', '']);
  assert.deepEqual(lines.push('rest'), []);
  assert.deepEqual(lines.end(), ['rest']);
  assert.deepEqual(lines.end(), []);
  assert.equal(lines.push('x'.repeat(20_000))[0].length, 16_384, 'one that never ends is cut');
});

test('times of lines are taken off and compared as times', () => {
  assert.deepEqual(timed('2026-11-18T13:22:01.930363068Z hello world'), ['2026-11-18T13:22:01.930363068Z', 'hello world']);
  assert.deepEqual(timed('hello'), ['', 'hello']);
  assert.ok(comparable('2026-11-18T13:22:01.93Z') < comparable('2026-11-18T13:22:01.930363Z'));
  assert.equal(comparable('nonsense'), '');
});

test('colours of terminals are classes, and nothing else gets through', () => {
  assert.deepEqual(coloured('\u001b[32mINFO\u001b[0m ok'), [{ text: 'INFO', style: 'a-green' }, { text: ' ok', style: '' }]);
  assert.deepEqual(coloured('\u001b[1;91mX\u001b[22mY\u001b[39mZ'), [{ text: 'X', style: 'a-red a-bold' }, { text: 'Y', style: 'a-red' }, { text: 'Z', style: '' }]);
  assert.deepEqual(coloured('a\u001b]0;title\u0007b\u001b[2Kc\u0008\u0007'), [{ text: 'a', style: '' }, { text: 'b', style: '' }, { text: 'c', style: '' }]);
});

test('what is searched for is found in any case', () => {
  assert.deepEqual(hits('An error, Error', 'error'), [{ text: 'An ', hit: false }, { text: 'error', hit: true }, { text: ', ', hit: false }, { text: 'Error', hit: true }]);
  assert.deepEqual(hits('abc', ''), [{ text: 'abc', hit: false }]);
  assert.deepEqual(hits('İx', 'x'), [{ text: 'İx', hit: false }], 'letters that grow are no reason to cut in the wrong place');
});

test('a log is asked for by container, and goes on where it was', () => {
  const what = { root: '/k8s/clusters/c-1', namespace: 'default', pod: 'p', container: 'main' };
  const address = (more) => new URL(logPath({ ...what, ...more }), 'https://x');
  assert.equal(address({}).pathname, '/k8s/clusters/c-1/api/v1/namespaces/default/pods/p/log');
  assert.equal(address({ follow: true, tail: 10 }).search, '?container=main&timestamps=true&follow=true&tailLines=10');
  assert.equal(address({ follow: true, tail: 10, since: '2026-01-01T00:00:00Z' }).searchParams.get('tailLines'), null);
  assert.equal(address({ follow: true, previous: true }).searchParams.get('follow'), null, 'what has ended is not followed');
});
