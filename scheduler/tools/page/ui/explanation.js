// One pod's explanation: what refuses it, which pods block it, and what would help.

import { html, useState } from "./vendor/htm-preact-standalone.js";
import { query, segment } from "./connection.js";
import { Badge, Empty, PodList, Problem, ScoreBars, usePolled } from "./parts.js";
import { count, counted } from "./wording.js";

/** Up to this many placed pods, the copy on which changes are tried takes less than half a second. */
const TRIES_AT_ONCE = 20_000;
const KINDS = { unschedulable: "bad", gated: "warn", failed: "bad", schedulable: "good", bound: "good" };

/** The heading of the refused nodes: of a group, which member they refuse, and beside which others. */
function Refused({ member, plain }) {
  if (!member) return html`<h3>Refused nodes</h3>`;
  return html`<h3>Nodes that refuse member ${member.pod}${member.domain && ` in ${member.domain}`}</h3>
    ${member.placed.total > 0 && html`<p class="label">once these members have places (${count(member.placed.total)})</p>
      <${PodList} pods=${member.placed} plain=${plain} />`}`;
}

function Groups({ explanation, plain }) {
  const { groups } = explanation;
  if (!groups.length) return null;
  return html`<${Refused} member=${explanation.member} plain=${plain} />
    <table>
      <thead><tr><th class="number">Nodes</th><th>Reason</th><th>Where</th><th class="wide">Plugin</th></tr></thead>
      <tbody>
        ${groups.map((group) => html`<tr key=${group.plugin + group.reason + group.where}>
          <td class="number">${count(group.nodes)}</td>
          <td>${group.reason}</td>
          <td>${group.where || "–"} ${group.examples.length > 0 && html`<span class="muted">${group.examples.join(", ")}${group.nodes > group.examples.length ? ", ..." : ""}</span>`}</td>
          <td class="muted wide">${group.plugin}</td>
        </tr>`)}
      </tbody>
    </table>
    ${explanation.moreGroups > 0 && html`<p class="muted">${counted(explanation.moreGroups, "more group")}</p>`}`;
}

function Rules({ explanation, plain }) {
  if (!explanation.rules.length) return null;
  return html`<h3>Rules in the way</h3>
    ${explanation.rules.map((rule, index) => html`<div class="blocking" key=${index}>
      <p>${rule.text}</p>
      <p class="label">${rule.kind === "requiredAffinity" || rule.kind === "topologySpread" ? "Pods that count" : "Blocking pods"} (${count(rule.pods.total)})</p>
      <${PodList} pods=${rule.pods} none="none anywhere" plain=${plain} />
      ${rule.pending.total > 0 && html`<p class="label">Pending pods that would count</p><${PodList} pods=${rule.pending} />`}
      ${rule.domains.length > 0 && html`<ul class="chips" aria-label="Domains">
        ${rule.domains.map((domain) => html`<li key=${domain.domain} class=${domain.allowed ? "" : "closed"} title=${domain.allowed ? "the rule admits the pod here" : "closed"}>
          ${domain.domain} <span class="number">${counted(domain.pods, "pod")}${domain.most === null ? "" : ` (${count(domain.most)} allowed)`}</span>
        </li>`)}
        ${rule.moreDomains > 0 && html`<li class="muted">${count(rule.moreDomains)} more</li>`}
      </ul>`}
    </div>`)}
    ${explanation.moreRules > 0 && html`<p class="muted">${counted(explanation.moreRules, "more rule")}</p>`}`;
}

function Suggestions({ suggestions }) {
  if (!suggestions.length) return html`<p class="muted">No small change that was tried lets the pod schedule.</p>`;
  return html`<ol class="suggestions">
    ${suggestions.map((one, index) => html`<li key=${index}>${one.texts.join("; and ")} <span class="muted">→ ${one.node}</span></li>`)}
  </ol>`;
}

/** The parts that both an explanation of a pod and the end of a simulation show, in the order of the command's. */
export const ExplanationBody = ({ explanation, notes = explanation.notes, plain = false }) => html`
  <p class="message">${explanation.message}</p>
  ${notes.filter((note) => !note.startsWith("without changes that would help")).map((note) => html`<p class="note" key=${note}>${note}</p>`)}
  <${Groups} explanation=${explanation} plain=${plain} />
  <${Rules} explanation=${explanation} plain=${plain} />
`;

export function Explanation({ namespace, name, now }) {
  const [wanted, setWanted] = useState(false);
  const path = `pods/${segment(namespace)}/${segment(name)}`;
  const { data: explanation, error, reload } = usePolled(path, 0);
  const tries = wanted || (now?.placed ?? Infinity) <= TRIES_AT_ONCE;
  const isStuck = explanation?.state === "unschedulable" && (!explanation.group || explanation.member);
  const changed = usePolled(isStuck && tries ? path + query({ changes: "true" }) : "", 0);
  return html`<article class="explanation">
    <h2>${namespace}/${name} ${explanation && html`<${Badge} kind=${KINDS[explanation.state] ?? ""}>${explanation.state}<//>`}</h2>
    <p class="tools"><a href="#/pending">All pending pods</a><button class="quiet" onClick=${reload}>Ask again</button>
      <a href=${`#/what-if/${segment(namespace)}/${segment(name)}`}>What if ...</a></p>
    <${Problem} error=${error} />
    ${!explanation && !error && html`<${Empty}>Deciding on a copy ...<//>`}
    ${explanation && html`
      <${ExplanationBody} explanation=${explanation} notes=${(changed.data ?? explanation).notes} />
      ${isStuck && html`<h3>What would help</h3>
        ${changed.data
          ? html`<${Suggestions} suggestions=${changed.data.suggestions} />`
          : changed.error
            ? html`<${Problem} error=${changed.error} />`
            : tries
              ? html`<p class="muted">Trying changes on a copy of the cluster ...</p>`
              : html`<p><button onClick=${() => setWanted(true)}>Try changes</button> <span class="muted">on a copy of ${counted(now.placed, "pod")}, which takes some seconds</span></p>`}`}
      ${explanation.scores.length > 0 && html`<h3>Best nodes now</h3><${ScoreBars} ranked=${explanation.scores} />`}
      ${explanation.recorded && html`<h3>As recorded at the bind</h3><${ScoreBars} ranked=${explanation.recorded.top} />`}
    `}
  </article>`;
}
