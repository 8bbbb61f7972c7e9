// Configurations of a driver's machines: the fields its schema has, and the object they make. Nothing here touches the document.

const API = 'rke-machine-config.cattle.io';
/** Fields that say where a machine is and how large: these are asked first, the others on demand. */
const FIRST = /^(region|zone|location|size|image|server_?type|server_?location|instance_?type|machine_?type|resource_?group|vm_?clone_?vmid|.*node|ip_?address|ssh_?user)$/i;

/**
 * @typedef {{name: string, kind: 'text' | 'secret' | 'flag' | 'list' | 'choice', usual: any, options: string[], note: string, first: boolean}} Field
 * @typedef {{name: string, kind: string, plural: string, fields: Field[], credentialKeys: string[]}} Driver
 */

/** Fields a form has, those of credentials left out. @param {any} schema @param {string[]} credentialKeys @returns {Field[]} */
export function fieldsOf(schema, credentialKeys) {
  const fields = Object.entries(schema?.resourceFields || {}).filter(([name]) => !credentialKeys.includes(name)).map(([name, field]) => {
    const type = String(field.type || 'string');
    const options = (field.options || []).map(String);
    const kind = /** @type {Field['kind']} */ (type === 'boolean' ? 'flag' : type.startsWith('array') ? 'list' : options.length ? 'choice' : type === 'password' ? 'secret' : 'text');
    const usual = kind === 'list' ? field.default || [] : kind === 'flag' ? field.default === true : String(field.default ?? '');
    return { name, kind, usual, options, note: String(field.description || ''), first: Boolean(field.required) || FIRST.test(name) };
  });
  return fields.sort((a, b) => Number(b.first) - Number(a.first) || (a.name < b.name ? -1 : 1));
}

/** Values with one more; what is usual is not written, so that a driver's defaults stay its own. @param {Record<string, any>} values @param {Field} field @param {any} value */
export function withValue(values, field, value) {
  const { [field.name]: _, ...others } = values || {};
  const given = field.kind === 'list' ? String(value).split('\n').map((line) => line.trim()).filter(Boolean) : value;
  const same = field.kind === 'list' ? JSON.stringify(given) === JSON.stringify(field.usual) || !given.length : given === field.usual || given === '';
  return same ? others : { ...others, [field.name]: given };
}

/** What a field shows. @param {Record<string, any>} values @param {Field} field */
export const shownValue = (values, field) => {
  const value = values?.[field.name];
  if (field.kind === 'flag') return value ?? field.usual;
  return field.kind === 'list' ? (value || []).join('\n') : value ?? '';
};

/** What stands in a field that is empty. @param {Field} field */
export const usualText = (field) => (field.kind === 'list' ? field.usual.join(', ') : field.kind === 'secret' ? '' : String(field.usual || ''));

/** The object a pool is made from. @param {string} kind @param {string} name @param {string} namespace @param {Record<string, any>} [values] */
export const configObject = (kind, name, namespace, values) => ({ apiVersion: `${API}/v1`, kind, metadata: { name, namespace }, ...values });

/** Drivers that machines can be made with here: active ones whose kind one may create. @param {any[]} drivers @param {any[]} schemas @param {(driver: any) => string[]} keysOf @returns {Driver[]} */
export function usableDrivers(drivers, schemas, keysOf) {
  return drivers.filter((one) => one.spec?.active).flatMap((one) => {
    const name = String(one.spec.displayName || one.metadata.name).toLowerCase();
    const schema = schemas.find((known) => known.id === `${API}.${name}config` && known.collectionMethods?.includes('POST'));
    return schema && name !== 'local' ? [{ name, kind: schema.attributes.kind, plural: schema.attributes.resource, fields: [], credentialKeys: keysOf(one) }] : [];
  });
}
