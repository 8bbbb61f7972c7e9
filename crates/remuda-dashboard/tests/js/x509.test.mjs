import assert from 'node:assert/strict';
import test from 'node:test';
import { certificates, certificatesIn, expiry, parse } from '../../assets/core/x509.js';

// openssl req -x509 -days 30 -subj '/O=k3s/OU=edge/CN=k3s <b>', with names and addresses; and an authority that ends after 2050.
const LEAF = `-----BEGIN CERTIFICATE-----
MIIB3TCCAYKgAwIBAgIBATAKBggqhkjOPQQDAjAvMQwwCgYDVQQKDANrM3MxDTAL
BgNVBAsMBGVkZ2UxEDAOBgNVBAMMB2szcyA8Yj4wHhcNMjYxMTE5MDMzNTQ5WhcN
MjYxMjE5MDMzNTQ5WjAvMQwwCgYDVQQKDANrM3MxDTALBgNVBAsMBGVkZ2UxEDAO
BgNVBAMMB2szcyA8Yj4wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASJvHuoPt/B
RBadmcuUy4mYm3zVR6r7afGL96iU5FoKforQQcWzMup1YAXE8VmGz68vjgb+8hgb
KqGy3ozNLfEPo4GOMIGLMB0GA1UdDgQWBBS7f33Xnr+Xb2WfLladOBgQFEGYvDAf
BgNVHSMEGDAWgBS7f33Xnr+Xb2WfLladOBgQFEGYvDA7BgNVHREENDAyggprdWJl
cm5ldGVzggxzaG9wLmV4YW1wbGWHBAoAAAGHEP0AAAAAAAAAAAAAAAAAAAEwDAYD
VR0TAQH/BAIwADAKBggqhkjOPQQDAgNJADBGAiEAra2Bd28QerkgdjuuA7K5YhLN
7L05xjNjHxz2+BUk8gUCIQD1jgG+dH417WiV6RE4/Xpe37enhC94zokO/u12Vk43
Mg==
-----END CERTIFICATE-----`;
const AUTHORITY = `-----BEGIN CERTIFICATE-----
MIIBdDCCARqgAwIBAgIBAjAKBggqhkjOPQQDAjAYMRYwFAYDVQQDDA1rM3Mtc2Vy
dmVyLWNhMCAXDTI2MTExOTAzMzU0OVoYDzIwNTYxMjMxMDMzNTQ5WjAYMRYwFAYD
VQQDDA1rM3Mtc2VydmVyLWNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEnjBu
FEJQ3puvTlJTpNQ/p4Nf3s3XhNmdLGlyobxnLDsnrkPdzlobt7HQSWC+wbyDKmRJ
GZim5or2lPx7SYSkWaNTMFEwHQYDVR0OBBYEFNlE1VoKzlUW0XXMokdnVxAjiF/v
MB8GA1UdIwQYMBaAFNlE1VoKzlUW0XXMokdnVxAjiF/vMA8GA1UdEwEB/wQFMAMB
Af8wCgYIKoZIzj0EAwIDSAAwRQIhAPi3iLHdRmEXhuHfUn4ntGQCLFOZdeyxjP9V
13Ctyi/JAiAMy9TI9309StYbgS2kYV5tXEfWGXCg0dcFVOW2w4Tgcg==
-----END CERTIFICATE-----`;

test('a certificate says whose it is and how long it is good', () => {
  assert.deepEqual(certificates(LEAF), [{ subject: 'CN=k3s <b>, OU=edge, O=k3s', issuer: 'CN=k3s <b>, OU=edge, O=k3s', names: ['kubernetes', 'shop.example', '10.0.0.1', 'fd00:0:0:0:0:0:0:1'], from: '2026-11-19T03:35:49.000Z', until: '2026-12-19T03:35:49.000Z', authority: false }]);
});

test('chains are read in their order, years with four digits too', () => {
  const found = certificates(`${LEAF}\nsomething between\n${AUTHORITY}\n`);
  assert.deepEqual(found.map((one) => [one.subject, one.until, one.authority]), [['CN=k3s <b>, OU=edge, O=k3s', '2026-12-19T03:35:49.000Z', false], ['CN=k3s-server-ca', '2056-12-31T03:35:49.000Z', true]]);
  assert.equal(certificates(LEAF.repeat(50)).length, 8, 'not more than people read');
  assert.deepEqual(certificatesIn(btoa(AUTHORITY)).map((one) => one.subject), ['CN=k3s-server-ca']);
});

test('what is no certificate is nothing, wherever it is cut or changed', () => {
  for (const none of ['', 'nonsense', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----', LEAF.replaceAll('CERTIFICATE', 'PRIVATE KEY')]) assert.deepEqual(certificates(none), []);
  assert.deepEqual(certificatesIn(undefined), []);
  assert.deepEqual(certificatesIn('not base64!'), []);
  const whole = Uint8Array.from(atob(LEAF.split('\n').slice(1, -1).join('')), (letter) => letter.charCodeAt(0));
  for (let end = 0; end < whole.length; end += 1) assert.equal(parse(whole.subarray(0, end)), null, `${end}`);
  for (let at = 0; at < whole.length; at += 1) for (const byte of [0, 0x7f, 0x80, 0x84, 0xff]) {
    const changed = whole.slice();
    changed[at] = byte;
    const found = parse(changed);
    assert.ok(found === null || typeof found.subject === 'string');
  }
});

test('how it stands with what ends', () => {
  const now = Date.parse('2026-06-01T00:00:00Z');
  assert.deepEqual(['2026-05-31T00:00:00Z', '2026-06-20T00:00:00Z', '2027-01-01T00:00:00Z', '', undefined].map((at) => expiry(at, now).word), ['Expired', 'Ends soon', 'Good', 'Unknown', 'Unknown']);
});
