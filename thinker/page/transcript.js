// Who said what. The agent's words appear when they are heard, not when they arrive.

export class Transcript {
  /** @param {HTMLElement} list */
  constructor(list) {
    this.list = list;
    this.waiting = []; // {ptsUs, text, last}
    this.agent = null; // the agent's line that is being spoken
  }

  user(text) {
    this.#line('user', text);
    this.agent = null;
  }

  note(text) {
    this.#line('note', text);
  }

  /** Words of the agent, heard at media time `ptsUs`. */
  expect(text, ptsUs) {
    this.waiting.push({ text, ptsUs });
  }

  /** Show what is heard by now. */
  advance(positionUs) {
    while (this.waiting.length && this.waiting[0].ptsUs <= positionUs) {
      const { text, last } = this.waiting.shift();
      this.#say(text);
      if (last) this.agent = null;
    }
  }

  /** The agent was cut short: words that were not heard were not said. */
  interrupted() {
    if (this.waiting.length && this.agent) this.agent.append(' —');
    this.waiting = [];
    this.agent = null;
  }

  /** The agent fell silent: its next words begin a new line. */
  endOfTurn() {
    if (this.waiting.length === 0) this.agent = null;
    else this.waiting.at(-1).last = true;
  }

  clear() {
    this.list.replaceChildren();
    this.waiting = [];
    this.agent = null;
  }

  #say(text) {
    if (!this.agent) this.agent = this.#line('agent', '');
    this.agent.append(text);
    this.#scroll();
  }

  #line(who, text) {
    const item = document.createElement('li');
    item.className = who;
    item.textContent = text;
    this.list.append(item);
    this.#scroll();
    return item;
  }

  #scroll() {
    this.list.scrollTop = this.list.scrollHeight;
  }
}
