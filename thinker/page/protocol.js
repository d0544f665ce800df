// The wire format of docs/protocol.md: the binary unit, and the words of the control messages.

export const SUBPROTOCOL = 'thinker-performer.v1';
export const VERSION = 1;
export const HEADER_BYTES = 27;
export const MediaKind = { USER: 1, AGENT: 2 };
const AudioEncoding = { NONE: 0, PCM16: 1 };
const VideoEncoding = { NONE: 0, JPEG: 1 };

/**
 * @param {{kind?: number, epoch: number, unit: number, ptsUs: number, pcm: Int16Array|null, frames: Uint8Array[]}} unit
 * @returns {ArrayBuffer} one binary WebSocket message
 */
export function encodeUnit({ kind = MediaKind.USER, epoch, unit, ptsUs, pcm, frames }) {
  const audio = pcm ? new Uint8Array(pcm.buffer, pcm.byteOffset, pcm.byteLength) : new Uint8Array(0);
  const parts = [audio, ...frames];
  const size = parts.reduce((sum, part) => sum + 4 + part.length, HEADER_BYTES);
  const bytes = new Uint8Array(size);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, kind);
  view.setUint8(1, VERSION);
  view.setUint32(4, epoch, true);
  view.setBigUint64(8, BigInt(unit), true);
  view.setBigUint64(16, BigInt(ptsUs), true);
  view.setUint8(24, pcm ? AudioEncoding.PCM16 : AudioEncoding.NONE);
  view.setUint8(25, frames.length ? VideoEncoding.JPEG : VideoEncoding.NONE);
  view.setUint8(26, frames.length);
  let at = HEADER_BYTES;
  for (const part of parts) {
    view.setUint32(at, part.length, true);
    bytes.set(part, at + 4);
    at += 4 + part.length;
  }
  return bytes.buffer;
}

/**
 * @param {ArrayBuffer} buffer one binary WebSocket message
 * @returns the unit: {kind, flags, epoch, unit, ptsUs, pcm: Int16Array, frames: Uint8Array[]}
 * @throws {Error} in plain words when the bytes are not a unit
 */
export function decodeUnit(buffer) {
  if (buffer.byteLength < HEADER_BYTES) throw new Error('media message ends inside its header');
  const view = new DataView(buffer);
  if (view.getUint8(1) !== VERSION) throw new Error(`media version ${view.getUint8(1)} is not known here`);
  const count = view.getUint8(26);
  const parts = [];
  let at = HEADER_BYTES;
  for (let part = 0; part <= count; part++) {
    if (at + 4 > buffer.byteLength) throw new Error(`media message ends before part ${part}`);
    const size = view.getUint32(at, true);
    if (at + 4 + size > buffer.byteLength) throw new Error(`part ${part} is longer than its message`);
    parts.push(buffer.slice(at + 4, at + 4 + size)); // a copy: Int16Array wants even addresses
    at += 4 + size;
  }
  if (at !== buffer.byteLength) throw new Error('bytes after the last part');
  const [audio, ...frames] = parts;
  return {
    kind: view.getUint8(0),
    flags: view.getUint16(2, true),
    epoch: view.getUint32(4, true),
    unit: Number(view.getBigUint64(8, true)),
    ptsUs: Number(view.getBigUint64(16, true)),
    pcm: new Int16Array(audio, 0, audio.byteLength >> 1),
    frames: frames.map((frame) => new Uint8Array(frame)),
  };
}
