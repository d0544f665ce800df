// The user's side: microphone and camera → one unit of sound and small JPEGs every 160 ms.

export const SOUND_RATE = 16000; // of what is sent, as the hello says; the server converts to what the model wants
const JPEG_QUALITY = 0.8;

export class Capture {
  /**
   * @param {AudioContext} context with capture-worklet.js loaded
   * @param {MediaStream} stream camera and microphone, or parts of it
   * @param {object} ready the server's message: what the model wants
   * @param {(pcm: Int16Array|null, frames: Uint8Array[], level: number) => void} onUnit
   */
  constructor(context, stream, ready, onUnit) {
    this.onUnit = onUnit;
    this.frames = []; // promises of JPEG bytes, of the unit that is being filled
    this.chain = Promise.resolve();
    this.canvas = document.createElement('canvas');
    this.canvas.width = ready.input_width;
    this.canvas.height = ready.input_height;
    this.video = stream.getVideoTracks().length ? playing(stream) : null;
    this.node = new AudioWorkletNode(context, 'capture', {
      channelCount: 1,
      channelCountMode: 'explicit',
      processorOptions: {
        rate: SOUND_RATE,
        unitSamples: Math.round((SOUND_RATE * ready.unit_ms) / 1000),
        framesPerUnit: ready.frames_per_unit,
      },
    });
    this.node.port.onmessage = ({ data }) => (data.type === 'frame' ? this.#grab() : this.#finish(data));
    this.node.connect(context.destination); // its output is silence: a node that leads nowhere is not run
    if (stream.getAudioTracks().length) {
      this.source = context.createMediaStreamSource(stream);
      this.source.connect(this.node);
    }
  }

  stop() {
    this.node.port.onmessage = null;
    this.node.disconnect();
    this.source?.disconnect();
    if (this.video) this.video.srcObject = null;
  }

  #grab() {
    const { video, canvas } = this;
    if (!video || video.readyState < HTMLMediaElement.HAVE_CURRENT_DATA) return;
    const track = video.srcObject.getVideoTracks()[0];
    if (!track.enabled || track.readyState === 'ended') return;
    const scale = Math.max(canvas.width / video.videoWidth, canvas.height / video.videoHeight);
    const [width, height] = [video.videoWidth * scale, video.videoHeight * scale];
    const context = canvas.getContext('2d', { alpha: false });
    context.imageSmoothingQuality = 'high';
    context.drawImage(video, (canvas.width - width) / 2, (canvas.height - height) / 2, width, height);
    this.frames.push(new Promise((resolve) => canvas.toBlob(resolve, 'image/jpeg', JPEG_QUALITY)));
  }

  #finish({ pcm, level }) {
    const frames = this.frames;
    this.frames = [];
    // Units must leave in order, however long a picture takes.
    this.chain = this.chain.then(async () => {
      const blobs = (await Promise.all(frames)).filter(Boolean);
      const bytes = await Promise.all(blobs.map(async (blob) => new Uint8Array(await blob.arrayBuffer())));
      this.onUnit(pcm, bytes, level);
    });
  }
}

function playing(stream) {
  const video = document.createElement('video');
  video.muted = true;
  video.playsInline = true;
  video.srcObject = new MediaStream(stream.getVideoTracks());
  video.play();
  return video;
}
