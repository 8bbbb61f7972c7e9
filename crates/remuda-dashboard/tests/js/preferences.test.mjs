import test from 'node:test';
import assert from 'node:assert/strict';
import './browser.mjs';
import { known } from '../../assets/core/preferences.js';
import { absolute, clock, inZone } from '../../assets/core/time.js';

test('what is no preference is left out', () => {
  assert.deepEqual(known({ theme: 'dark', density: 'x', zone: 'UTC', columns: { a: ['b'], c: 1 }, other: 1 }), { theme: 'dark', zone: 'UTC', columns: { a: ['b'] } });
  for (const bad of [null, 7, [], 'x']) assert.deepEqual(known(bad), {});
});

test('times are shown in the zone that is chosen', () => {
  inZone('Asia/Tokyo');
  assert.match(absolute('2026-01-01T20:00:00Z'), /2/);
  assert.equal(clock('2026-01-01T20:30:00Z', Date.parse('2026-01-01T21:00:00Z')), '05:30');
  inZone('UTC');
  assert.equal(clock('2026-01-01T20:30:00Z', Date.parse('2026-01-01T21:00:00Z')), '20:30');
  inZone('No/Zone');
  assert.ok(absolute('2026-01-01T20:00:00Z'));
  inZone('');
});
