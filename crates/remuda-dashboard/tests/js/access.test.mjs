import './browser.mjs';
import assert from 'node:assert/strict';
import test from 'node:test';
import { agentName, configSchemas, credentialFields, credentialOf, credentialSecret, credentialUsers, driverState, editPolicy, holdersOf, poolsOf, ruleText } from '../../assets/core/access.js';
import { columnPrefs } from '../../assets/core/session.js';

const { shownColumns } = await import('../../assets/parts/table.js');

test('who has a role is named as people know them', () => {
  const bindings = [{ metadata: { name: 'b1' }, globalRoleName: 'admin', userName: 'u-1' }, { metadata: { name: 'b2' }, globalRoleName: 'admin', groupPrincipalName: 'oidc_group://dev' }, { metadata: { name: 'b3' }, globalRoleName: 'user', userName: 'u-1' }, { metadata: { name: 'b4' }, globalRoleName: 'admin', userName: 'gone' }];
  assert.deepEqual(holdersOf('admin', bindings, [{ metadata: { name: 'u-1' }, username: 'ann' }]).map((one) => [one.name, one.group]), [['ann', false], ['gone', false], ['oidc_group://dev', true]]);
});

test('rules of roles are sentences', () => {
  assert.equal(ruleText({ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }), 'everything with every kind');
  assert.equal(ruleText({ verbs: ['get', 'list'], apiGroups: ['', 'apps'], resources: ['pods'], resourceNames: ['p'] }), 'get, list with pods of apps called p');
  assert.equal(ruleText({ verbs: ['get'], nonResourceURLs: ['/metrics'] }), 'get at /metrics');
});

test('a credential has the fields its driver asks for', () => {
  const driver = { metadata: { name: 'demo', annotations: { publicCredentialFields: 'user, region', privateCredentialFields: 'token', optionalCredentialFields: 'region,extra' } } };
  assert.deepEqual(credentialFields(driver), [{ name: 'user', secret: false, optional: false }, { name: 'region', secret: false, optional: true }, { name: 'token', secret: true, optional: false }, { name: 'extra', secret: false, optional: true }]);
  assert.deepEqual(credentialFields({}), []);
  const secret = credentialSecret('demo', { token: 't', region: '' }, 'cc-x', 'for x');
  assert.deepEqual(secret.stringData, { 'democredentialConfig-token': 't' });
  assert.deepEqual(secret.metadata, { name: 'cc-x', namespace: 'cattle-global-data', annotations: { 'field.cattle.io/description': 'for x' } });
  assert.deepEqual(credentialSecret('demo', {}, '', '').metadata, { generateName: 'cc-', namespace: 'cattle-global-data' });
});

test('only credentials are taken for credentials', () => {
  assert.deepEqual(credentialOf({ data: { 'amazonec2credentialConfig-accessKey': '', 'amazonec2credentialConfig-secretKey': '' } }), { driver: 'amazonec2', fields: ['accessKey', 'secretKey'] });
  assert.equal(credentialOf({ data: { token: '' } }), null);
  assert.equal(credentialOf({}), null);
});

test('who uses a credential is found in clusters and in pools', () => {
  const secret = { metadata: { name: 'cc-x', namespace: 'cattle-global-data' } };
  const of = (name, spec, namespace = 'fleet-default') => ({ metadata: { name, namespace }, spec });
  const clusters = [of('a', { cloudCredentialSecretName: 'cattle-global-data:cc-x' }), of('b', { rkeConfig: { machinePools: [{ cloudCredentialSecretName: 'cattle-global-data:cc-x' }] } }), of('c', { cloudCredentialSecretName: 'cc-x' }), of('d', {})];
  assert.deepEqual(credentialUsers(secret, clusters).map((one) => one.metadata.name), ['a', 'b'], 'a name alone is one in the namespace of the cluster');
});

test('drivers stand as people see them', () => {
  const driver = (active, ...conditions) => ({ spec: { active }, status: { conditions: conditions.map(([type, status, message]) => ({ type, status, message })) } });
  assert.equal(driverState(driver(false, ['Active', 'False'])).word, 'Inactive');
  assert.equal(driverState(driver(true, ['Active', 'True'])).tone, 'ok');
  assert.equal(driverState(driver(true)).word, 'Activating');
  assert.deepEqual(driverState(driver(true, ['Downloaded', 'False', 'no such host'])), { tone: 'bad', word: 'Failed', why: 'no such host' });
});

test('pools that are made from a configuration, and what an edit does to them', () => {
  const pool = (name, kind, ref, policy) => ({ name, machineConfigRef: { kind, name: ref }, ...(policy ? { machineDeploymentAnnotations: { 'remuda.io/config-update-policy': policy } } : {}) });
  const cluster = { metadata: { name: 'c', namespace: 'n', annotations: { 'remuda.io/config-update-policy': 'Auto' } }, spec: { rkeConfig: { machinePools: [pool('a', 'LocalConfig', 'x'), pool('b', 'LocalConfig', 'x', 'Never'), pool('c', 'OtherConfig', 'x')] } } };
  const elsewhere = { ...cluster, metadata: { name: 'd', namespace: 'm' } };
  const found = poolsOf({ kind: 'LocalConfig', metadata: { name: 'x', namespace: 'n' } }, [cluster, elsewhere]);
  assert.deepEqual(found.map((one) => [one.pool.name, editPolicy(one.cluster, one.pool)]), [['a', 'Auto'], ['b', 'Never']]);
  assert.equal(editPolicy({}, {}), 'Ask');
  assert.deepEqual(configSchemas([{ id: 'rke-machine-config.cattle.io.b', collectionMethods: ['GET'] }, { id: 'rke-machine-config.cattle.io.a', collectionMethods: ['POST'] }, { id: 'pod', collectionMethods: ['GET'] }]).map((one) => one.id), ['rke-machine-config.cattle.io.b']);
});

test('columns are those that were chosen, and those one always needs', () => {
  const columns = [{ id: 'name', fixed: true }, { id: 'a' }, { id: 'b', usual: false }];
  const ids = (chosen) => shownColumns(columns, chosen).map((one) => one.id);
  assert.deepEqual(ids(undefined), ['name', 'a']);
  assert.deepEqual(ids([]), ['name']);
  assert.deepEqual(ids(['b']), ['name', 'b']);
  assert.deepEqual(columnPrefs({ pod: ['a'], bad: 'x', worse: [1] }), { pod: ['a'] });
  assert.deepEqual(columnPrefs(null), {});
});

test('what a session was begun with', () => {
  assert.equal(agentName('Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/156.0.0.0 Safari/537.36'), 'Chrome on Linux');
  assert.equal(agentName('Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36 Edg/120.0'), 'Edge on Windows');
  assert.equal(agentName('Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.0 Mobile/15E148 Safari/604.1'), 'Safari on iOS');
  assert.equal(agentName('curl/8.5'), 'curl/8.5');
  assert.equal(agentName(undefined), '');
});
