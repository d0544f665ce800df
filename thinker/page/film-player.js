// Plays a film while it is made: fragments of an MP4 into a MediaSource, in order.

const KEPT_BEHIND_S = 30; // of what was played, in a film that does not end
const KEPT_BYTES = 200e6; // for the download
const START_S = 0.3; // that must be there before it plays

export class FilmPlayer {
  /** @param {HTMLVideoElement} video */
  constructor(video) {
    this.video = video;
    this.pieces = [];
    this.bytes = 0;
  }

  /** @param {string} mime as the server says it; throws an Error with a sentence where it can't be played. */
  begin(mime, endless) {
    if (!window.MediaSource) throw new Error('This browser can not play a film while it is made.');
    if (!MediaSource.isTypeSupported(mime)) throw new Error(`This browser can not play ${mime}.`);
    this.stop();
    Object.assign(this, { mime, endless, pieces: [], bytes: 0, waiting: [], ended: false, started: false });
    this.source = new MediaSource();
    this.address = URL.createObjectURL(this.source);
    this.video.src = this.address;
    this.source.addEventListener('sourceopen', () => this.#open(), { once: true });
  }

  append(piece) {
    if (this.bytes + piece.byteLength <= KEPT_BYTES) this.pieces.push(piece);
    this.bytes += piece.byteLength;
    this.waiting.push(piece);
    this.#feed();
  }

  end() {
    this.ended = true;
    this.#feed();
  }

  stop() {
    if (this.address) URL.revokeObjectURL(this.address);
    this.address = this.buffer = null;
  }

  /** Seconds that are there and not played yet. */
  get ahead() {
    const { buffered, currentTime } = this.video;
    return buffered.length ? Math.max(0, buffered.end(buffered.length - 1) - currentTime) : 0;
  }

  /** All of it as a file, or null when it was too much to keep. */
  file() {
    return this.bytes > KEPT_BYTES ? null : new Blob(this.pieces, { type: 'video/mp4' });
  }

  #open() {
    this.buffer = this.source.addSourceBuffer(this.mime);
    this.buffer.addEventListener('updateend', () => this.#feed());
    this.#feed();
  }

  #feed() {
    const { buffer } = this;
    if (!buffer || buffer.updating) return;
    if (this.waiting.length) {
      buffer.appendBuffer(this.waiting.shift());
    } else if (this.endless && this.#old() > 0) {
      buffer.remove(0, this.#old());
    } else if (this.ended && this.source.readyState === 'open') {
      this.source.endOfStream();
    }
    if (!this.started && (this.ahead >= START_S || this.ended)) {
      this.started = true;
      this.video.play().catch(() => {}); // the controls are there to start it by hand
    }
  }

  #old() {
    const until = this.video.currentTime - KEPT_BEHIND_S;
    const { buffered } = this.video;
    return buffered.length && buffered.start(0) < until - 10 ? until : 0;
  }
}
