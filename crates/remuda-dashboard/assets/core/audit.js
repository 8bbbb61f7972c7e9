// Lines of the audit log as people read them. Nothing here touches the document.

export const PATH = '/remuda/v1/audit';

/** @typedef {{key: string, at: string, who: string, as: string, verb: string, what: string, code: number, why: string, from: string, agent: string}} Line */

/** A line of the log. @param {any} event @param {number} place @returns {Line} */
export function lineOf(event, place) {
  const { user, impersonatedUser, objectRef, responseStatus, annotations } = event;
  const at = event.stageTimestamp || event.requestReceivedTimestamp || '';
  const parts = [objectRef?.resource && (objectRef.subresource ? `${objectRef.resource}/${objectRef.subresource}` : objectRef.resource), objectRef?.namespace, objectRef?.name].filter(Boolean);
  return {
    key: `${event.auditID || at} ${place}`, at, who: user?.username || '', as: impersonatedUser?.username || '', verb: event.verb || '',
    what: parts.length ? parts.join(' ') : String(event.requestURI || ''), code: Number(responseStatus?.code) || 0,
    why: responseStatus?.message || annotations?.['authorization.k8s.io/reason'] || '', from: (event.sourceIPs || []).join(', '), agent: event.userAgent || '',
  };
}

/** @param {Line} line @returns {import('./objects.js').Tone} */
export const toneOf = (line) => (line.code >= 500 ? 'bad' : line.code >= 400 ? 'warn' : line.code ? 'ok' : 'off');

/** Whether a line is one of those that are looked for. @param {Line} line @param {{text: string, state: string}} asked */
export function fits(line, asked) {
  const failed = line.code >= 400;
  const reads = /^(get|list|watch|head)$/i.test(line.verb);
  if ((asked.state === 'refused' && !failed) || (asked.state === 'changes' && (reads || failed))) return false;
  const text = asked.text.toLowerCase();
  return !text || [line.who, line.as, line.verb, line.what, String(line.code), line.from].some((one) => one.toLowerCase().includes(text));
}

/** @param {{user: string, limit: number}} asked */
export function auditPath(asked) {
  const query = new URLSearchParams({ limit: String(asked.limit) });
  if (asked.user) query.set('user', asked.user);
  return `${PATH}?${query}`;
}
