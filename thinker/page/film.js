// The room of films: a prompt or a storyboard in, the film while it is made.

import { FilmPlayer } from './film-player.js';
import { FilmTimeline } from './film-timeline.js';
import { model, otherRoom, token } from './rooms.js';

const SUGGESTIONS = [
  'two red circles move left over a blue sky',
  'three orange fish move right over a blue sea',
  'a large yellow star spins over a black night',
  'two purple balloons move up slowly over an orange sunset',
];
const MAX_SCENES = 64;
const $ = (id) => document.getElementById(id);

class FilmRoom {
  constructor() {
    this.player = new FilmPlayer($('film'));
    this.timeline = new FilmTimeline($('timeline'));
    this.blocks = [];
    this.#suggest();
    this.#addScene(SUGGESTIONS[0], 5);
    this.#addScene(SUGGESTIONS[1], 5);
    this.#addScene(SUGGESTIONS[2], 5);
    $('form').addEventListener('submit', (event) => {
      event.preventDefault();
      this.make();
    });
    $('form').addEventListener('change', () => this.#settle());
    $('add').addEventListener('click', () => this.#addScene('', 5));
    $('change').addEventListener('click', () => this.#send({ type: 'session.interaction', prompt: $('prompt').value }));
    $('stop').addEventListener('click', () => this.#send({ type: 'session.stop' }));
    window.addEventListener('resize', () => this.timeline.draw());
    setInterval(() => this.#watch(), 200);
    this.#settle();
    this.#arrive();
  }

  async #arrive() {
    try {
      const made = await model();
      const elsewhere = otherRoom(made, 'film');
      if (elsewhere) {
        this.#show('impossible', elsewhere);
      } else {
        this.#show('idle', 'Say what shall be seen.');
        $('make').disabled = false;
      }
    } catch (error) {
      this.#show('impossible', error.message);
    }
  }

  make() {
    if (this.socket) return;
    const url = new URL('v1/realtime/video', location.href);
    url.protocol = url.protocol.replace('http', 'ws');
    url.search = token ? new URLSearchParams({ token }) : '';
    this.blocks = [];
    this.begun = performance.now();
    this.timeline.clear();
    $('notes').replaceChildren();
    $('download').hidden = true;
    $('shown').textContent = '';
    this.#show('connecting', 'Asking the server…');
    this.socket = new WebSocket(url);
    this.socket.binaryType = 'arraybuffer';
    this.socket.onopen = () => this.#send({ type: 'session.start', ...this.#request() });
    this.socket.onmessage = ({ data }) => this.#receive(data);
    this.socket.onclose = ({ reason }) => this.#closed(reason);
    this.#settle();
  }

  #request() {
    const seed = Number($('seed').value) || 0;
    if (this.#storyboard) {
      const rows = [...$('scenes').children];
      return {
        seed,
        scenes: rows.map((row) => ({
          prompt: row.querySelector('[type=text]').value, seconds: Number(row.querySelector('[type=number]').value),
        })),
      };
    }
    const length = $('endless').checked ? {} : { seconds: Number($('seconds').value) };
    return { seed, prompt: $('prompt').value, ...length };
  }

  #receive(data) {
    try {
      if (typeof data !== 'string') this.player.append(data);
      else this.#control(JSON.parse(data));
    } catch (error) {
      console.error(error);
      this.fault = error.message;
      this.socket.close();
    }
  }

  #control(message) {
    switch (message.type) {
      case 'session.queued': {
        const before = message.position;
        const films = before === 1 ? '1 film is' : `${before} films are`;
        this.#show('queued', before ? `${films} before yours.` : 'Yours is next.');
        break;
      }
      case 'video.start':
        this.start = message;
        this.player.begin(message.mime, message.num_frames === null);
        this.#show('live', '');
        break;
      case 'video.chunk_metadata':
        this.first ??= performance.now();
        this.blocks.push(message);
        this.timeline.add(message);
        break;
      case 'warning':
        this.#note(message.message);
        break;
      case 'video.end':
        this.player.end();
        this.complete = message.reason === 'complete' ? 'The film is complete.' : 'The film was stopped.';
        break;
      case 'error':
        this.fault = message.error.message;
        break;
      default: // a newer server says more
    }
  }

  #closed(reason) {
    const fault = this.fault ?? (this.complete ? '' : reason || 'The connection was lost.');
    if (fault) this.#show('ended', fault[0].toUpperCase() + fault.slice(1));
    else this.#show('idle', '');
    if (this.complete) this.#note(this.complete);
    if (!this.complete && this.blocks.length) this.player.end();
    const file = this.blocks.length ? this.player.file() : null;
    if (file) {
      $('download').href = URL.createObjectURL(file);
      $('download').hidden = false;
    } else if (this.blocks.length) {
      this.#note('The film is over 200 MB: too much to keep for a download.');
    }
    this.socket = this.fault = this.complete = this.first = null;
    this.#settle();
  }

  /** What is seen of playing and making, five times a second. */
  #watch() {
    if (!this.blocks.length || !this.start) return;
    const frame = $('film').currentTime * this.start.fps;
    const playing = this.blocks.findLast((block) => block.first_frame <= frame) ?? this.blocks[0];
    const scene = this.#storyboard ? `Scene ${playing.scene + 1}: ` : '';
    const shown = `${scene}${playing.prompt}`;
    if ($('shown').textContent !== shown) $('shown').textContent = shown;
    const last = this.blocks.at(-1);
    const frames = last.first_frame + last.num_frames;
    const seconds = last.stages.at(-1).ended_ms / 1000;
    const facts = {
      first: `${((this.first ?? this.begun) - this.begun).toFixed(0)} ms`, blocks: this.blocks.length,
      rate: (frames / seconds).toFixed(1), ahead: `${this.player.ahead.toFixed(1)} s`,
    };
    for (const [name, value] of Object.entries(facts)) {
      if (name !== 'first' || this.socket) document.querySelector(`[data-fact=${name}]`).textContent = value;
    }
    if (this.socket && document.body.dataset.state === 'live') {
      $('words').textContent = this.player.started && this.player.ahead < 0.05 ? 'Waiting for the next block' : '';
    }
  }

  #show(state, words) {
    document.body.dataset.state = state;
    const names = {
      idle: 'Ready', connecting: 'Connecting', queued: 'Waiting', live: 'Making', ended: 'Ended', impossible: 'Not here',
    };
    $('pill').textContent = names[state];
    $('words').textContent = words;
  }

  #settle() {
    const busy = Boolean(this.socket);
    $('one').hidden = this.#storyboard;
    $('scenes').hidden = $('add').hidden = !this.#storyboard;
    $('seconds').disabled = $('endless').checked;
    $('make').hidden = busy;
    $('stop').hidden = !busy;
    $('change').hidden = !busy || this.#storyboard || !$('endless').checked;
    $('add').disabled = $('scenes').children.length >= MAX_SCENES;
    for (const field of document.querySelectorAll('.choice input, #seconds, #endless, #seed, #scenes input')) {
      field.disabled = busy || (field.id === 'seconds' && $('endless').checked);
    }
  }

  #suggest() {
    for (const text of SUGGESTIONS) {
      const button = document.createElement('button');
      Object.assign(button, { type: 'button', textContent: text });
      button.addEventListener('click', () => {
        $('prompt').value = text;
      });
      document.querySelector('.suggestions').append(button);
    }
  }

  #addScene(prompt, seconds) {
    const row = document.createElement('li');
    const text = Object.assign(document.createElement('input'), { type: 'text', maxLength: 2000, value: prompt });
    const length = Object.assign(document.createElement('input'), { type: 'number', min: 0.1, step: 'any', value: seconds });
    const remove = Object.assign(document.createElement('button'), { type: 'button', textContent: 'Remove' });
    text.setAttribute('aria-label', 'What shall be seen in this scene');
    length.setAttribute('aria-label', 'Seconds of this scene');
    remove.addEventListener('click', () => {
      if ($('scenes').children.length > 1) row.remove();
      this.#settle();
    });
    row.append(text, length, remove);
    $('scenes').append(row);
    this.#settle();
  }

  #note(text) {
    const item = document.createElement('li');
    item.textContent = text;
    $('notes').append(item);
  }

  #send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  get #storyboard() {
    return document.querySelector('[name=kind]:checked').value === 'scenes';
  }
}

window.room = new FilmRoom();
