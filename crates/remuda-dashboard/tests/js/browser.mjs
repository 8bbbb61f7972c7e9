// What modules of parts look for when they are loaded; nothing is drawn here.
globalThis.HTMLElement = class {};
globalThis.customElements = /** @type {any} */ ({ define() {} });
