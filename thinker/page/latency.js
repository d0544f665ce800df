// The live latency chart: one bar for the way from the user's unit to the agent's, against the unit's length.

const STAGES = ['encode', 'state', 'send', 'append', 'solve', 'return', 'decode']; // in order of time
const BESIDE = ['remember']; // done in the idle time, not on the way

export class LatencyChart {
  /** @param {HTMLElement} root with the parts of index.html */
  constructor(root) {
    this.bar = root.querySelector('.latency-bar');
    this.rows = root.querySelector('.latency-stages');
    this.facts = root.querySelector('.latency-facts');
    this.headline = root.querySelector('.latency-total');
    this.values = {};
    this.cells = {};
    for (const stage of [...STAGES, ...BESIDE]) this.#addStage(stage);
  }

  #addStage(stage) {
    if (STAGES.includes(stage)) {
      const segment = document.createElement('span');
      segment.className = `segment stage-${stage}`;
      this.bar.append(segment);
      this.cells[stage] = { segment };
    } else {
      this.cells[stage] = {};
    }
    const row = document.createElement('li');
    row.innerHTML = `<i class="dot stage-${stage}"></i><span>${stage}</span><b>–</b>`;
    this.rows.append(row);
    this.cells[stage].value = row.querySelector('b');
  }

  /** @param {object} metrics the server's message @param {number} unitMs */
  update(metrics, unitMs) {
    const shown = STAGES.reduce((sum, stage) => sum + (metrics.stages_ms[stage] ?? 0), 0);
    const full = Math.max(unitMs * 1.25, shown); // the deadline's line stands at 80 % unless the bar overruns it
    for (const [stage, { segment, value }] of Object.entries(this.cells)) {
      const ms = metrics.stages_ms[stage] ?? 0;
      value.textContent = stage in metrics.stages_ms ? ms.toFixed(1) : '–';
      if (!segment) continue;
      segment.style.width = `${(100 * ms) / full}%`;
      segment.title = `${stage} ${ms.toFixed(1)} ms`;
    }
    this.bar.style.setProperty('--deadline', `${(100 * unitMs) / full}%`);
    this.headline.textContent = `${Math.round(metrics.model_side_ms)} of ${unitMs} ms`;
    this.bar.setAttribute('aria-label', `${Math.round(metrics.model_side_ms)} ms of ${unitMs} ms`);
    this.set('loop', `${Math.round(metrics.loop_ms)} ms`);
    this.set('late', `${metrics.late} of ${metrics.emitted}`);
  }

  /** One of the small facts below the bar. */
  set(name, text) {
    if (this.values[name] === text) return;
    this.values[name] = text;
    this.facts.querySelector(`[data-fact="${name}"]`).textContent = text;
  }
}
