// Domains as cells of a canvas, in groups. Large cells carry names and numbers, small ones colour and a mark.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact-standalone.js";
import { STATES } from "./wording.js";

const FULL = 2;
const BROKEN = 3;
const CLOSED = 4;
const GAP = 3;
const HEADING = 20;
const LARGE_UP_TO = 120;
const LARGE = { width: 148, height: 52 };
const MIDDLE_UP_TO = 1200;
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

function sizeOf(number) {
  if (number <= LARGE_UP_TO) return LARGE;
  const edge = number <= MIDDLE_UP_TO ? 18 : 12;
  return { width: edge, height: edge };
}

/** Return the place of every cell, headings of groups, and the height. */
function layout(map, width) {
  const size = sizeOf(map.domains.length);
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

/** The share of a domain's room that is taken, for the depth of its colour. */
function share(map, index) {
  const state = map.states[index];
  if (state === FULL || state === BROKEN) return 1;
  if (state === CLOSED || !map.pods[index]) return 0;
  const room = map.room[index];
  return room < 0 ? 0.5 : map.pods[index] / (map.pods[index] + room);
}

function draw(canvas, map, place, cursor) {
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
  const { width: w, height: h } = place.size;
  place.cells.forEach(({ x, y }, index) => {
    const state = map.states[index];
    const taken = share(map, index);
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
    if (state === BROKEN || state === CLOSED) mark(pen, state, x, y, w, h, isDark ? onAccent : muted);
    if (w === LARGE.width) label(pen, map, index, x, y, isDark ? onAccent : ink);
  });
  if (cursor >= 0 && cursor < place.cells.length) {
    const { x, y } = place.cells[cursor];
    pen.strokeStyle = ink;
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + 1, w - 2, h - 2);
  }
}

/** A cross on a broken cell, a slash on one without the pod that affinity requires: colour is not the only sign. */
function mark(pen, state, x, y, w, h, colour) {
  const edge = Math.min(w, h, 16);
  const [left, top] = w === LARGE.width ? [x + w - edge - 4, y + 6] : [x + (w - edge) / 2, y + (h - edge) / 2];
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

function label(pen, map, index, x, y, colour) {
  pen.fillStyle = colour;
  pen.font = "600 12px system-ui, sans-serif";
  pen.fillText(fitting(pen, map.domains[index], LARGE.width - 28), x + 8, y + 20);
  pen.font = "12px system-ui, sans-serif";
  pen.fillText(cellNumbers(map, index), x + 8, y + 39);
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

export const describe = (map, index) =>
  `${map.domains[index]}: ${cellNumbers(map, index)}, ${STATES[map.states[index]].text}`;

export function HeatMap({ map, chosen, onChoose }) {
  const canvas = useRef(null);
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
    draw(canvas.current, map, place.current, marked);
  }, [map, width, marked, turn]);

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
    <p class="tip" aria-live="polite">${marked >= 0 && marked < map.domains.length ? describe(map, marked) : "Point at a domain, or choose one to see its pods."}</p>
  </div>`;
}
