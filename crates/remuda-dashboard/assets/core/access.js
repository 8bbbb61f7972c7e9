// Roles, credentials, drivers and configurations as pages read them. Nothing here touches the document.

export const GLOBAL_ROLE = 'management.cattle.io.globalrole';
export const GLOBAL_ROLE_BINDING = 'management.cattle.io.globalrolebinding';
export const SECRET = 'secret';
/** Where cloud credentials are. */
export const CREDENTIALS = 'cattle-global-data';
const CONFIG = 'rke-machine-config.cattle.io.';

/** Who has a role: bindings with the name of whom they are for. @param {string} role @param {any[]} bindings @param {any[]} users */
export function holdersOf(role, bindings, users) {
  const names = new Map(users.map((one) => [one.metadata.name, one.username || one.displayName || one.metadata.name]));
  return bindings.filter((one) => one.globalRoleName === role).map((binding) => ({
    binding, group: Boolean(binding.groupPrincipalName), name: String(binding.groupPrincipalName || names.get(binding.userName) || binding.userName || binding.metadata.name),
  })).sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** A rule of a role as a sentence. @param {any} rule */
export function ruleText(rule) {
  const words = (/** @type {string[] | undefined} */ list, /** @type {string} */ all) => (list?.includes('*') ? all : (list || []).join(', '));
  const verbs = words(rule.verbs, 'everything');
  if (rule.nonResourceURLs?.length) return `${verbs} at ${words(rule.nonResourceURLs, 'every path')}`;
  const groups = (rule.apiGroups || []).filter((/** @type {string} */ group) => group && group !== '*');
  return `${verbs} with ${words(rule.resources, 'every kind')}${groups.length ? ` of ${groups.join(', ')}` : ''}${rule.resourceNames?.length ? ` called ${rule.resourceNames.join(', ')}` : ''}`;
}

/** What a credential of a driver consists of; secret fields are typed unseen. @param {any} driver @returns {{name: string, secret: boolean, optional: boolean}[]} */
export function credentialFields(driver) {
  const list = (/** @type {string} */ name) => String(driver?.metadata?.annotations?.[name] || '').split(',').map((one) => one.trim().split(':')[0]).filter(Boolean);
  const optional = new Set(list('optionalCredentialFields'));
  const fields = [...list('publicCredentialFields').map((name) => ({ name, secret: false })), ...list('privateCredentialFields').map((name) => ({ name, secret: true }))];
  for (const name of optional) if (!fields.some((one) => one.name === name)) fields.push({ name, secret: false });
  return fields.map((one) => ({ ...one, optional: optional.has(one.name) }));
}

/** Of a Secret: the driver it is for, and which fields it has. Nothing if it is no credential. @param {any} secret @returns {{driver: string, fields: string[]} | null} */
export function credentialOf(secret) {
  const found = Object.keys(secret?.data || {}).map((key) => /^(.+)credentialConfig-(.+)$/.exec(key)).filter((one) => one !== null);
  return found.length ? { driver: found[0][1], fields: found.map((one) => one[2]) } : null;
}

/** @param {string} driver @param {Record<string, string>} values @param {string} name @param {string} description */
export function credentialSecret(driver, values, name, description) {
  const stringData = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== '').map(([field, value]) => [`${driver}credentialConfig-${field}`, value]));
  return {
    apiVersion: 'v1', kind: 'Secret', metadata: { ...(name ? { name } : { generateName: 'cc-' }), namespace: CREDENTIALS, ...(description ? { annotations: { 'field.cattle.io/description': description } } : {}) }, type: 'Opaque', stringData,
  };
}

/** Clusters that name a credential, by themselves or in a pool. @param {any} secret @param {any[]} clusters */
export function credentialUsers(secret, clusters) {
  const { namespace, name } = secret.metadata;
  return clusters.filter((cluster) => [cluster.spec?.cloudCredentialSecretName, ...(cluster.spec?.rkeConfig?.machinePools || []).map((/** @type {any} */ pool) => pool.cloudCredentialSecretName)].some((named) => named === `${namespace}:${name}` || (named === name && cluster.metadata.namespace === namespace)));
}

/** How a driver stands. @param {any} driver @returns {{tone: import('./objects.js').Tone, word: string, why: string}} */
export function driverState(driver) {
  const failed = (driver.status?.conditions || []).find((/** @type {any} */ one) => ['Downloaded', 'Installed'].includes(one.type) && one.status === 'False');
  if (failed && driver.spec?.active) return { tone: 'bad', word: 'Failed', why: failed.message || failed.reason || `${failed.type} is false` };
  if (!driver.spec?.active) return { tone: 'off', word: 'Inactive', why: '' };
  const active = (driver.status?.conditions || []).some((/** @type {any} */ one) => one.type === 'Active' && one.status === 'True');
  return active ? { tone: 'ok', word: 'Active', why: '' } : { tone: 'move', word: 'Activating', why: '' };
}

/** Kinds of machine configurations, one for each driver. @param {Iterable<any>} schemas @returns {any[]} */
export const configSchemas = (schemas) => [...schemas].filter((one) => one.id.startsWith(CONFIG) && one.collectionMethods?.includes('GET')).sort((a, b) => (a.id < b.id ? -1 : 1));

/** Pools that are made from a configuration. @param {any} config @param {any[]} clusters @returns {{cluster: any, pool: any}[]} */
export function poolsOf(config, clusters) {
  return clusters.filter((one) => one.metadata.namespace === config.metadata.namespace).flatMap((cluster) => (cluster.spec?.rkeConfig?.machinePools || [])
    .filter((/** @type {any} */ pool) => pool.machineConfigRef?.name === config.metadata.name && pool.machineConfigRef?.kind === config.kind).map((/** @type {any} */ pool) => ({ cluster, pool })));
}

/** What a cluster does when a configuration it uses is edited. @param {any} cluster @param {any} pool */
export function editPolicy(cluster, pool) {
  const name = 'remuda.io/config-update-policy';
  const said = pool?.machineDeploymentAnnotations?.[name] || cluster?.metadata?.annotations?.[name];
  return ['Auto', 'Never'].includes(said) ? said : 'Ask';
}

/** What a session was begun with, in a few words: browsers say a great deal more. @param {string | undefined} agent */
export function agentName(agent) {
  const text = agent || '';
  const find = (/** @type {[RegExp, string][]} */ list) => list.find(([known]) => known.test(text))?.[1];
  const browser = find([[/Edg\//, 'Edge'], [/Firefox\//, 'Firefox'], [/Chrome\//, 'Chrome'], [/Safari\//, 'Safari']]);
  const system = find([[/Android/, 'Android'], [/iPhone|iPad/, 'iOS'], [/Windows/, 'Windows'], [/Mac OS X/, 'macOS'], [/Linux/, 'Linux']]);
  return browser ? [browser, system].filter(Boolean).join(' on ') : text.slice(0, 60);
}
