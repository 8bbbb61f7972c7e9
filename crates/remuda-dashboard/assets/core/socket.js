// One WebSocket per API root, over which everything that is watched is told.

/** @typedef {{resourceType: string, namespace?: string, id?: string, selector?: string, mode?: string, debounceMs?: number}} Topic */
/** @typedef {{topic: Topic, tell: (message: any) => void, refused?: boolean}} Watch */

/** Answers to a subscription repeat what it asked for. @param {any} one */
const key = (one) => [one.resourceType, one.namespace || '', one.id || '', one.selector || '', one.mode || ''].join('|');

export class Socket {
  /** @param {string} root @param {(up: boolean, since: number) => void} onState */
  constructor(root, onState) {
    this.root = root;
    this.onState = onState;
    /** @type {Map<string, Set<Watch>>} */
    this.topics = new Map();
    /** @type {WebSocket | null} */
    this.socket = null;
    this.failures = 0;
    this.retry = 0;
    this.closed = false;
    this.everUp = false;
  }

  connect() {
    if (this.socket || this.closed) return;
    const address = new URL(`${this.root}/v1/subscribe`, location.href);
    address.protocol = location.protocol === 'http:' ? 'ws:' : 'wss:';
    const socket = new WebSocket(address);
    this.socket = socket;
    socket.onopen = () => {
      this.failures = 0;
      const again = this.everUp;
      this.everUp = true;
      this.onState(true, Date.now());
      for (const watches of this.topics.values()) {
        const [first] = watches;
        if (first) this.send(first.topic, false);
        // What happened while the connection was away is only known by looking.
        if (again) for (const watch of watches) watch.tell({ name: 'resumed' });
      }
    };
    socket.onmessage = (event) => this.receive(event.data);
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (this.closed) return;
      this.failures += 1;
      this.onState(false, Date.now());
      const wait = Math.min(30_000, 500 * 2 ** Math.min(this.failures, 6)) * (0.5 + Math.random() / 2);
      this.retry = setTimeout(() => this.connect(), wait);
    };
  }

  close() {
    this.closed = true;
    clearTimeout(this.retry);
    this.socket?.close();
    this.socket = null;
  }

  /** @param {string} data */
  receive(data) {
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    const watches = this.topics.get(key(message));
    if (!watches) return;
    for (const watch of [...watches]) watch.tell(message);
    if (message.name === 'resource.stop') {
      const [first] = watches;
      // The server ends watches of slow readers and of what is too old; both begin again from now.
      if (first && !first.refused) setTimeout(() => watches.size && this.send(first.topic, false), 500);
    }
    if (message.name === 'resource.error') for (const watch of watches) watch.refused = message.data?.code !== 'Expired';
  }

  /** @param {Topic} topic @param {boolean} stop */
  send(topic, stop) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ ...topic, stop }));
  }

  /** @param {Topic} topic @param {(message: any) => void} tell @returns {() => void} which ends it */
  watch(topic, tell) {
    const name = key(topic);
    /** @type {Watch} */
    const watch = { topic, tell };
    const watches = this.topics.get(name) || new Set();
    this.topics.set(name, watches);
    watches.add(watch);
    if (watches.size === 1) this.send(topic, false);
    this.connect();
    return () => {
      if (!watches.delete(watch) || watches.size) return;
      this.topics.delete(name);
      this.send(topic, true);
    };
  }
}
