// Audio thread: jitter buffer at the agent's rate → resampler → the sound card's rate.

import { JitterBuffer } from './jitter.js';
import { Resampler } from './resample.js';

const BLOCK = 64;
const REPORT_EVERY_S = 0.02;

class Playout extends AudioWorkletProcessor {
  constructor({ processorOptions: { rate } }) {
    super();
    this.rate = rate;
    this.jitter = new JitterBuffer(rate);
    this.resampler = new Resampler(rate, sampleRate);
    this.block = new Float32Array(BLOCK);
    this.nextReport = 0;
    this.port.onmessage = ({ data }) => {
      if (data.type === 'unit') this.jitter.push(data.ptsUs, data.samples);
      else if (data.type === 'release') this.jitter.release();
      else if (data.type === 'flush') this.jitter.flush();
    };
  }

  process(_inputs, [[out, ...others]]) {
    const { jitter, resampler } = this;
    while (!resampler.holds(out.length, jitter.speed)) {
      jitter.take(this.block);
      resampler.write(this.block);
    }
    resampler.read(out, 0, jitter.speed);
    for (const other of others) other.set(out);
    if (currentTime >= this.nextReport) {
      this.nextReport = currentTime + REPORT_EVERY_S;
      this.port.postMessage(this.#report());
    }
    return true;
  }

  #report() {
    const { positionUs, bufferedMs, underruns, nonSilent, playing } = this.jitter;
    const unheardUs = (this.resampler.pending / this.rate) * 1e6;
    return { positionUs: Math.max(0, positionUs - unheardUs), bufferedMs, underruns, nonSilent, playing, time: currentTime };
  }
}

registerProcessor('playout', Playout);
