import './browser.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';
import { safeHref } from '../../assets/core/dom.js';
import { nameOf } from '../../assets/core/keys.js';
import { match, to, withQuery } from '../../assets/core/router.js';
import { listPath } from '../../assets/core/store.js';
import { age, relative, span } from '../../assets/core/time.js';

const { nextStep } = await import('../../assets/pages/login.js');
await import('../../assets/pages/home.js');
const { snapshotLines, story, told } = await import('../../assets/pages/parts/evidence.js');
const { certificateRows, endingsOf } = await import('../../assets/pages/parts/certificates.js');
const { keepsLast } = await import('../../assets/pages/parts/pools.js');
const { harmless, nodeCommand } = await import('../../assets/pages/parts/registration.js');
const { score } = await import('../../assets/parts/palette.js');
const { sortOf, visible } = await import('../../assets/parts/table.js');
const { layout } = await import('../../assets/parts/topology.js');

test('links lead somewhere and run nothing', () => {
  for (const good of ['/dashboard', '/dashboard/x?a=b', '#main', 'https://example.org/', 'blob:x']) assert.equal(safeHref(good), good);
  for (const bad of ['javascript:alert(1)', ' javascript:alert(1)', 'JAVASCRIPT:x', 'data:text/html,x', '//evil.example', 'vbscript:x', '']) assert.equal(safeHref(bad), '#');
});

test('pages by their path', () => {
  const routes = [['/', 'home'], ['/clusters/:namespace/:name', 'one'], ['/clusters/:namespace/:name/edit', 'edit'], ['/clusters/:namespace/:name/:tab', 'tab']];
  assert.equal(match(routes, '/')?.page, 'home');
  assert.deepEqual(match(routes, '/clusters/a/b%2Fc'), { page: 'one', params: { namespace: 'a', name: 'b/c' } });
  assert.equal(match(routes, '/clusters/a/b/edit')?.page, 'edit');
  assert.equal(match(routes, '/clusters/a/%zz'), null);
  assert.equal(match(routes, '/none'), null);
  assert.equal(to('clusters', 'a', '<b>'), '/dashboard/clusters/a/%3Cb%3E');
  assert.equal(withQuery(new URLSearchParams('q=x&sort=name'), { q: '', state: 'broken' }), '?sort=name&state=broken');
});

test('a list is asked for with everything in its address', () => {
  const address = new URL(listPath({ type: 'node', root: '/k8s/clusters/c-1', filter: ['a=1', 'b~"x,y"'], sort: '-a,b' }, 2, 50), 'https://x');
  assert.equal(address.pathname, '/k8s/clusters/c-1/v1/node');
  assert.deepEqual(address.searchParams.getAll('filter'), ['a=1', 'b~"x,y"']);
  assert.equal(address.searchParams.get('page'), '2');
});

test('times as people say them', () => {
  const now = Date.parse('2026-01-02T00:00:00Z');
  assert.equal(relative('2026-01-01T23:59:58Z', now), 'now');
  assert.equal(relative('2026-01-01T23:56:00Z', now), '4 min ago');
  assert.equal(relative('2026-01-04T00:00:00Z', now), 'in 2 d');
  assert.equal(age('2024-12-31T00:00:00Z', now), '1 y');
  assert.equal(age('nonsense', now), '');
  assert.equal(span(3599), '59 min');
});

test('keys have names', () => {
  assert.equal(nameOf({ key: 'k', metaKey: true }), 'ctrl+k');
  assert.equal(nameOf({ key: 'Escape' }), 'escape');
});

test('only rows in the window are drawn', () => {
  assert.deepEqual(visible(100, 900, 50, 2000), [0, 24]);
  assert.deepEqual(visible(-50_000, 900, 50, 2000), [992, 1026]);
  assert.deepEqual(visible(-99_900, 900, 50, 2000), [1990, 2000]);
  assert.deepEqual(visible(100, 900, 50, 3), [0, 3]);
});

test('the order of a column, and its reverse', () => {
  const columns = [{ id: 'age', sort: '-created,name' }, { id: 'plain' }];
  assert.equal(sortOf(columns, 'age', 'usual'), '-created,name');
  assert.equal(sortOf(columns, '-age', 'usual'), 'created,-name');
  assert.equal(sortOf(columns, 'plain', 'usual'), 'usual');
  assert.equal(sortOf(columns, 'made-up', 'usual'), 'usual');
});

test('the palette finds by letters', () => {
  assert.ok(score('clu', 'Clusters') > score('clu', 'Delete cluster'));
  assert.ok(score('clu', 'Delete cluster') > score('dlc', 'Delete cluster'));
  assert.equal(score('xyz', 'Clusters'), 0);
});

test('what the server wants at a login', () => {
  assert.equal(nextStep('MustChangePassword', 'password'), 'change');
  assert.equal(nextStep('SecondFactorRequired', 'password'), 'code');
  assert.equal(nextStep('SecondFactorEnrolmentRequired', 'password'), 'enrol');
  assert.equal(nextStep('Unauthorized', 'code'), 'code');
});

test('the last machine of a role stays', () => {
  const pools = [{ name: 's', quantity: 1, etcdRole: true, controlPlaneRole: true }, { name: 'w', quantity: 1, workerRole: true }];
  assert.match(keepsLast(pools, 0), /last etcd/);
  assert.equal(keepsLast(pools, 1), '');
  assert.equal(keepsLast([{ ...pools[0], quantity: 3 }], 0), '');
  assert.match(keepsLast([{ ...pools[1], quantity: 0 }], 0), /empty/);
});

test('nothing in a registration command ends it', () => {
  assert.equal(harmless('a; rm -rf / $(x) `y` "z"'), 'arm-rf/xyz');
  const given = { etcd: true, controlplane: false, worker: true, name: 'n; reboot', address: '', internal: '10.0.0.1', labels: 'a=b c=$(d)', taints: 'k=v:NoSchedule' };
  assert.equal(nodeCommand('curl x | sh -s -', given), 'curl x | sh -s - --etcd --worker --node-name nreboot --internal-address 10.0.0.1 --label a=b --label c=d --taints k=v:NoSchedule');
});

test('a story is told once and newest first', () => {
  const machine = { kind: 'Machine', metadata: { name: 'm', creationTimestamp: '2026-01-01T00:00:00Z' }, status: { conditions: [{ type: 'Ready', status: 'False', message: 'quota', error: true, lastTransitionTime: '2026-01-01T00:02:00Z' }] } };
  const event = { lastTimestamp: '2026-01-01T00:01:00Z', _type: 'Warning', message: 'failed', involvedObject: { name: 'm' } };
  assert.deepEqual(story([machine, null, machine], [event, event]).map((line) => [line.tone, line.text]), [['bad', 'm: ready: quota'], ['warn', 'm: failed'], ['', 'm created']]);
});

test('large pools are counted and not drawn', () => {
  const machines = Array.from({ length: 30 }, (_, at) => ({ metadata: { name: `m${at}`, labels: { 'rke.cattle.io/rke-machine-pool-name': 'a' } } }));
  const { pools, height } = layout(['a', 'b'], machines);
  assert.equal(pools[0].machines.length, 10);
  assert.equal(pools[0].more, 20);
  assert.ok(pools[1].top > pools[0].top && height > pools[1].top);
});

test('a story has snapshots in it, and is searched', () => {
  const lines = story([], [{ lastTimestamp: '2026-01-01T00:01:00Z', _type: 'Warning', message: 'no quota', involvedObject: { name: 'm' } }], snapshotLines([
    { metadata: { creationTimestamp: '2026-01-01T00:00:00Z', annotations: {} }, snapshotFile: { name: 'early', createdAt: '2026-01-01T00:00:30Z' } },
    { metadata: { creationTimestamp: '2026-01-01T00:02:00Z' }, snapshotFile: { name: 'late', status: 'failed', message: 'disk full' } },
  ]));
  assert.deepEqual(lines.map((line) => [line.tone, line.text]), [['bad', 'snapshot late: failed, disk full'], ['warn', 'm: no quota'], ['', 'snapshot early: taken']]);
  assert.deepEqual(told(lines, 'SNAP', false).length, 2);
  assert.deepEqual(told(lines, '', true).map((line) => line.tone), ['bad', 'warn']);
});

test('what is known of a cluster to end', () => {
  const machine = (name, certificatesExpiryDate) => ({ id: `d/${name}`, metadata: { name, namespace: 'd' }, status: { certificatesExpiryDate } });
  const rows = endingsOf({ management: { status: { caCert: btoa('nonsense') } }, machines: [machine('a', '2026-06-01T00:00:00Z'), machine('b', undefined)], tokens: [{ id: 'c/t', metadata: { name: 't' }, status: {} }, { id: 'c/u', metadata: { name: 'u' }, status: { expiresAt: '2026-05-01T00:00:00Z' } }] });
  assert.deepEqual(rows.map((row) => [row.name, row.until, row.href]), [['a', '2026-06-01T00:00:00Z', '/dashboard/machines/d/a'], ['u', '2026-05-01T00:00:00Z', '']]);
  assert.deepEqual(endingsOf({ management: null, machines: [], tokens: [] }), []);
  assert.match(certificateRows([{ id: 'n/s', data: { 'tls.crt': btoa('x') } }, { id: 'n/t' }], () => '/x')[1].why, /no certificate/);
});
