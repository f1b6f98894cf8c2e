// Decisions: a live feed of attempts and evictions that stands still while somebody reads it.

import { html, useEffect, useState } from "../vendor/htm-preact-standalone.js";
import { get } from "../connection.js";
import { Badge, Empty, PodName, Reasons, ScoreBars, useReading } from "../parts.js";
import { clock, count, counted, DISRUPTIONS, duration, refusalOf } from "../wording.js";

const SHOWN = 100;

function Attempt({ decision, isOpen, onToggle }) {
  const { result, node, message } = decision;
  const details = `decision-${decision.number}`;
  return html`<tr class=${result === "scheduled" ? "" : "failed"}>
      <td class="number">${clock(decision.at)}</td>
      <th scope="row"><${PodName} pod=${decision} /></th>
      <td>${result === "scheduled" ? node : html`<${Badge} kind="bad">${result}<//> ${decision.victims > 0 && html` <${Badge} kind="warn">evicts ${counted(decision.victims, "pod")} ${decision.nominated ? `from ${decision.nominated}` : "for its group"}<//>`} <span class="muted refusal">${refusalOf(message)}</span>`}</td>
      <td class="number wide">${result === "scheduled" ? `${count(decision.feasible)} of ${count(decision.evaluated)}` : "–"}</td>
      <td class="number wide">${duration(decision.seconds)}</td>
      <td class="number"><button class="link" aria-expanded=${isOpen} aria-controls=${details} onClick=${onToggle}>${isOpen ? "Less" : "Why?"}</button></td>
    </tr>
    ${isOpen && html`<tr id=${details}><td colspan="6" class="details"><${Details} decision=${decision} /></td></tr>`}`;
}

const Eviction = ({ eviction }) => html`<tr class="failed">
  <td class="number">${clock(eviction.at)}</td>
  <th scope="row"><${PodName} pod=${eviction} /></th>
  <td colspan="4"><${Badge} kind="warn">evicted<//> from ${eviction.node} <span class="muted">${DISRUPTIONS[eviction.reason] ?? eviction.reason}; priority ${count(eviction.priority)}</span></td>
</tr>`;

function Details({ decision }) {
  const { top, rejected, message, result } = decision;
  return html`
    ${result !== "scheduled" && html`<p class="message">${message}</p>`}
    ${decision.victims > 0 && html`<p>Evicted ${decision.nominated ? `from ${decision.nominated} for it` : "for its group"}: ${[...decision.evicted, ...(decision.victims > decision.evicted.length ? [`${decision.victims - decision.evicted.length} more`] : [])].join(", ")}.</p>`}
    ${top.length > 0 && html`<${ScoreBars} ranked=${top} />`}
    ${result === "scheduled" && !top.length && html`<p class="muted">No record: decision annotations are off.</p>`}
    ${Object.keys(rejected).length > 0 && html`<p class="label">Refused nodes</p><${Reasons} reasons=${rejected} />`}
    <p class="muted">Profile ${decision.profile}, attempt ${count(decision.attempts)}.</p>
  `;
}

export function DecisionsView({ stream, now, isDown }) {
  const { feed, onDecisions, connects } = stream;
  const [frozen, setFrozen] = useState(null);
  const [paused, setPaused] = useState(false);
  const [open, setOpen] = useState(new Set());
  const [list, reading] = useReading();
  useEffect(() => {
    // What came before the stream, and while it was interrupted.
    get("decisions?limit=100").then(onDecisions, () => {});
  }, [connects]);
  const live = feed.entries.slice(0, SHOWN);
  const still = paused || reading || open.size > 0;
  useEffect(() => setFrozen(still ? live : null), [still, live.length > 0, feed.began]);
  const shown = (still && frozen) || live;
  const newest = shown[0]?.number ?? 0;
  const waiting = live.filter((one) => one.number > newest).length;
  const toggle = (number) => {
    const next = new Set(open);
    if (!next.delete(number)) next.add(number);
    setOpen(next);
  };
  const resume = () => (setPaused(false), setOpen(new Set()), setFrozen(live));
  return html`
    <div class="tools">
      <button aria-pressed=${paused} onClick=${() => setPaused(!paused)}>${paused ? "Go on" : "Pause"}</button>
      <span role="status" class="muted">${still ? (waiting ? html`Standing still. <button class="link" onClick=${resume}>Show ${counted(waiting, "newer entry", "newer entries")}</button>` : "Standing still while you read.") : isDown || now?.role === "standby" ? "" : "Live."}</span>
    </div>
    <p class="muted">“Took” is an attempt until the API server has answered its bind. A cycle, which is without the bind, took ${duration(now?.throughput.decision.p50)} at the median of the last quarter of an hour.</p>
    <section ref=${list}>
      ${shown.length
        ? html`<table class="feed">
            <thead><tr><th class="number">Time</th><th>Pod</th><th>Node or reason</th><th class="number wide">Nodes that fit</th><th class="number wide">Took</th><th><span class="hidden">Details</span></th></tr></thead>
            <tbody>${shown.map((one) => one.reason !== undefined
              ? html`<${Eviction} key=${one.number} eviction=${one} />`
              : html`<${Attempt} key=${one.number} decision=${one} isOpen=${open.has(one.number)} onToggle=${() => toggle(one.number)} />`)}</tbody>
          </table>`
        : html`<${Empty}>No decision yet.${!isDown && now?.role !== "standby" && " They appear here as pods are created."}<//>`}
    </section>
  `;
}
