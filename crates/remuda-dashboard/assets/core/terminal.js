// What terminals say and are told, without the document: keys of the browser as messages, rows of the server as pieces.

/** Cells of one look: text, foreground, background, flags. @typedef {[string, (number | string | null)?, (number | string | null)?, number?]} Run */

export const FLAGS = { bold: 1, dim: 2, italic: 4, underlined: 8, inverse: 16 };

/** The address of a terminal. @param {{cluster: string, namespace: string, pod: string, container: string, columns: number, rows: number}} what */
export function terminalPath(what) {
  const query = new URLSearchParams(Object.entries(what).map(([name, value]) => [name, String(value)]));
  return `/remuda/v1/terminal?${query}`;
}

/**
 * What a key says to a terminal; nothing for keys that stay with the browser: copying, pasting, leaving.
 * @param {{key: string, ctrlKey: boolean, altKey: boolean, shiftKey: boolean, metaKey: boolean, isComposing?: boolean, graph?: boolean}} event
 * @param {boolean} selected whether a text is selected, which Ctrl C copies
 */
export function keyMessage(event, selected) {
  const { key } = event;
  if (event.isComposing || event.metaKey || ['Dead', 'Process', 'Unidentified', 'Shift', 'Control', 'Alt', 'AltGraph', 'Meta', 'CapsLock'].includes(key)) return null;
  // Letters that need a third key are letters.
  if (event.graph && key.length === 1) return { text: key };
  if (event.ctrlKey && event.shiftKey && key.length === 1) return null;
  const low = key.toLowerCase();
  if (event.ctrlKey && !event.altKey && (low === 'v' || (low === 'c' && selected))) return null;
  if (event.shiftKey && ['Escape', 'PageUp', 'PageDown', 'Insert'].includes(key)) return null;
  if (key.length > 1 && !/^(Enter|Escape|Backspace|Tab|Arrow(Up|Down|Left|Right)|Home|End|Insert|Delete|Page(Up|Down)|F([1-9]|1[0-2]))$/.test(key)) return null;
  /** @type {Record<string, any>} */
  const message = { key };
  if (event.ctrlKey) message.control = true;
  if (event.altKey) message.alt = true;
  if (event.shiftKey && key.length > 1) message.shift = true;
  return message;
}

/** A colour of the palette beyond the first sixteen, as pages write it. @param {number} number */
export function paletteColour(number) {
  if (number >= 232) {
    const level = 8 + (number - 232) * 10;
    return `rgb(${level}, ${level}, ${level})`;
  }
  const level = (/** @type {number} */ step) => (step ? 55 + step * 40 : 0);
  const rest = number - 16;
  return `rgb(${level(Math.floor(rest / 36))}, ${level(Math.floor(rest / 6) % 6)}, ${level(rest % 6)})`;
}

/** Class and colours of a piece. @param {Run} run @returns {{className: string, color: string, background: string}} */
export function lookOf(run) {
  const flags = run[3] || 0;
  let [foreground, background] = [run[1] ?? null, run[2] ?? null];
  const names = [];
  if (flags & FLAGS.bold) names.push('t-bold');
  if (flags & FLAGS.dim) names.push('t-dim');
  if (flags & FLAGS.italic) names.push('t-italic');
  if (flags & FLAGS.underlined) names.push('t-under');
  if (flags & FLAGS.inverse) {
    if (foreground === null && background === null) names.push('t-inverse');
    // Backgrounds are pale or dark, by the theme: what has no colour of its own can be read on all of them.
    [foreground, background] = [background, foreground];
  }
  /** @param {number | string | null} colour @param {string} prefix */
  const named = (colour, prefix) => {
    if (typeof colour === 'number' && colour < 16) {
      names.push(`${prefix}${colour}`);
      return '';
    }
    return typeof colour === 'number' ? paletteColour(colour) : /^#[0-9a-f]{6}$/.test(colour || '') ? String(colour) : '';
  };
  return { color: named(foreground, 't-f'), background: named(background, 't-b'), className: names.join(' ') };
}
