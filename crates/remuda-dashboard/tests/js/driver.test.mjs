import assert from 'node:assert/strict';
import test from 'node:test';
import { configObject, fieldsOf, shownValue, usableDrivers, usualText, withValue } from '../../assets/core/driver.js';
import { draft, neededConfigs, renamed, write } from '../../assets/core/edit.js';

const schema = { resourceFields: {
  accessToken: { type: 'password' }, region: { type: 'string', default: 'nyc3', description: 'Where' }, tags: { type: 'array[string]', default: null },
  ipv6: { type: 'boolean', default: true }, kind: { type: 'string', options: ['a', 'b'], default: 'a' }, sshKeyContents: { type: 'password' }, id: { type: 'int', default: 3, required: true },
} };

test('fields of a driver, those of its credential left out', () => {
  const fields = fieldsOf(schema, ['accessToken']);
  assert.deepEqual(fields.map((one) => `${one.name} ${one.kind}${one.first ? ' first' : ''}`), ['id text first', 'region text first', 'ipv6 flag', 'kind choice', 'sshKeyContents secret', 'tags list']);
  assert.deepEqual(fields.map(usualText), ['3', 'nyc3', 'true', 'a', '', '']);
  assert.deepEqual(fieldsOf(undefined, []), []);
});

test('only what is not usual is written', () => {
  const [id, region, ipv6, , , tags] = fieldsOf(schema, ['accessToken']);
  let values = withValue({}, region, 'fra1');
  assert.deepEqual(values, { region: 'fra1' });
  assert.equal(shownValue(values, region), 'fra1');
  values = withValue(values, tags, ' a \n\nb');
  assert.deepEqual(values.tags, ['a', 'b']);
  assert.equal(shownValue(values, tags), 'a\nb');
  assert.equal(shownValue(values, ipv6), true);
  values = withValue(values, ipv6, false);
  assert.equal(values.ipv6, false);
  for (const [field, value] of [[region, ''], [tags, ''], [ipv6, true], [id, '3']]) values = withValue(values, field, value);
  assert.deepEqual(values, {});
});

test('active drivers whose configurations one may make', () => {
  const driver = (name, active) => ({ metadata: { name }, spec: { displayName: name, active } });
  const kind = (name, methods) => ({ id: `rke-machine-config.cattle.io.${name}config`, collectionMethods: methods, attributes: { kind: `${name}Config`, resource: `${name}configs` } });
  const found = usableDrivers([driver('sky', true), driver('off', false), driver('read', true), driver('local', true)], [kind('sky', ['GET', 'POST']), kind('off', ['POST']), kind('read', ['GET']), kind('local', ['POST'])], () => ['key']);
  assert.deepEqual(found, [{ name: 'sky', kind: 'skyConfig', plural: 'skyconfigs', fields: [], credentialKeys: ['key'] }]);
});

test('configurations are made with the cluster, and those of others are not', () => {
  const cluster = renamed(write(draft('cloud', { name: '', namespace: 'w', version: 'v1', config: 'SkyConfig' }), 'metadata.name', 'x'));
  const needed = neededConfigs(cluster, null, { servers: { region: 'fra1' } });
  assert.deepEqual(needed, [configObject('SkyConfig', 'nc-x-servers', 'w', { region: 'fra1' }), configObject('SkyConfig', 'nc-x-workers', 'w')]);
  const shared = write(cluster, 'spec.rkeConfig.machinePools[1].machineConfigRef', { kind: 'SkyConfig', name: 'ours' });
  assert.deepEqual(neededConfigs(renamed(shared)).map((one) => one.metadata.name), ['nc-x-servers']);
  assert.deepEqual(neededConfigs(cluster, cluster), []);
});
