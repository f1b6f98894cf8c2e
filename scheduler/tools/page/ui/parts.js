// Hooks and small components that several views use. Text from the cluster only ever becomes text nodes.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact-standalone.js";
import { get, isDown, segment } from "./connection.js";
import { count } from "./wording.js";

export { html };

/** Return {data, error, reload}: the JSON of the path, asked for again every `everyMs` while the page is visible. */
export function usePolled(path, everyMs = 2000) {
  const [state, setState] = useState({ path, data: null, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!path) return undefined;
    const ended = new AbortController();
    let timer = 0;
    const next = async () => {
      if (!document.hidden) {
        try {
          const data = await get(path, ended.signal);
          if (!ended.signal.aborted) setState({ path, data, error: null });
        } catch (error) {
          if (!ended.signal.aborted) setState((old) => ({ path, data: old.path === path ? old.data : null, error }));
        }
      }
      if (everyMs && !ended.signal.aborted) timer = setTimeout(next, everyMs);
    };
    next();
    return () => (ended.abort(), clearTimeout(timer));
  }, [path, everyMs, turn]);
  const isCurrent = state.path === path;
  return {
    data: isCurrent ? state.data : null,
    error: isCurrent ? state.error : null,
    reload: () => setTurn(turn + 1),
  };
}

/** Return the value, `delayMs` after it last changed. */
export function useDelayed(value, delayMs = 250) {
  const [delayed, setDelayed] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDelayed(value), delayMs);
    return () => clearTimeout(timer);
  }, [value, delayMs]);
  return delayed;
}

export const podLink = (pod) => `#/pending/${segment(pod.namespace)}/${segment(pod.name ?? pod.pod)}`;

export const PodName = ({ pod, plain = false }) =>
  plain
    ? html`<span class="muted">${pod.namespace}/</span>${pod.name ?? pod.pod}`
    : html`<a class="pod" href=${podLink(pod)} title=${`${pod.namespace}/${pod.name ?? pod.pod}`}><span class="muted">${pod.namespace}/</span>${pod.name ?? pod.pod}</a>`;

/** Some pods by name, and how many more there are; `plain` pods are imagined and have no page. */
export function PodList({ pods, none = "none", plain = false }) {
  if (!pods.total) return html`<span class="muted">${none}</span>`;
  const more = pods.total - pods.shown.length;
  return html`<ul class="pods">
    ${pods.shown.map((pod) => html`<li key=${pod.namespace + "/" + pod.name}>
      <${PodName} pod=${pod} plain=${plain} />${pod.node && html` <span class="muted">on ${pod.node}</span>`}
    </li>`)}
    ${more > 0 && html`<li class="muted">${count(more)} more</li>`}
  </ul>`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export function Problem({ error }) {
  if (!error || isDown(error)) return null;
  return html`<p class="problem" role="alert">${error.message}</p>`;
}

export const Badge = ({ kind = "", children }) => html`<span class=${`badge ${kind}`}>${children}</span>`;

/** Nodes with their scores by plugin as stacked bars, the chosen one first. */
export function ScoreBars({ ranked }) {
  if (!ranked.length) return null;
  if (ranked.length === 1 && !ranked[0].total) return html`<p>${ranked[0].node} <span class="muted">was the only node that fits, and was not scored.</span></p>`;
  const plugins = [...new Set(ranked.flatMap((one) => Object.keys(one.scores)))];
  const most = Math.max(1, ...ranked.map((one) => one.total));
  const tint = (plugin) => `tint t${plugins.indexOf(plugin) % 7}`;
  return html`<div class="scores">
    ${ranked.map((one, index) => html`<div class="score" key=${one.node}>
      <span class="name">${one.node}</span>
      <svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img"
        aria-label=${`${one.total} points: ${Object.entries(one.scores).map(([name, points]) => `${name} ${points}`).join(", ")}`}>
        ${segments(one.scores, most).map(({ name, points, x, width }) => html`<rect class=${tint(name)} x=${x} y="0" width=${width} height="10"><title>${name} ${points}</title></rect>`)}
      </svg>
      <span class="number">${count(one.total)}</span>
      <span class="muted">${index ? "" : ranked[1]?.total === one.total ? "chosen among equals" : "chosen"}</span>
    </div>`)}
    <ul class="legend">${plugins.map((plugin) => html`<li key=${plugin}><span class=${`swatch ${tint(plugin)}`}></span>${plugin} ${count(ranked[0].scores[plugin] ?? 0)}</li>`)}</ul>
  </div>`;
}

function segments(scores, most) {
  let x = 0;
  return Object.entries(scores).map(([name, points]) => {
    const width = (100 * Math.max(0, points)) / most;
    const found = { name, points, x, width };
    x += width;
    return found;
  });
}

/** Numbers of nodes by reason, most first. */
export const Reasons = ({ reasons }) => {
  const entries = Object.entries(reasons).sort((one, other) => other[1] - one[1]);
  if (!entries.length) return null;
  return html`<ul class="reasons">
    ${entries.map(([reason, nodes]) => html`<li key=${reason}><span class="number">${count(nodes)}</span> ${reason}</li>`)}
  </ul>`;
};

/** Return whether the pointer or the focus is in the element of the returned ref: whoever reads wants no movement. */
export function useReading() {
  const ref = useRef(null);
  const [reading, setReading] = useState(false);
  useEffect(() => {
    const element = ref.current;
    const update = () => setReading(element.matches(":hover, :focus-within"));
    const events = ["pointerenter", "pointerleave", "focusin", "focusout"];
    const later = () => setTimeout(update, 0);
    events.forEach((name) => element.addEventListener(name, later));
    return () => events.forEach((name) => element.removeEventListener(name, later));
  }, []);
  return [ref, reading];
}
