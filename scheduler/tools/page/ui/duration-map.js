// Durations over time: a column for each half minute, a row for each doubling of the duration, darker for more.

import { html } from "./vendor/htm-preact-standalone.js";
import { clock, count, duration } from "./wording.js";

const ROW = 12;
const COLUMN = 20;
const LABELS = 64;

/** `map`: throughput.DurationMap; `at`: the second of its newest column; `what`: for who listens. */
export function DurationMap({ map, at, what }) {
  const { bounds, columns, columnSeconds } = map;
  if (!bounds.length) return html`<p class="muted">None in the last quarter of an hour.</p>`;
  const most = Math.max(...columns.flat());
  const height = bounds.length * ROW;
  const right = columns.length * COLUMN;
  const timeOf = (index) => clock(at - (columns.length - 1 - index) * columnSeconds).slice(0, 5);
  const total = columns.flat().reduce((sum, number) => sum + number, 0);
  return html`<div class="scrolls"><svg class="durations" viewBox=${`0 0 ${right + LABELS} ${height + 18}`} role="img" aria-label=${`${count(total)} ${what}, of at most ${duration(bounds[bounds.length - 1])}`}>
    ${columns.map((column, x) => column.map((number, y) => number > 0 && html`<rect key=${`${x}-${y}`} class="fill"
      x=${x * COLUMN} y=${height - (y + 1) * ROW} width=${COLUMN - 1} height=${ROW - 1} opacity=${0.15 + (0.85 * Math.log1p(number)) / Math.log1p(most)}>
      <title>${timeOf(x)}: ${count(number)} up to ${duration(bounds[y])}</title></rect>`))}
    ${bounds.map((bound, y) => html`<text key=${bound} x=${right + 8} y=${height - y * ROW - 2}>${duration(bound)}</text>`)}
    ${columns.map((_, x) => x % 6 === 0 && html`<text key=${x} x=${x * COLUMN} y=${height + 14}>${timeOf(x)}</text>`)}
  </svg></div>`;
}
