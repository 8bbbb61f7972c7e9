// Descriptions of elements, and bringing a place of the document to a description.
//
// Text of objects only ever becomes text nodes and attribute values: there is no way here to make markup of a string.

/**
 * @typedef {{tag: string, props: Record<string, any>, children: VNode[], key: any, el?: any}} Element_
 * @typedef {{text: string, el?: any}} Text_
 * @typedef {Element_ | Text_} VNode
 */

const SVG = 'http://www.w3.org/2000/svg';

/** Only addresses that lead somewhere; `javascript:` and the like run something. @param {string} value */
export function safeHref(value) {
  const text = String(value);
  return /^(\/(?!\/)|#|\?|https:\/\/|blob:)/.test(text) ? text : '#';
}

/**
 * @param {string | ((props: any) => any)} tag
 * @param {Record<string, any> | null} [props]
 * @param {...any} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
  const given = props || {};
  if (typeof tag === 'function') return tag({ ...given, children });
  /** @type {VNode[]} */
  const list = [];
  flatten(children, list);
  return { tag, props: given, children: list, key: given.key };
}

/** @param {any} child @param {VNode[]} into */
function flatten(child, into) {
  if (child === null || child === undefined || child === false || child === true) return;
  if (Array.isArray(child)) for (const one of child) flatten(one, into);
  else if (typeof child === 'object' && ('tag' in child || 'text' in child)) into.push(child);
  else into.push({ text: String(child) });
}

/** What a place shows now. @type {WeakMap<Node, VNode[]>} */
const shown = new WeakMap();

/** Makes the children of a place what is described. @param {Element} place @param {any} what */
export function render(place, what) {
  /** @type {VNode[]} */
  const next = [];
  flatten(what, next);
  patchChildren(place, shown.get(place) || [], next, place.namespaceURI === SVG);
  shown.set(place, next);
}

/** @param {any} vnode */
const keyOf = (vnode) => ('text' in vnode ? '#text' : vnode.tag + '\u0000' + (vnode.key ?? ''));

/** @param {any} parent @param {any[]} old @param {any[]} next @param {boolean} svg */
function patchChildren(parent, old, next, svg) {
  // Those of one key are matched in their order; what has moved is moved, so focus and scrolling stay with it.
  /** @type {Map<string, any[]>} */
  const free = new Map();
  for (const vnode of old) {
    const key = keyOf(vnode);
    const list = free.get(key);
    if (list) list.push(vnode);
    else free.set(key, [vnode]);
  }
  for (const vnode of next) {
    const match = free.get(keyOf(vnode))?.shift();
    if (match) patch(match, vnode, svg);
    else create(vnode, svg);
  }
  for (const list of free.values()) for (const vnode of list) remove(vnode);
  let at = parent.firstChild;
  for (const vnode of next) {
    if (vnode.el === at) at = at.nextSibling;
    else parent.insertBefore(vnode.el, at);
  }
}

/** @param {any} vnode @param {boolean} svg */
function create(vnode, svg) {
  if ('text' in vnode) {
    vnode.el = document.createTextNode(vnode.text);
    return;
  }
  const inside = svg || vnode.tag === 'svg';
  const el = inside ? document.createElementNS(SVG, vnode.tag) : document.createElement(vnode.tag);
  vnode.el = el;
  patchChildren(el, [], vnode.children, inside);
  // After the children: the value of a select is one of them.
  for (const name in vnode.props) setProp(el, name, undefined, vnode.props[name]);
  if (vnode.props.ref) vnode.props.ref(el);
}

/** @param {any} old @param {any} next @param {boolean} svg */
function patch(old, next, svg) {
  const el = (next.el = old.el);
  if (old === next) return;
  if ('text' in next) {
    if (old.text !== next.text) el.data = next.text;
    return;
  }
  patchChildren(el, old.children, next.children, svg || next.tag === 'svg');
  for (const name in old.props) if (!(name in next.props)) setProp(el, name, old.props[name], undefined);
  for (const name in next.props) setProp(el, name, old.props[name], next.props[name]);
}

/** @param {any} vnode */
function remove(vnode) {
  gone(vnode);
  vnode.el.remove();
}

/** @param {any} vnode */
function gone(vnode) {
  if ('text' in vnode) return;
  if (vnode.props.gone) vnode.props.gone(vnode.el);
  for (const child of vnode.children) gone(child);
}

/** @param {any} el @param {string} name @param {any} old @param {any} value */
function setProp(el, name, old, value) {
  if (name === 'key' || name === 'ref' || name === 'gone') return;
  if (name.startsWith('on')) {
    const handlers = (el.handlers_ ??= {});
    const type = name.slice(2).toLowerCase();
    if (!(type in handlers)) el.addEventListener(type, (/** @type {Event} */ event) => handlers[type]?.(event));
    handlers[type] = value;
    return;
  }
  if (name === 'value' || name === 'checked' || name === 'disabled' || name === 'indeterminate') {
    const wanted = value ?? (name === 'value' ? '' : false);
    // What a person has typed is theirs: it is replaced only when what is wanted has changed. The choices of a select
    // may have come later than its value.
    if (name === 'value' && old === value && el.tagName !== 'SELECT') return;
    if (el[name] !== wanted) el[name] = wanted;
    return;
  }
  if (name === 'style') {
    for (const one in old || {}) if (!value || !(one in value)) el.style.removeProperty(one);
    for (const one in value || {}) if (!old || old[one] !== value[one]) el.style.setProperty(one, value[one]);
    return;
  }
  if (old === value) return;
  if (value === undefined || value === null || value === false) el.removeAttribute(name);
  else el.setAttribute(name, name === 'href' ? safeHref(value) : value === true ? '' : String(value));
}

/** Draws in the next frame, once, however often it is asked to. @param {() => void} draw */
export function scheduler(draw) {
  let waiting = 0;
  const run = () => {
    waiting = 0;
    draw();
  };
  /** Draws now if a frame may be long in coming. */
  const ask = () => {
    if (waiting) return;
    waiting = document.hidden ? setTimeout(run, 50) : requestAnimationFrame(run);
  };
  return ask;
}
