// The jitter buffer: sound in units of uneven arrival in, an even stream with a media position out.
// Pure code, driven by samples taken: its only clock is the sound card's. Runs inside the playout worklet.

const FADE_S = 0.008;
const HEAD_START_MS = 80;
const HEAD_START_MAX_MS = 480;
const AFTER_UNDERRUN_MS = 40;
const TOO_FULL_MS = 1200;
const WINDOW_S = 2; // how long the low-water mark is watched before the speed is chosen anew
const CALM_WINDOWS = 15;
const LOUD = 0.01; // about −40 dBFS: what counts as "not silent"

export class JitterBuffer {
  /** @param {number} rate of the sound in Hz */
  constructor(rate) {
    this.rate = rate;
    this.fade = Math.round(rate * FADE_S);
    this.chunks = []; // {ptsUs, samples, jump: a gap before it, tail: the last before a flush}
    this.index = 0; // in chunks[0]
    this.buffered = 0; // samples in all chunks that are not taken
    this.endUs = null; // media time at which the next unit is expected to begin
    this.positionUs = 0;
    this.held = true;
    this.playing = false;
    this.waited = 0;
    this.headStartMs = HEAD_START_MS;
    this.gain = 0;
    this.speed = 1;
    this.underruns = 0;
    this.nonSilent = 0;
    this.low = Infinity;
    this.watched = 0;
    this.calm = 0;
  }

  get bufferedMs() {
    return (this.buffered / this.rate) * 1000;
  }

  /** @param {number} ptsUs media time of the first sample @param {Float32Array} samples */
  push(ptsUs, samples) {
    const jump = this.endUs !== null && Math.abs(ptsUs - this.endUs) > 1000;
    this.chunks.push({ ptsUs, samples, jump });
    this.buffered += samples.length;
    this.endUs = ptsUs + (samples.length / this.rate) * 1e6;
    if (this.bufferedMs > TOO_FULL_MS) this.#skip();
  }

  /** The first unit's pictures are there too: playing may begin. */
  release() {
    this.held = false;
  }

  /** Throw away what waits, but for the few milliseconds that fade it out. */
  flush() {
    const first = this.chunks[0];
    this.chunks = [];
    this.buffered = 0;
    this.endUs = null;
    if (!first || !this.playing) return;
    const tail = first.samples.subarray(0, Math.min(first.samples.length, this.index + this.fade));
    this.chunks = [{ ...first, samples: tail, tail: true }];
    this.buffered = tail.length - this.index;
  }

  /** Fill `out` with the next samples; silence where there are none. */
  take(out) {
    out.fill(0);
    let at = 0;
    while (at < out.length) {
      if (this.playing && this.chunks.length === 0) this.#runDry();
      if (!this.playing && !this.#start(out.length - at)) break;
      at += this.#copy(out, at);
    }
    this.#watch(out.length);
  }

  /** Begin when there is something, nothing holds it back and it had its head start. */
  #start(silence) {
    if (this.chunks.length === 0) return false;
    this.positionUs = this.chunks[0].ptsUs + (this.index / this.rate) * 1e6;
    if (this.held) return false;
    this.waited += silence;
    if ((this.waited / this.rate) * 1000 < this.headStartMs) return false;
    this.playing = true;
    this.gain = 0;
    this.low = Infinity;
    this.watched = 0;
    return true;
  }

  /** Copy from the first chunk, fading towards an end that has no continuation. @returns samples copied */
  #copy(out, at) {
    const { samples, ptsUs, jump, tail } = this.chunks[0];
    if (jump && this.index === 0) this.gain = 0;
    let runway = samples.length - this.index;
    for (let next = 1; next < this.chunks.length && runway <= this.fade && !tail; next++) {
      if (this.chunks[next].jump) break;
      runway += this.chunks[next].samples.length;
    }
    const count = Math.min(out.length - at, samples.length - this.index);
    for (let step = 0; step < count; step++) {
      const rise = runway - step > this.fade ? 1 : -1;
      this.gain = Math.min(1, Math.max(0, this.gain + rise / this.fade));
      const value = samples[this.index + step] * this.gain;
      if (Math.abs(value) > LOUD) this.nonSilent++;
      out[at + step] = value;
    }
    this.index += count;
    this.buffered -= count;
    this.positionUs = ptsUs + (this.index / this.rate) * 1e6;
    if (this.index === samples.length) {
      this.chunks.shift();
      this.index = 0;
      if (tail) this.#pause();
    }
    return count;
  }

  #pause() {
    this.playing = false;
    this.waited = 0;
    this.speed = 1;
  }

  #runDry() {
    this.#pause();
    this.underruns++;
    this.calm = 0;
    this.headStartMs = Math.min(HEAD_START_MAX_MS, this.headStartMs + AFTER_UNDERRUN_MS);
  }

  /** A stall ended and everything came at once: jump to the newest, rather than lag for ever. */
  #skip() {
    const keep = (this.headStartMs / 1000) * this.rate;
    while (this.chunks.length > 1 && this.buffered - (this.chunks[0].samples.length - this.index) >= keep) {
      this.buffered -= this.chunks[0].samples.length - this.index;
      this.chunks.shift();
      this.index = 0;
      this.chunks[0].jump = true;
    }
  }

  /** Speed follows the low-water mark, by a percent or so: takes up drift and shortens needless delay unheard. */
  #watch(count) {
    if (!this.playing) return;
    this.low = Math.min(this.low, this.bufferedMs);
    this.watched += count;
    if (this.watched < WINDOW_S * this.rate) return;
    if (this.low > this.headStartMs + 60) this.speed = 1.015;
    else if (this.low < 20) this.speed = 0.99;
    else if (this.low < this.headStartMs + 10) this.speed = 1;
    this.low = Infinity;
    this.watched = 0;
    if (++this.calm % CALM_WINDOWS === 0) this.headStartMs = Math.max(HEAD_START_MS, this.headStartMs - 20);
  }
}
