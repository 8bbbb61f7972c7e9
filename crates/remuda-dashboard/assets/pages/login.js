// Login: a password, another one at the first start, and a second factor where one is demanded.

import { h } from '../core/dom.js';
import { login, providers } from '../core/session.js';
import { button } from '../parts/basics.js';
import { logo } from '../parts/icons.js';

/** What the server wants besides a password. @typedef {'password' | 'change' | 'code' | 'enrol' | 'codes'} Step */

/** @param {string} reason @param {Step} now @returns {Step} */
export function nextStep(reason, now) {
  if (reason === 'MustChangePassword') return 'change';
  if (reason === 'SecondFactorRequired') return 'code';
  if (reason === 'SecondFactorEnrolmentRequired') return 'enrol';
  return now;
}

/**
 * The form, on a page of its own or over one whose session has ended.
 * @param {{redraw: () => void, done: () => void, username?: string}} options
 */
export function loginForm(options) {
  const given = { username: options.username || '', password: '', newPassword: '', repeat: '', otp: '' };
  /** @type {Step} */
  let step = 'password';
  let busy = false;
  let error = '';
  /** @type {any} */
  let enrolment = null;
  /** @type {string[]} */
  let codes = [];
  /** @type {any[]} */
  let others = [];
  providers().then((found) => {
    others = found.filter((one) => one.redirectUrl);
    options.redraw();
  });

  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (busy) return;
    if (step === 'codes') return options.done();
    if (step === 'change' && given.newPassword !== given.repeat) {
      error = 'The two new passwords differ.';
      return options.redraw();
    }
    busy = true;
    error = '';
    options.redraw();
    try {
      const answer = await login({
        username: given.username, password: given.password,
        newPassword: given.newPassword || undefined, otp: given.otp || undefined,
      });
      codes = answer?.recoveryCodes || [];
      if (!codes.length) return options.done();
      step = 'codes';
    } catch (failed) {
      const refused = /** @type {any} */ (failed);
      const next = nextStep(refused.reason, step);
      // Being asked for more is no failure, the first time.
      error = next === step ? (refused.status === 401 && step === 'password' ? 'User name or password is wrong.' : refused.message) : '';
      if (refused.details?.uri) enrolment = refused.details;
      step = next;
    } finally {
      busy = false;
      options.redraw();
    }
  };

  /** @param {string} label @param {keyof typeof given} name @param {Record<string, any>} [more] */
  const field = (label, name, more = {}) =>
    h('label', { class: 'field', key: name }, h('span', null, label),
      h('input', { name, value: given[name], required: true, spellcheck: 'false', autocapitalize: 'none', oninput: (/** @type {any} */ e) => { given[name] = e.target.value; }, ...more }));

  return () => h('form', { onsubmit: submit },
    step === 'password' ? [
      field('User name', 'username', { autocomplete: 'username', autofocus: !given.username }),
      field('Password', 'password', { type: 'password', autocomplete: 'current-password', autofocus: Boolean(given.username) }),
    ] : null,
    step === 'change' ? [
      h('p', null, h('b', null, 'Choose a password of your own. '), 'The one you were given is good for this login only.'),
      field('New password', 'newPassword', { type: 'password', autocomplete: 'new-password', autofocus: true }),
      field('The same again', 'repeat', { type: 'password', autocomplete: 'new-password' }),
    ] : null,
    step === 'enrol' ? [
      h('p', null, h('b', null, 'A second factor is demanded. '), 'Put this secret into your authenticator and give the code it shows.'),
      h('code', { class: 'mono uri' }, enrolment?.secret || enrolment?.uri || ''),
    ] : null,
    step === 'code' || step === 'enrol' ? field('Code', 'otp', { inputmode: 'numeric', autocomplete: 'one-time-code', autofocus: true }) : null,
    step === 'codes' ? [
      h('p', null, h('b', null, 'Keep these recovery codes. '), 'Each is good once, should you lose your authenticator. They are shown this once.'),
      h('code', { class: 'mono uri' }, codes.join('  ')),
    ] : null,
    error ? h('p', { class: 'error', role: 'alert' }, error) : null,
    button({ label: busy ? 'Logging in …' : step === 'codes' ? 'I have kept them' : step === 'change' ? 'Set password and log in' : 'Log in', kind: 'primary', type: 'submit', disabled: busy }),
    step === 'password' ? others.map((one) => h('a', { key: one.id, class: 'button', href: one.redirectUrl }, 'Log in with single sign-on')) : null);
}

/** @param {{redraw: () => void, done: () => void}} options */
export function loginPage(options) {
  const form = loginForm(options);
  return () => h('div', { class: 'login' }, h('main', { class: 'login-box' }, h('div', { class: 'logo' }, logo(), 'Remuda'),
    h('h1', { class: 'visually-hidden' }, 'Log in'), h('div', { class: 'card' }, form()),
    h('p', { class: 'muted login-foot' }, 'The first start of a server prints the password of the user ', h('span', { class: 'mono' }, 'admin'), '.')));
}
