// Which block is in which process, drawn as it happens: two lanes, a bar for each block and stage.

const SECONDS = 4; // that are shown
const LANES = { performer: 'Performer', thinker: 'Thinker' };
const LANE_PX = 34;
const TOP_PX = 8;
const LABEL_PX = 84;

export class FilmTimeline {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.bars = [];
    this.now = 0;
  }

  clear() {
    this.bars = [];
    this.now = 0;
    this.draw();
  }

  /** @param {object} metadata of a block: `stages` with `stage`, `process`, `began_ms`, `ended_ms`, and `block`. */
  add({ block, stages }) {
    for (const { stage, process, began_ms: began, ended_ms: ended } of stages) {
      this.bars.push({ block: stage === 'remember' ? block - 1 : block, stage, process, began, ended });
      this.now = Math.max(this.now, ended);
    }
    const from = this.now - 1000 * SECONDS;
    this.bars = this.bars.filter((bar) => bar.ended > from);
    this.draw();
    this.canvas.setAttribute('aria-label', this.summary());
  }

  /** How much of the time both processes worked at once. */
  summary() {
    const overlap = this.bars.filter(({ process, began, ended }) => process === 'performer'
      && this.bars.some((other) => other.process === 'thinker' && other.began < ended && other.ended > began));
    const made = this.bars.filter(({ process }) => process === 'performer').length;
    return made
      ? `In the last ${SECONDS} seconds ${overlap.length} of ${made} stages of the Performer ran while the Thinker worked`
      : 'Nothing has been made yet';
  }

  draw() {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    canvas.width = width * ratio;
    canvas.height = (TOP_PX + 2 * LANE_PX + 20) * ratio;
    const pen = canvas.getContext('2d');
    const style = getComputedStyle(canvas);
    const [quiet, well] = [style.color, style.outlineColor]; // resolved for the scheme, which properties are not
    pen.scale(ratio, ratio);
    pen.font = '12px system-ui, sans-serif';
    pen.textBaseline = 'middle';
    const start = Math.max(0, this.now - 1000 * SECONDS);
    const x = (ms) => LABEL_PX + ((ms - start) / (1000 * SECONDS)) * (width - LABEL_PX);
    Object.entries(LANES).forEach(([process, name], lane) => {
      const y = TOP_PX + lane * LANE_PX;
      pen.fillStyle = quiet;
      pen.fillText(name, 0, y + LANE_PX / 2 - 3);
      pen.fillStyle = well;
      pen.fillRect(LABEL_PX, y, width - LABEL_PX, LANE_PX - 6);
      for (const bar of this.bars.filter((each) => each.process === process)) {
        const [from, to] = [Math.max(LABEL_PX, x(bar.began)), x(bar.ended)];
        if (to <= LABEL_PX) continue;
        pen.fillStyle = style.getPropertyValue({ denoise: '--solve', remember: '--remember', decode: '--decode', encode: '--encode' }[bar.stage]);
        pen.fillRect(from, y, Math.max(1, to - from - 1), LANE_PX - 6);
        if (to - from > 13 && ['denoise', 'decode'].includes(bar.stage)) {
          pen.fillStyle = '#111';
          pen.fillText(bar.block, from + 2, y + LANE_PX / 2 - 3);
        }
      }
    });
    const legend = [['denoise', '--solve'], ['remember', '--remember'], ['decode', '--decode'], ['encode', '--encode']];
    legend.forEach(([name, colour], place) => {
      const left = LABEL_PX + place * 90;
      pen.fillStyle = style.getPropertyValue(colour);
      pen.fillRect(left, TOP_PX + 2 * LANE_PX + 5, 10, 10);
      pen.fillStyle = quiet;
      pen.fillText(name, left + 15, TOP_PX + 2 * LANE_PX + 11);
    });
  }
}
