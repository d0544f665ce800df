// Streaming sample rate conversion by windowed sinc. Runs inside the audio worklets.

const ZERO_CROSSINGS = 12;
const PHASES = 512;
const PASSBAND = 0.94;

export class Resampler {
  /** @param {number} fromRate of what is written @param {number} toRate of what is read, both in Hz */
  constructor(fromRate, toRate) {
    this.step = fromRate / toRate;
    const cutoff = Math.min(1, toRate / fromRate) * PASSBAND;
    this.half = Math.ceil(ZERO_CROSSINGS / cutoff);
    this.kernel = makeKernel(this.half, cutoff);
    this.buffer = new Float32Array(8192);
    this.length = this.half; // silence before the first sample, so that it can stand in the middle of the kernel
    this.at = this.half;
  }

  /** Written samples that are not read yet. */
  get pending() {
    return this.length - this.at;
  }

  /** @param {Float32Array} samples */
  write(samples) {
    if (this.length + samples.length > this.buffer.length) this.#compact(samples.length);
    this.buffer.set(samples, this.length);
    this.length += samples.length;
  }

  /** Whether `count` samples can be read at this speed. */
  holds(count, speed = 1) {
    return Math.floor(this.at + (count - 1) * this.step * speed) + this.half < this.length;
  }

  /**
   * Fill `out` from index `from` on, as far as the written samples reach.
   * @param {number} speed above 1 plays faster (and a little higher)
   * @returns {number} samples produced
   */
  read(out, from = 0, speed = 1) {
    const taps = 2 * this.half;
    const step = this.step * speed;
    let produced = 0;
    for (let index = from; index < out.length; index++) {
      const whole = Math.floor(this.at);
      if (whole + this.half >= this.length) break;
      const row = Math.round((this.at - whole) * PHASES) * taps;
      const first = whole - this.half + 1;
      let sum = 0;
      for (let tap = 0; tap < taps; tap++) sum += this.kernel[row + tap] * this.buffer[first + tap];
      out[index] = sum;
      this.at += step;
      produced++;
    }
    return produced;
  }

  #compact(more) {
    const drop = Math.max(0, Math.floor(this.at) - this.half);
    const needed = this.length - drop + more;
    const target = needed > this.buffer.length ? new Float32Array(2 * needed) : this.buffer;
    target.set(this.buffer.subarray(drop, this.length));
    this.buffer = target;
    this.length -= drop;
    this.at -= drop;
  }
}

/** Rows of weights, one for each fractional position from 0 to 1; every row sums to 1. */
function makeKernel(half, cutoff) {
  const taps = 2 * half;
  const kernel = new Float32Array((PHASES + 1) * taps);
  for (let phase = 0; phase <= PHASES; phase++) {
    let sum = 0;
    for (let tap = 0; tap < taps; tap++) {
      const x = tap - half + 1 - phase / PHASES;
      const weight = sinc(cutoff * x) * blackman(x / half);
      kernel[phase * taps + tap] = weight;
      sum += weight;
    }
    for (let tap = 0; tap < taps; tap++) kernel[phase * taps + tap] /= sum;
  }
  return kernel;
}

const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));

const blackman = (x) => (Math.abs(x) >= 1 ? 0 : 0.42 + 0.5 * Math.cos(Math.PI * x) + 0.08 * Math.cos(2 * Math.PI * x));
