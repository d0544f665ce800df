// What is on the screen, and the keys. Knows nothing of sessions: it is told what to show and calls back.

import { LatencyChart } from './latency.js';
import { Transcript } from './transcript.js';

const PILL = {
  impossible: 'Not possible here',
  idle: 'Not connected',
  opening: 'Starting',
  connecting: 'Connecting',
  queued: 'Waiting',
  live: 'Live',
  ended: 'Ended',
};
const START = { idle: 'Start', ended: 'Start again' };

const element = (id) => document.getElementById(id);

export class Ui {
  /** @param {object} does what the user can ask for: start, end, say(text), interrupt, toggle(medium) */
  constructor(does) {
    this.does = does;
    this.canvas = element('agent');
    this.transcript = new Transcript(element('transcript'));
    this.latency = new LatencyChart(element('latency'));
    this.buttons = { camera: element('camera'), microphone: element('microphone') };
    element('start').onclick = does.start;
    element('end').onclick = does.end;
    element('interrupt').onclick = does.interrupt;
    for (const [medium, button] of Object.entries(this.buttons)) button.onclick = () => does.toggle(medium);
    element('form').onsubmit = (event) => this.#submit(event);
    document.addEventListener('keydown', (event) => this.#key(event));
  }

  /** @param {string} state one of the keys of PILL @param {string} words for people */
  show(state, words) {
    document.body.dataset.state = state;
    element('pill').textContent = PILL[state];
    element('words').textContent = words;
    const start = element('start');
    start.hidden = !(state in START);
    start.textContent = START[state] ?? '';
    const live = state === 'live';
    element('text').disabled = element('send').disabled = element('interrupt').disabled = !live;
    element('end').disabled = !['connecting', 'queued', 'live'].includes(state);
    // Not on a phone, where the keyboard would cover half of the picture.
    if (live && matchMedia('(pointer: fine)').matches) element('text').focus({ preventScroll: true });
    if (state === 'ended') start.focus({ preventScroll: true });
  }

  /** Something the user should know while the session goes on. */
  note(text) {
    this.transcript.note(text);
  }

  /** @param {string} request name of what the user was understood to ask for, or '' */
  understood(request) {
    element('understood').textContent = request && `understood: ${request.replaceAll('_', ' ')}`;
  }

  /** @param {'listening'|'speaking'} state */
  agent(state) {
    if (document.body.dataset.agent === 'speaking' && state === 'listening') this.transcript.endOfTurn();
    document.body.dataset.agent = state;
    element('agent-state').textContent = state === 'speaking' ? 'Speaking' : 'Listening';
  }

  /** @param {{camera: string, microphone: string}} states each on, off or missing @param {MediaStream|null} stream */
  devices(states, stream) {
    for (const [medium, state] of Object.entries(states)) {
      const button = this.buttons[medium];
      button.disabled = state === 'missing';
      button.dataset.device = state;
      button.setAttribute('aria-pressed', String(state === 'on'));
      const action = { on: `Turn off ${medium}`, off: `Turn on ${medium}`, missing: `No ${medium}` }[state];
      button.title = button.ariaLabel = `${action} (${medium === 'camera' ? 'V' : 'M'})`;
    }
    const self = element('self');
    self.hidden = states.camera !== 'on';
    if (self.srcObject !== stream) self.srcObject = stream;
    this.level(0);
  }

  /** @param {number} peak of the microphone, 0 to 1 */
  level(peak) {
    this.buttons.microphone.style.setProperty('--level', Math.min(1, Math.sqrt(peak) * 1.2).toFixed(2));
  }

  #submit(event) {
    event.preventDefault();
    const input = element('text');
    const text = input.value.trim();
    if (!text) return;
    input.value = '';
    this.does.say(text);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape') {
      if (!element('interrupt').disabled) this.does.interrupt();
      return;
    }
    if (event.target.matches('input, textarea, summary')) return;
    const action = {
      m: () => this.buttons.microphone.click(),
      v: () => this.buttons.camera.click(),
      '/': () => element('text').focus(),
    }[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  }
}
