// Audio thread: the microphone at the sound card's rate → units of PCM16. It also keeps the time of the
// camera and, without a microphone, for units that hold no sound: this clock is never throttled.

import { Resampler } from './resample.js';

class Capture extends AudioWorkletProcessor {
  constructor({ processorOptions: { rate, unitSamples, framesPerUnit } }) {
    super();
    this.resampler = new Resampler(sampleRate, rate);
    this.silence = new Float32Array(128);
    this.unit = new Float32Array(unitSamples);
    this.filled = 0;
    this.frameSamples = unitSamples / framesPerUnit;
    this.nextFrame = 0;
    this.heard = false;
  }

  process([[input]]) {
    if (input) this.heard = true;
    this.resampler.write(input ?? this.silence);
    for (;;) {
      const got = this.resampler.read(this.unit, this.filled);
      if (got === 0) return true;
      this.filled += got;
      while (this.nextFrame * this.frameSamples < this.filled) {
        this.nextFrame++;
        this.port.postMessage({ type: 'frame' });
      }
      if (this.filled === this.unit.length) this.#emit();
    }
  }

  #emit() {
    const message = { type: 'unit', pcm: null, level: 0 };
    const transfer = [];
    if (this.heard) {
      message.pcm = Int16Array.from(this.unit, (x) => Math.max(-32768, Math.min(32767, Math.round(x * 32768))));
      message.level = this.unit.reduce((peak, x) => Math.max(peak, Math.abs(x)), 0);
      transfer.push(message.pcm.buffer);
    }
    this.port.postMessage(message, transfer);
    this.filled = 0;
    this.nextFrame = 0;
    this.heard = false;
  }
}

registerProcessor('capture', Capture);
