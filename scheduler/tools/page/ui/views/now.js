// Now: how fast, how many wait and for how long, who leads, how far the caches are.

import { html, useEffect, useRef } from "../vendor/htm-preact-standalone.js";
import { DurationMap } from "../duration-map.js";
import { Badge, Empty } from "../parts.js";
import { age, ageOf, count, counted, duration, QUEUES } from "../wording.js";

function Figure({ title, value, note }) {
  return html`<div class="figure">
    <dt>${title}</dt>
    <dd><span class="value">${value}</span> <span class="muted">${note}</span></dd>
  </div>`;
}

function Figures({ now }) {
  const { decision, toBound, podsPerSecond } = now.throughput;
  const waiting = now.queue.reduce((sum, one) => sum + one.pods, 0);
  return html`<dl class="figures">
    <${Figure} title="Pods per second" value=${podsPerSecond} note="last 10 s" />
    <${Figure} title="One cycle, without its bind" value=${duration(decision.p50)} note=${`p99 ${duration(decision.p99)}, last 15 min`} />
    <${Figure} title="Seen to bound" value=${duration(toBound.p50)} note=${`p99 ${duration(toBound.p99)}, last 15 min`} />
    <${Figure} title="Pending" value=${count(waiting)} note=${counted(now.binding, "bind") + " in flight"} />
    <${Figure} title="Placed" value=${count(now.placed)} note=${`on ${counted(now.nodes, "node")}${now.cordoned ? `, ${count(now.cordoned)} cordoned` : ""}`} />
    <${Figure} title="Broken rules" value=${count(now.rulesWithBreaches)} note="required, do not hold" />
  </dl>`;
}

function Queue({ now }) {
  return html`<section>
    <h2>Queue</h2>
    <table>
      <thead><tr><th>State</th><th class="number">Pods</th><th class="number">Oldest</th><th class="wide">What happens</th></tr></thead>
      <tbody>
        ${now.queue.map((one) => html`<tr key=${one.queue}>
          <th scope="row">${one.queue}</th>
          <td class="number">${count(one.pods)}</td>
          <td class="number">${one.pods ? ageOf(one.oldest, now.at) : "–"}</td>
          <td class="muted wide">${QUEUES[one.queue]}</td>
        </tr>`)}
      </tbody>
    </table>
    ${!now.oldestIsExact && html`<p class="muted">The oldest of 2,000 pods of the queue.</p>`}
  </section>`;
}

/** What is wrong with the cache of a kind; empty if nothing is. */
function trouble(one) {
  if (!one.isServed) return "";
  if (!one.isSynced) return "being listed";
  return one.silentSeconds < 90 ? "" : "silent";
}

/** One line while all is well; else a row for each cache in trouble. */
function Caches({ now }) {
  const served = now.caches.filter((one) => one.isServed);
  const inTrouble = served.filter(trouble);
  const quietest = Math.max(0, ...served.map((one) => one.silentSeconds));
  const unserved = now.caches.length - served.length;
  return html`<section>
    <h2>Caches</h2>
    ${inTrouble.length > 0
      ? html`<table>
          <thead><tr><th>Kind</th><th>State</th><th class="number">Last heard</th></tr></thead>
          <tbody>${inTrouble.map((one) => html`<tr key=${one.kind}>
            <th scope="row">${one.kind}</th>
            <td class="state"><${Badge} kind="warn">${trouble(one)}<//></td>
            <td class="number">${age(one.silentSeconds)}</td>
          </tr>`)}</tbody>
        </table>
        <p class="muted">${counted(served.length - inTrouble.length, "other kind")} in step.</p>`
      : html`<p>${counted(served.length, "kind")} in step, the quietest last heard ${age(quietest)} ago.</p>`}
    ${unserved > 0 && html`<p class="muted">${counted(unserved, "kind")} that the API server does not have: ${now.caches.filter((one) => !one.isServed).map((one) => one.kind).join(", ")}.</p>`}
    <p class="muted">${now.unconfirmed ? `${counted(now.unconfirmed, "bind")} not yet shown by the watch.` : "The watch has shown every bind."}</p>
  </section>`;
}

function Durations({ now }) {
  const { decision, toBound } = now.throughput;
  return html`<div class="columns uses">
    <section><h2>One cycle <span class="muted">a decision with what follows it but the bind; of a group, those on all members</span></h2><${DurationMap} map=${decision.overTime} at=${now.at} what="cycles" /></section>
    <section><h2>Seen to bound <span class="muted">with the time in the queue and the bind</span></h2><${DurationMap} map=${toBound.overTime} at=${now.at} what="binds" /></section>
  </div>`;
}

function Instances({ now }) {
  return html`<section>
    <h2>Instances</h2>
    <table>
      <thead><tr><th>Component</th><th class="number">Pods</th></tr></thead>
      <tbody>
        ${now.components.map((one) => html`<tr key=${one.name}><th scope="row">${one.name}</th><td class="number">${one.pods || "–"}</td></tr>`)}
      </tbody>
    </table>
    <p class="muted">${now.role === "alone" ? "Leader election is off." : `Lease: ${now.leader || "nobody"}.`} Version ${now.version}, decides as Kubernetes ${now.emulatedVersion}.</p>
  </section>`;
}

/** The columns of the chart: seconds since the epoch, bound and failed attempts per second. */
function series({ throughput, at }) {
  const { stepSeconds, bound, failed } = throughput;
  const newest = Math.floor(at / stepSeconds) * stepSeconds;
  const times = bound.map((_, index) => newest - (bound.length - 1 - index) * stepSeconds);
  const perSecond = (numbers) => numbers.map((number) => number / stepSeconds);
  return [times, perSecond(bound), perSecond(failed)];
}

function chartOptions(width) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width,
    height: 180,
    cursor: { points: { show: false } },
    legend: { live: true },
    scales: { y: { range: (_, least, most) => [0, Math.max(1, most * 1.1)] } },
    axes: [{ ...axis, values: (_, times) => times.map((time) => new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false })) }, { ...axis, size: 44, label: "pods per second", labelSize: 18, labelFont: "11px system-ui" }],
    series: [
      { label: "Time", value: (_, time) => (time ? new Date(time * 1000).toLocaleTimeString([], { hour12: false }) : "–") },
      { label: "bound/s", stroke: colour("--accent"), fill: colour("--accent-faint"), width: 1.5, points: { show: false } },
      { label: "failed attempts/s", stroke: colour("--bad"), width: 1.5, dash: [4, 3], points: { show: false } },
    ],
  };
}

function stylesheet(href) {
  if (document.querySelector(`link[href="${href}"]`)) return;
  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href }));
}

function Chart({ now }) {
  const place = useRef(null);
  const chart = useRef(null);
  const latest = useRef(now);
  latest.current = now;
  useEffect(() => {
    let ended = false;
    let Plot = null;
    const draw = () => {
      if (ended || !Plot) return;
      chart.current?.destroy();
      chart.current = new Plot(chartOptions(place.current.clientWidth), series(latest.current), place.current);
    };
    // After the figures are there: the largest file of the page is needed for the line alone.
    stylesheet("vendor/uplot.css");
    import("../vendor/uplot.js").then((module) => ((Plot = module.default), draw()));
    const watcher = new ResizeObserver(() => chart.current?.setSize({ width: place.current.clientWidth, height: 180 }));
    watcher.observe(place.current);
    addEventListener("themechange", draw);
    return () => {
      ended = true;
      watcher.disconnect();
      removeEventListener("themechange", draw);
      chart.current?.destroy();
      chart.current = null;
    };
  }, []);
  useEffect(() => chart.current?.setData(series(now)), [now]);
  const total = now.throughput.bound.reduce((sum, number) => sum + number, 0);
  return html`<section>
    <h2>Last quarter of an hour</h2>
    <div class="chart" ref=${place} role="img" aria-label=${`${counted(total, "pod")} bound in the last quarter of an hour`}></div>
  </section>`;
}

export function NowView({ now }) {
  if (!now) return html`<${Empty}>Waiting for the scheduler ...<//>`;
  return html`
    <${Figures} now=${now} />
    <${Chart} now=${now} />
    <${Durations} now=${now} />
    <div class="columns"><${Queue} now=${now} /><${Caches} now=${now} /><${Instances} now=${now} /></div>
  `;
}
