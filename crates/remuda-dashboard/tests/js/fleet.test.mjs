import assert from 'node:assert/strict';
import test from 'node:test';
import { byName, capacityOf, endings, versionMatrix } from '../../assets/core/fleet.js';

const of = (kubernetesVersion, clusterName) => ({ spec: { kubernetesVersion }, status: { clusterName } });
const now = Date.parse('2026-06-01T00:00:00Z');

test('versions of the fleet by distribution, newest first', () => {
  const management = byName([{ metadata: { name: 'c-1' }, status: { version: { gitVersion: 'v1.9.7' } } }]);
  const channels = [{ distro: 'k3s', minor: 'v1.35', latest: '', ends: '2027-01-01' }];
  const rows = versionMatrix([of('v1.9.1+rke2r1'), of('v1.35.1+k3s1'), of('v1.35.2+k3s1'), of(undefined), of(undefined, 'c-1'), of(undefined, 'c-2')], management, channels);
  assert.deepEqual(rows.map((row) => [row.minor, row.of, row.ends]), [['v1.35', { k3s: 2 }, { k3s: '2027-01-01' }], ['v1.9', { rke2: 1, other: 1 }, {}]]);
  assert.equal(rows[0].href, '/dashboard/clusters?version=v1.35.');
  assert.equal(versionMatrix([of(undefined, 'c-1')], management, [])[0].href, '', 'lists are not filtered by what imported clusters say');
});

test('capacity is that of clusters that say so', () => {
  const cluster = (allocatable, requested) => ({ status: { nodeCount: 2, allocatable, requested } });
  const found = capacityOf([cluster({ cpu: '4', memory: '1Gi', pods: '110' }, { cpu: '1500m' }), cluster({ cpu: '8' }, undefined), { status: {} }]);
  assert.deepEqual([found.nodes, found.clusters, found.telling], [4, 2, 1]);
  assert.deepEqual(found.of[0], { what: 'cpu', all: 12, whole: 4, asked: 1.5 });
});

test('what ends is told nearest first, once it matters', () => {
  const machine = (name, certificatesExpiryDate) => ({ metadata: { name, namespace: 'd' }, status: { certificatesExpiryDate } });
  const versions = versionMatrix([of('v1.33.1+k3s1'), of('v1.35.1+k3s1')], new Map(), [{ distro: 'k3s', minor: 'v1.33', latest: '', ends: '2026-05-01' }, { distro: 'k3s', minor: 'v1.35', latest: '', ends: '2027-05-01' }]);
  const token = (kind, expiresAt, more = {}) => ({ name: `token-${kind}`, kind, expiresAt, ...more });
  const found = endings({
    machines: [machine('late', '2026-09-01T00:00:00Z'), machine('soon', '2026-06-20T00:00:00Z'), machine('none', undefined)], versions,
    tokens: [token('api', '2026-06-03T00:00:00Z'), token('session', '2026-06-01T01:00:00Z'), token('kubeconfig', '2026-06-20T00:00:00Z'), token('api', '2026-05-01T00:00:00Z', { expired: true }), token('api', '')],
  }, now);
  assert.deepEqual(found.map((one) => [one.what, one.past]), [['Kubernetes v1.33', true], ['token-api', false], ['soon', false]]);
  assert.equal(found[2].href, '/dashboard/machines/d/soon');
});
