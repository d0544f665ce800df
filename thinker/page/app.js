// The page's session: devices → connection → capture and playout, and what the user sees of it.

import { Capture, SOUND_RATE } from './capture.js';
import { Connection } from './connection.js';
import { openDevices, whyImpossible } from './devices.js';
import { Playout } from './playout.js';
import { Ui } from './ui.js';
import { model, otherRoom } from './rooms.js';
import { explainEnd, explainQueue } from './words.js';

const parameters = new URLSearchParams(location.search);

class App {
  constructor() {
    this.ui = new Ui({
      start: () => this.start(),
      end: () => this.connection?.close('the user ended it'),
      say: (text) => this.say(text),
      interrupt: () => this.connection?.send({ type: 'interrupt' }),
      toggle: (medium) => this.toggle(medium),
    });
    this.state = 'idle';
    this.unitsReceived = 0;
    this.told = new Set(); // notes about devices, not to be repeated at every start
    const obstacle = whyImpossible();
    if (obstacle) this.#show('impossible', obstacle);
    else this.#show('idle', 'It listens, watches and answers live. It works without a camera or a microphone too.');
    this.#checkRoom();
  }

  /** Where this server is for films, say so; where it does not say, all stays as it is. */
  async #checkRoom() {
    const elsewhere = otherRoom(await model().catch(() => null), 'live');
    if (elsewhere && this.state === 'idle') this.#show('impossible', elsewhere);
  }

  async start() {
    if (!['idle', 'ended'].includes(this.state)) return;
    this.#show('opening', 'Opening camera and microphone…');
    this.stream = new MediaStream();
    this.context = new AudioContext({ latencyHint: 'interactive' });
    this.context.resume();
    try {
      await this.#prepare();
    } catch (error) {
      console.error(error);
      this.#stop();
      this.#show('ended', `The sound of this browser could not be started (${error.message}).`);
      return;
    }
    this.#show('connecting', 'Connecting…');
    this.#connect();
  }

  async #prepare() {
    const { stream, notes } = await openDevices();
    this.stream = stream;
    notes.filter((note) => !this.told.has(note)).forEach((note) => this.ui.note(note));
    this.told = new Set(notes);
    this.#watchDevices();
    const load = (name) => this.context.audioWorklet.addModule(new URL(`./${name}-worklet.js`, import.meta.url));
    await Promise.all([load('capture'), load('playout')]);
  }

  #connect() {
    const url = new URL('v1/session', location.href);
    url.protocol = url.protocol.replace('http', 'ws');
    url.search = '';
    const hello = {
      camera: this.stream.getVideoTracks().length > 0,
      microphone: this.stream.getAudioTracks().length > 0,
      audio_rate: SOUND_RATE,
      token: parameters.get('token'),
    };
    this.connection = new Connection(url.href, hello, {
      queued: (message) => this.#show('queued', explainQueue(message)),
      ready: (ready) => this.#begin(ready),
      unit: (unit, stale) => this.#receive(unit, stale),
      'text.delta': ({ text, unit }) => this.ui.transcript.expect(text, unit * this.ready.unit_ms * 1000),
      heard: ({ request }) => this.ui.understood(request),
      'agent.state': ({ state }) => this.ui.agent(state),
      interrupted: () => this.#interrupted(),
      metrics: (metrics) => this.ui.latency.update(metrics, this.ready.unit_ms),
      warning: ({ message }) => this.ui.note(message),
      error: ({ message }) => this.ui.note(message),
      roundTrip: (ms) => this.ui.latency.set('network', `${Math.round(ms)} ms`),
      closed: (code, reason) => this.#ended(code, reason),
    });
  }

  #begin(ready) {
    this.ready = ready;
    this.playout = new Playout(this.context, this.ui.canvas, ready, (position) => this.ui.transcript.advance(position));
    this.capture = new Capture(this.context, this.stream, ready, (pcm, frames, level) => {
      this.connection.sendUnit(pcm, frames);
      this.ui.level(level);
    });
    this.ui.understood('');
    this.#show('live', `Connected to ${ready.model}`);
  }

  #receive(unit, stale) {
    this.unitsReceived++;
    if (!stale) this.playout.add(unit);
    const { bufferedMs, underruns } = this.playout.report;
    this.connection.send({
      type: 'ack',
      unit: unit.unit,
      played_pts: this.playout.positionUs,
      underruns,
    });
    this.ui.latency.set('buffered', `${Math.round(bufferedMs)} ms`);
    this.ui.latency.set('underruns', `${underruns}`);
  }

  #interrupted() {
    this.playout.flush();
    this.ui.transcript.interrupted();
  }

  say(text) {
    if (this.state !== 'live') return;
    this.connection.send({ type: 'text', text });
    this.ui.transcript.user(text);
  }

  toggle(medium) {
    const tracks = this.#tracks(medium);
    tracks.forEach((track) => (track.enabled = !track.enabled));
    this.ui.devices(this.#deviceStates(), this.stream);
  }

  #tracks(medium) {
    return medium === 'camera' ? (this.stream?.getVideoTracks() ?? []) : (this.stream?.getAudioTracks() ?? []);
  }

  #deviceStates() {
    const state = (medium) => {
      const track = this.#tracks(medium).find(({ readyState }) => readyState === 'live');
      if (!track) return 'missing';
      return track.enabled ? 'on' : 'off';
    };
    return { camera: state('camera'), microphone: state('microphone') };
  }

  #watchDevices() {
    for (const track of this.stream.getTracks()) {
      track.onended = () => {
        this.ui.note(`The ${track.kind === 'video' ? 'camera' : 'microphone'} is gone. The session goes on without it.`);
        this.ui.devices(this.#deviceStates(), this.stream);
      };
    }
    this.ui.devices(this.#deviceStates(), this.stream);
  }

  #ended(code, reason) {
    const hadBegun = this.state === 'live';
    this.#stop();
    this.ui.agent('listening');
    this.ui.transcript.interrupted();
    this.#show('ended', explainEnd(code, reason, hadBegun));
  }

  #stop() {
    this.capture?.stop();
    this.playout?.stop();
    this.last = { ...this.playout?.report, framesPainted: this.playout?.framesPainted };
    this.capture = this.playout = null;
    this.stream.getTracks().forEach((track) => {
      track.onended = null;
      track.stop();
    });
    this.context.close();
    this.ui.devices({ camera: 'missing', microphone: 'missing' }, null);
  }

  #show(state, words) {
    this.state = state;
    this.ui.show(state, words);
  }
}

const app = new App();

// For tests and the curious: what has been seen and heard so far.
window.tp = {
  get state() {
    return app.state;
  },
  get framesPainted() {
    return app.playout?.framesPainted ?? app.last?.framesPainted ?? 0;
  },
  get samplesPlayedNonSilent() {
    return (app.playout?.report ?? app.last)?.nonSilent ?? 0;
  },
  get underruns() {
    return (app.playout?.report ?? app.last)?.underruns ?? 0;
  },
  get bufferedMs() {
    return app.playout?.report.bufferedMs ?? 0;
  },
  get positionUs() {
    return app.playout?.positionUs ?? 0;
  },
  get unitsReceived() {
    return app.unitsReceived;
  },
  get unitsSent() {
    return app.connection?.unitsSent ?? 0;
  },
};

window.addEventListener('pagehide', () => app.connection?.close('the page was closed'));
if (parameters.has('autostart')) app.start(); // where the browser lets sound start without a click
