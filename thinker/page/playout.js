// The agent's side: sound is the master clock, pictures follow the position that is being heard.

const MAX_FRAMES = 100; // 4 s: a tab in the background paints nothing and must not pile up pictures

export class Playout {
  /**
   * @param {AudioContext} context with playout-worklet.js loaded
   * @param {HTMLCanvasElement} canvas
   * @param {object} ready the server's message
   * @param {(positionUs: number) => void} onPosition called for every screen refresh
   */
  constructor(context, canvas, ready, onPosition) {
    this.context = context;
    this.canvas = canvas;
    this.unitUs = ready.unit_ms * 1000;
    this.onPosition = onPosition;
    this.frames = []; // {ptsUs, bitmap}, in time order
    this.framesPainted = 0;
    this.flushes = 0;
    this.started = false;
    this.report = { positionUs: 0, bufferedMs: 0, underruns: 0, nonSilent: 0, playing: false, time: 0 };
    this.node = new AudioWorkletNode(context, 'playout', {
      numberOfInputs: 0,
      outputChannelCount: [2],
      processorOptions: { rate: ready.sample_rate },
    });
    this.node.port.onmessage = ({ data }) => (this.report = data);
    this.node.connect(context.destination);
    this.sampleRate = ready.sample_rate;
    this.refresh = requestAnimationFrame(() => this.#paint());
  }

  /** Queue one unit; resolves when its pictures are decoded. */
  async add(unit) {
    const samples = unit.pcm.length ? Float32Array.from(unit.pcm, (x) => x / 32768) : this.#silence();
    this.node.port.postMessage({ type: 'unit', ptsUs: unit.ptsUs, samples }, [samples.buffer]);
    const flushes = this.flushes;
    const bitmaps = await Promise.all(unit.frames.map((jpeg) => createImageBitmap(new Blob([jpeg])).catch(() => null)));
    if (flushes !== this.flushes) return; // an interruption came while they were decoded
    bitmaps.forEach((bitmap, index) => {
      if (bitmap) this.frames.push({ ptsUs: unit.ptsUs + (index * this.unitUs) / bitmaps.length, bitmap });
    });
    this.frames.sort((a, b) => a.ptsUs - b.ptsUs);
    while (this.frames.length > MAX_FRAMES) this.frames.shift().bitmap.close();
    if (!this.started) this.node.port.postMessage({ type: 'release' });
    this.started = true;
  }

  /** Forget what is not heard yet. */
  flush() {
    this.flushes++;
    this.frames.splice(0).forEach(({ bitmap }) => bitmap.close());
    this.node.port.postMessage({ type: 'flush' });
  }

  /** Media time in µs that is heard now. */
  get positionUs() {
    const { positionUs, time, playing } = this.report;
    const since = playing ? Math.min(0.1, this.context.currentTime - time) : 0;
    return Math.max(0, Math.round(positionUs + (since - (this.context.outputLatency || 0)) * 1e6));
  }

  stop() {
    cancelAnimationFrame(this.refresh);
    this.node.port.onmessage = null;
    this.node.disconnect();
    this.frames.splice(0).forEach(({ bitmap }) => bitmap.close());
  }

  #silence() {
    return new Float32Array(Math.round((this.unitUs / 1e6) * this.sampleRate));
  }

  #paint() {
    this.refresh = requestAnimationFrame(() => this.#paint());
    const position = this.positionUs;
    this.onPosition(position);
    if (!this.started) return;
    let due = null;
    while (this.frames.length && this.frames[0].ptsUs <= position) {
      due?.close();
      due = this.frames.shift().bitmap;
    }
    if (!due) return; // nothing new: the last picture stays
    this.#draw(due);
    due.close();
    this.framesPainted++;
  }

  #draw(bitmap) {
    const { canvas } = this;
    const side = Math.round(Math.min(1024, Math.max(canvas.clientWidth, canvas.clientHeight) * devicePixelRatio)) || 512;
    const [width, height] = [side, Math.round((side * bitmap.height) / bitmap.width)];
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext('2d', { alpha: false });
    context.imageSmoothingQuality = 'high';
    context.drawImage(bitmap, 0, 0, width, height);
  }
}
