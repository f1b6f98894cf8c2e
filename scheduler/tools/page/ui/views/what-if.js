// What if: a manifest or a pod, changes of the cluster, and where the pods would go. Nothing is written to the cluster.

import { html, useState } from "../vendor/htm-preact-standalone.js";
import { ask } from "../connection.js";
import { ExplanationBody } from "../explanation.js";
import { Badge, Empty, PodList, Problem, usePolled } from "../parts.js";
import { count, counted } from "../wording.js";

const EXAMPLE = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulerName: affinity-scheduler
      containers: [{name: web, image: web}]
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - topologyKey: topology.kubernetes.io/zone
            labelSelector: {matchLabels: {app: web}}
`;

const names = (text) => text.split(/[\s,]+/).filter(Boolean);

/** The question of the form; fields that are not filled in are left out. */
function questionOf(form, like) {
  const weights = Object.fromEntries(Object.entries(form.weights).filter(([, value]) => value !== "").map(([name, value]) => [name, Number(value)]));
  return {
    ...(like ? { like } : { manifest: form.manifest }),
    replicas: form.replicas === "" ? null : Number(form.replicas),
    cordon: names(form.cordon),
    drain: names(form.drain),
    without: form.key && form.value ? [{ key: form.key, value: form.value }] : [],
    weights,
  };
}

function Form({ form, like, onChange, onAsk, isAsking }) {
  const labels = usePolled("node-labels", 0).data?.labels ?? [];
  const profiles = usePolled("weights", 0).data?.profiles ?? {};
  const set = (name) => (event) => onChange({ ...form, [name]: event.target.value });
  const values = labels.find((label) => label.key === form.key)?.shown ?? [];
  const weights = Object.assign({}, ...Object.values(profiles));
  const onFile = async (event) => {
    const [file] = event.target.files;
    if (file) onChange({ ...form, manifest: await file.text() });
  };
  const submit = (event) => (event.preventDefault(), onAsk());
  return html`<form class="question" onSubmit=${submit}>
    ${like
      ? html`<p>Pods like <strong>${like.namespace}/${like.name}</strong>. <a href="#/what-if">Use a manifest</a></p>`
      : html`<label>Manifest <span class="muted">(change a limit here: maxSkew, maxPodsPerDomain)</span>
          <textarea rows="14" spellcheck="false" value=${form.manifest} onInput=${set("manifest")}></textarea></label>
        <label>or one of your files <input type="file" accept=".yaml,.yml,.json" onChange=${onFile} /></label>`}
    <label>Replicas <input type="number" min="0" max="2000" placeholder=${like ? "1" : "as in the manifest"} value=${form.replicas} onInput=${set("replicas")} /></label>
    <fieldset>
      <legend>And if the cluster were different</legend>
      <label>Cordoned nodes <input placeholder="names, separated by commas" value=${form.cordon} onInput=${set("cordon")} /></label>
      <label>Drained nodes, as PodDisruptionBudgets allow <input placeholder="names, separated by commas" value=${form.drain} onInput=${set("drain")} /></label>
      <label>Nodes taken away, by label
        <select value=${form.key} onChange=${(event) => onChange({ ...form, key: event.target.value, value: "" })}>
          <option value="">none</option>${labels.map((label) => html`<option key=${label.key} value=${label.key}>${label.key}</option>`)}
        </select>
      </label>
      ${form.key && html`<label>Value <input list="values" value=${form.value} onInput=${set("value")} /><datalist id="values">${values.map((value) => html`<option key=${value} value=${value}></option>`)}</datalist></label>`}
      <details>
        <summary>Weights of the scores</summary>
        ${Object.entries(weights).map(([name, weight]) => html`<label key=${name} class="inline">${name}
          <input type="number" min="0" max="100" placeholder=${weight} value=${form.weights[name] ?? ""} onInput=${(event) => onChange({ ...form, weights: { ...form.weights, [name]: event.target.value } })} />
        </label>`)}
      </details>
    </fieldset>
    <button type="submit" disabled=${isAsking}>${isAsking ? "Placing on a copy ..." : "Ask"}</button>
    <p class="muted">Decided on a copy of the cluster. Nothing is written, ever.</p>
  </form>`;
}

function Zones({ now, then }) {
  const byZone = new Map(then.zones.map((one) => [one.zone, { then: one.pods }]));
  now?.zones.forEach((one) => byZone.set(one.zone, { ...byZone.get(one.zone), now: one.pods }));
  if (!byZone.size) return null;
  const most = Math.max(1, ...[...byZone.values()].flatMap((one) => [one.now ?? 0, one.then ?? 0]));
  const bar = (number) => html`<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class="fill" width=${(100 * number) / most} height="10"></rect></svg>`;
  return html`<table class="zones">
    <thead><tr><th>Zone</th>${now && html`<th class="number">Now</th>`}<th class="number">${now ? "Then" : "Pods"}</th><th><span class="hidden">Share</span></th></tr></thead>
    <tbody>${[...byZone].sort().map(([zone, numbers]) => html`<tr key=${zone}>
      <th scope="row">${zone}</th>
      ${now && html`<td class="number">${numbers.now ?? 0}</td>`}
      <td class="number">${numbers.then ?? "gone"}</td>
      <td>${bar(numbers.then ?? 0)}</td>
    </tr>`)}</tbody>
  </table>`;
}

function Simulation({ now, then }) {
  return html`<section>
    <h2>${then.manifestKind} ${then.namespace}/${then.name} <${Badge} kind=${then.placed === then.replicas ? "good" : "bad"}>${count(then.placed)} of ${counted(then.replicas, "replica")} ${then.replicas === 1 ? "fits" : "fit"}<//></h2>
    ${now && html`<p class="muted">Without the changes: ${count(now.placed)} of ${count(now.replicas)}.</p>`}
    <${Zones} now=${now} then=${then} />
    ${then.nodes.length > 0 && html`<p class="names">${then.nodes.slice(0, 20).map((one) => `${one.node} ${one.pods}`).join(", ")}${then.nodes.length + then.moreNodes > 20 ? ", ..." : ""}</p>`}
    ${then.evicted > 0 && html`<p>${counted(then.evicted, "pod")} of lower priority would be evicted for them${then.victims.length > 0 && html`: <span class="names">${then.victims.slice(0, 20).map((one) => `${one.namespace}/${one.name}`).join(", ")}${then.evicted > Math.min(20, then.victims.length) ? ", ..." : ""}</span>`}.</p>`}
    ${then.next && html`<h3>What stops the next one</h3><${ExplanationBody} explanation=${then.next} plain />`}
  </section>`;
}

/** Groups of the pods that `why` says something of, by what it says. */
function byReason(pods, why) {
  const found = new Map();
  pods.filter(why).forEach((one) => found.set(why(one), [...(found.get(why(one)) ?? []), { ...one, name: one.pod }]));
  return [...found].map(([text, named]) => ({ text, named }));
}

function Drained({ drained }) {
  const lost = drained.staying.filter((one) => one.why === "no controller").reduce((sum, one) => sum + one.pods.total, 0);
  const leaving = drained.pods + lost;
  const block = ({ text, named }, title) => html`<div class="blocking" key=${text}>
    <p><strong>${counted(named.length, "pod")}</strong> ${title} ${text}</p>
    <${PodList} pods=${{ total: named.length, shown: named.slice(0, 5) }} />
  </div>`;
  return html`<section>
    <h2>Pods of ${counted(drained.nodes.length, "drained node")} <${Badge} kind=${drained.placed < leaving ? "bad" : "good"}>${count(drained.placed)} of ${counted(leaving, "pod")} ${leaving === 1 ? "finds" : "find"} another node<//></h2>
    ${drained.rounds > 0 && html`<p class="muted">PodDisruptionBudgets let them go in ${counted(drained.rounds, "round")}.</p>`}
    ${drained.staying.map((one) => html`<p class="muted" key=${one.why}>${counted(one.pods.total, "pod")} without a replacement: ${one.why}.</p>`)}
    ${byReason(drained.leaving, (one) => one.heldBy).map((one) => block(one, "never let go by PodDisruptionBudget"))}
    ${byReason(drained.leaving, (one) => one.message).map((one) => block(one, "without a place:"))}
  </section>`;
}

function Displaced({ displaced }) {
  return html`<section>
    <h2>Pods of ${counted(displaced.nodes, "lost node")} <${Badge} kind=${displaced.refused.length ? "bad" : "good"}>${count(displaced.placed)} of ${counted(displaced.pods - displaced.stay, "pod")} ${displaced.pods - displaced.stay === 1 ? "finds" : "find"} another node<//></h2>
    ${displaced.stay > 0 && html`<p class="muted">${counted(displaced.stay, "pod")} belong to their node and end with it.</p>`}
    ${displaced.more > 0 && html`<p class="muted">${counted(displaced.more, "pod")} of low priority were not tried.</p>`}
    <${Zones} then=${{ zones: displaced.byZone }} />
    ${displaced.refused.map((one) => html`<div class="blocking" key=${one.message}>
      <p><strong>${counted(one.pods, "pod")}</strong>: ${one.message}</p>
      <${PodList} pods=${{ total: one.pods, shown: one.examples }} />
    </div>`)}
  </section>`;
}

function Answer({ answer }) {
  return html`
    ${answer.then.map((then, index) => html`<${Simulation} key=${index} now=${answer.now[index]} then=${then} />`)}
    ${answer.drained && html`<${Drained} drained=${answer.drained} />`}
    ${answer.displaced && html`<${Displaced} displaced=${answer.displaced} />`}
    ${answer.notes.map((note) => html`<p class="muted" key=${note}>${note}</p>`)}
  `;
}

export function WhatIfView({ route }) {
  const [namespace, name] = route;
  const like = namespace && name ? { namespace, name } : null;
  const [form, setForm] = useState({ manifest: EXAMPLE, replicas: "", cordon: "", drain: "", key: "", value: "", weights: {} });
  const [state, setState] = useState({ answer: null, error: null, isAsking: false });
  const onAsk = async () => {
    setState({ answer: null, error: null, isAsking: true });
    try {
      setState({ answer: await ask("what-if", questionOf(form, like)), error: null, isAsking: false });
    } catch (error) {
      setState({ answer: null, error, isAsking: false });
    }
  };
  return html`<div class="split">
    <${Form} form=${form} like=${like} onChange=${setForm} onAsk=${onAsk} isAsking=${state.isAsking} />
    <div class="answer" aria-live="polite">
      <${Problem} error=${state.error} />
      ${state.answer ? html`<${Answer} answer=${state.answer} />` : !state.error && html`<${Empty}>${state.isAsking ? "Placing the pods on a copy of the cluster ..." : "The answer appears here: where the pods would go, and what stops the rest."}<//>`}
    </div>
  </div>`;
}
