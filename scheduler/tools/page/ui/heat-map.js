// Domains as cells of a canvas, in groups. Large cells carry names and numbers, small ones colour and a mark.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact-standalone.js";
import { STATES } from "./wording.js";

const FULL = 2;
const BROKEN = 3;
const CLOSED = 4;
const GAP = 3;
const HEADING = 20;
/** Sizes by the number of domains; cells with text share out the width that is left in a row. */
const LARGE = { width: 148, height: 52, hasText: true };
const SIZES = [
  { upTo: 24, size: LARGE },
  { upTo: 400, size: { width: 82, height: 38, hasText: true } },
  { upTo: 1200, size: { width: 18, height: 18 } },
  { upTo: Infinity, size: { width: 12, height: 12 } },
];
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function sizeOf(number, width) {
  const { size } = SIZES.find(({ upTo }) => number <= upTo);
  if (!size.hasText) return size;
  const perRow = Math.min(number, Math.max(1, Math.floor((width + GAP) / (size.width + GAP))));
  const shared = Math.floor((width + GAP) / perRow) - GAP;
  return { ...size, width: Math.min(shared, 2 * size.width) };
}

/** Return the place of every cell, headings of groups, and the height. */
function layout(map, width) {
  const size = sizeOf(map.domains.length, width);
  const perRow = Math.max(1, Math.floor((width + GAP) / (size.width + GAP)));
  const cells = [];
  const headings = [];
  let y = 0;
  let column = 0;
  map.domains.forEach((_, index) => {
    const group = map.groups[index];
    if (map.groupBy && (index === 0 || group !== map.groups[index - 1])) {
      if (column) y += size.height + GAP;
      column = 0;
      headings.push({ text: group || `without ${map.groupBy}`, y: y + HEADING - 6 });
      y += HEADING;
    } else if (column === perRow) {
      column = 0;
      y += size.height + GAP;
    }
    cells.push({ x: column * (size.width + GAP), y });
    column += 1;
  });
  return { size, perRow, cells, headings, height: y + size.height + GAP };
}

/** The share of a domain's room that is taken, for the depth of its colour; without a limit, of the fullest domain. */
function share(map, index, most) {
  const state = map.states[index];
  if (state === FULL || state === BROKEN) return 1;
  if (state === CLOSED || !map.pods[index]) return 0;
  const room = map.room[index];
  return room < 0 ? (0.6 * map.pods[index]) / most : map.pods[index] / (map.pods[index] + room);
}

function draw(canvas, map, place) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(place.height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const names = ["--surface", "--line", "--accent", "--bad", "--ink", "--muted", "--on-accent"];
  const [surface, line, accent, bad, ink, muted, onAccent] = names.map(colour);
  pen.font = "600 12px system-ui, sans-serif";
  pen.fillStyle = muted;
  place.headings.forEach(({ text, y }) => pen.fillText(text, 0, y, width));
  const { width: w, height: h, hasText } = place.size;
  const most = map.pods.reduce((least, number) => Math.max(least, number), 1);
  place.cells.forEach(({ x, y }, index) => {
    const state = map.states[index];
    const taken = share(map, index, most);
    pen.fillStyle = surface;
    pen.fillRect(x, y, w, h);
    pen.fillStyle = state === BROKEN ? bad : accent;
    pen.globalAlpha = state === BROKEN ? 1 : taken && 0.12 + 0.88 * taken ** 1.5;
    pen.fillRect(x, y, w, h);
    pen.globalAlpha = 1;
    pen.strokeStyle = state === BROKEN ? bad : line;
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
    const isDark = state === BROKEN || taken > 0.55;
    if (state === BROKEN || state === CLOSED) mark(pen, state, x, y, place.size, isDark ? onAccent : muted);
    if (hasText) label(pen, map, index, x, y, place.size, isDark ? onAccent : ink);
  });
}

/** A cross on a broken cell, a slash on one without the pod that affinity requires: colour is not the only sign. */
function mark(pen, state, x, y, { width, height, hasText }, colour) {
  const edge = Math.min(width, height, 16);
  const [left, top] = hasText ? [x + width - edge - 3, y + 3] : [x + (width - edge) / 2, y + (height - edge) / 2];
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(left + 3, top + edge - 3);
  pen.lineTo(left + edge - 3, top + 3);
  if (state === BROKEN) {
    pen.moveTo(left + 3, top + 3);
    pen.lineTo(left + edge - 3, top + edge - 3);
  }
  pen.stroke();
}

function label(pen, map, index, x, y, { width, height }, colour) {
  const room = width - 12;
  pen.fillStyle = colour;
  pen.font = "600 12px system-ui, sans-serif";
  const isMarked = map.states[index] === BROKEN || map.states[index] === CLOSED;
  pen.fillText(fitting(pen, map.domains[index], isMarked ? room - 14 : room), x + 6, y + height / 2 - 4);
  pen.font = "12px system-ui, sans-serif";
  const numbers = height === LARGE.height ? cellNumbers : shortNumbers;
  pen.fillText(numbers(map, index), x + 6, y + height / 2 + 12);
}

/** The end of a long name tells it from its neighbours. */
function fitting(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let from = 1;
  while (from < text.length && pen.measureText(`…${text.slice(from)}`).width > width) from += 1;
  return `…${text.slice(from)}`;
}

function cellNumbers(map, index) {
  const pods = `${map.pods[index]} pod${map.pods[index] === 1 ? "" : "s"}`;
  const room = map.room[index];
  return room < 0 ? pods : `${pods}, room ${room}`;
}

const shortNumbers = (map, index) => `${map.pods[index]}${map.room[index] < 0 ? "" : ` of ${map.pods[index] + map.room[index]}`}`;

export const describe = (map, index) =>
  `${map.domains[index]}: ${cellNumbers(map, index)}, ${STATES[map.states[index]].text}`;

export function HeatMap({ map, chosen, onChoose }) {
  const canvas = useRef(null);
  const frame = useRef(null);
  const place = useRef(null);
  const [width, setWidth] = useState(0);
  const [cursor, setCursor] = useState(-1);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const watcher = new ResizeObserver(() => setWidth(canvas.current?.parentElement.clientWidth ?? 0));
    watcher.observe(canvas.current.parentElement);
    const redraw = () => setTurn((old) => old + 1);
    addEventListener("themechange", redraw);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", redraw);
    return () => (watcher.disconnect(), removeEventListener("themechange", redraw), scheme.removeEventListener("change", redraw));
  }, []);
  const marked = cursor >= 0 ? cursor : map.domains.indexOf(chosen);
  useEffect(() => {
    if (!width) return;
    place.current = layout(map, width);
    canvas.current.style.height = `${place.current.height}px`;
    draw(canvas.current, map, place.current);
  }, [map, width, turn]);
  useEffect(() => {
    const cell = place.current?.cells[marked];
    frame.current.hidden = !cell;
    if (cell) Object.assign(frame.current.style, { left: `${cell.x}px`, top: `${cell.y}px`, width: `${place.current.size.width}px`, height: `${place.current.size.height}px` });
  }, [map, width, marked]);

  const at = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const { cells, size } = place.current;
    return cells.findIndex((cell) => x >= cell.x && x < cell.x + size.width && y >= cell.y && y < cell.y + size.height);
  };
  const move = (event) => setCursor(at(event));
  const choose = (index) => index >= 0 && onChoose(map.domains[index]);
  const onKey = (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      choose(marked < 0 ? 0 : marked);
    } else if (KEYS[event.key]) {
      event.preventDefault();
      const [dx, dy] = KEYS[event.key];
      const next = marked < 0 ? 0 : marked + dx + dy * place.current.perRow;
      if (next >= 0 && next < map.domains.length) setCursor(next);
    }
  };
  return html`<div class="map">
    <canvas ref=${canvas} tabindex="0" role="application"
      aria-label=${`Map of ${map.domains.length} domains. Arrow keys move, Enter opens a domain.`}
      onPointerMove=${move} onPointerLeave=${() => setCursor(-1)}
      onClick=${(event) => choose(at(event))} onKeyDown=${onKey}></canvas>
    <div class="cursor" ref=${frame} hidden></div>
    <p class="tip" aria-live="polite">${marked >= 0 && marked < map.domains.length ? describe(map, marked) : "Point at a domain, or choose one to see its pods."}</p>
  </div>`;
}
