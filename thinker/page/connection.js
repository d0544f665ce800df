// One session over one WebSocket: hello, numbering of the user's units, epochs, pings.

import { MediaKind, SUBPROTOCOL, decodeUnit, encodeUnit } from './protocol.js';

const PING_EVERY_MS = 2000;
const MAX_UNANSWERED = 4; // pings without anything heard: a dead line often shows no error for minutes
const CONGESTED_BYTES = 256 * 1024; // the camera gives way first: sound matters more
const STUCK_BYTES = 1024 * 1024;

export class Connection {
  /**
   * @param {string} url of the session endpoint
   * @param {object} hello fields of the hello message
   * @param {object} on handlers by message type, and `unit(unit)`, `roundTrip(ms)`, `closed(code, reason)`
   */
  constructor(url, hello, on) {
    this.on = on;
    this.ready = null;
    this.epoch = 0;
    this.unitsSent = 0;
    this.nextUnit = 0;
    this.unanswered = 0;
    this.over = false;
    this.socket = new WebSocket(url, SUBPROTOCOL);
    this.socket.binaryType = 'arraybuffer';
    this.socket.onopen = () => this.send({ type: 'hello', version: 1, ...hello });
    this.socket.onmessage = (event) => this.#receive(event.data);
    this.socket.onclose = (event) => this.#end(event.code, event.reason);
    this.pings = setInterval(() => this.#ping(), PING_EVERY_MS);
  }

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  /** The user's next 160 ms. Call it once for every unit of time, with whatever there is. */
  sendUnit(pcm, frames) {
    if (!this.ready || this.socket.readyState !== WebSocket.OPEN) return;
    const unit = this.nextUnit++;
    if (this.socket.bufferedAmount > STUCK_BYTES) return;
    const ptsUs = unit * this.ready.unit_ms * 1000;
    const kept = this.socket.bufferedAmount > CONGESTED_BYTES ? [] : frames;
    this.socket.send(encodeUnit({ epoch: this.epoch, unit, ptsUs, pcm, frames: kept }));
    this.unitsSent++;
  }

  /** An orderly end from this side; `closed` is called at once. */
  close(reason) {
    this.send({ type: 'bye', reason });
    this.#end(1000, reason);
    this.socket.close(1000);
  }

  #receive(data) {
    if (this.over) return;
    this.unanswered = 0;
    try {
      if (typeof data === 'string') this.#control(JSON.parse(data));
      else this.#media(decodeUnit(data));
    } catch (error) {
      this.#end(1007, error.message);
      this.socket.close();
      throw error; // a bug on one of the two ends: let the console show where
    }
  }

  #media(unit) {
    if (unit.kind !== MediaKind.AGENT) return;
    const stale = unit.epoch < this.epoch;
    this.epoch = Math.max(this.epoch, unit.epoch);
    this.on.unit(unit, stale);
  }

  #control(message) {
    switch (message.type) {
      case 'ping':
        return this.send({ type: 'pong', sent_us: message.sent_us });
      case 'pong':
        return this.on.roundTrip(performance.now() - message.sent_us / 1000);
      case 'bye':
        this.byeReason = message.reason;
        return undefined;
      case 'ready':
        this.ready = message;
        break;
      case 'interrupted':
        this.epoch = Math.max(this.epoch, message.epoch);
        break;
    }
    return this.on[message.type]?.(message); // types that nobody here knows are ignored, by the protocol
  }

  #ping() {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    if (this.unanswered++ >= MAX_UNANSWERED) {
      this.#end(1006, '');
      this.socket.close();
    }
    this.send({ type: 'ping', sent_us: Math.round(performance.now() * 1000) });
  }

  #end(code, reason) {
    if (this.over) return;
    this.over = true;
    clearInterval(this.pings);
    this.on.closed(code, reason || this.byeReason || '');
  }
}
