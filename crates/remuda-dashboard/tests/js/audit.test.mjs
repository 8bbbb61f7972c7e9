import test from 'node:test';
import assert from 'node:assert/strict';
import { auditPath, fits, lineOf, toneOf } from '../../assets/core/audit.js';

const event = { auditID: 'a', verb: 'delete', user: { username: 'ann' }, impersonatedUser: { username: 'bob' }, objectRef: { resource: 'secrets', namespace: 'x', name: 'y' }, responseStatus: { code: 403, message: 'no' }, sourceIPs: ['::1'], stageTimestamp: '2026-01-01T00:00:00Z' };

test('a line says who did what, and what came of it', () => {
  const line = lineOf(event, 0);
  assert.deepEqual([line.who, line.as, line.verb, line.what, line.code, line.why, line.from], ['ann', 'bob', 'delete', 'secrets x y', 403, 'no', '::1']);
  assert.equal(lineOf({ requestURI: '/v3/tokens', verb: 'post' }, 1).what, '/v3/tokens');
  assert.equal(toneOf(line), 'warn');
  assert.equal(toneOf(lineOf({ responseStatus: { code: 500 } }, 0)), 'bad');
  assert.equal(toneOf(lineOf({}, 0)), 'off');
});

test('lines are found by text and by how they ended', () => {
  const line = lineOf(event, 0);
  const read = lineOf({ verb: 'get', user: { username: 'cleo' }, responseStatus: { code: 200 } }, 1);
  assert.ok(fits(line, { text: 'BOB', state: '' }) && !fits(read, { text: 'bob', state: '' }));
  assert.ok(fits(line, { text: '', state: 'refused' }) && !fits(read, { text: '', state: 'refused' }));
  assert.ok(!fits(line, { text: '', state: 'changes' }) && !fits(read, { text: '', state: 'changes' }));
  assert.ok(fits(lineOf({ verb: 'patch', responseStatus: { code: 200 } }, 2), { text: '', state: 'changes' }));
  assert.equal(auditPath({ user: 'a b', limit: 5 }), '/remuda/v1/audit?limit=5&user=a+b');
});
