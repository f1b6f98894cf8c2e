// Domains: the rules that pods declare, and how full each rule's domains are.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact-standalone.js";
import { query, segment } from "../connection.js";
import { HeatMap } from "../heat-map.js";
import { Badge, Empty, PodList, Problem, usePolled } from "../parts.js";
import { age, count, counted, ruleText, STATES } from "../wording.js";

const SHOWN_RULES = 200;
const SHOWN_ROWS = 500;

const sought = (rule, text) =>
  !text || `${rule.selects} ${ruleText(rule)}`.includes(text);

function RuleState({ rule }) {
  const full = rule.rule === "requiredAffinity" ? "closed" : "full";
  // Affinity by a key that no node has closes every node; the other kinds restrict none.
  if (!rule.domains) return rule.rule === "requiredAffinity" ? html`<${Badge} kind="warn">none<//>` : html`<span class="muted">none</span>`;
  if (rule.broken) return html`<${Badge} kind="bad">${count(rule.broken)} broken<//>`;
  if (rule.full && rule.full === rule.domains) return html`<${Badge} kind="warn">all ${full}<//>`;
  return rule.full ? html`<span>${count(rule.full)} ${full}</span>` : html`<span class="muted">room</span>`;
}

const STRENGTHS = { required: (rule) => rule.isHard, soft: (rule) => !rule.isHard, all: () => true };

function RuleList({ rules, chosen }) {
  const [text, setText] = useState("");
  const own = rules.rules.find((rule) => rule.id === chosen);
  const [strength, setStrength] = useState(own && !own.isHard ? "all" : "required");
  const found = rules.rules.filter((rule) => STRENGTHS[strength](rule) && sought(rule, text));
  return html`<section class="rules">
    <h2>Rules</h2>
    <div class="search">
      <label><span class="hidden">Search rules</span>
        <input type="search" placeholder="label, namespace or key" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <label><span class="hidden">Which rules</span>
        <select value=${strength} onChange=${(event) => setStrength(event.target.value)}>
          ${Object.entries(STRENGTHS).map(([name, matches]) => html`<option key=${name} value=${name}>${name} (${count(rules.rules.filter(matches).length)})</option>`)}
        </select></label>
    </div>
    <table>
      <thead><tr><th>Rule</th><th class="number">Pods</th><th class="number">Waiting</th><th>Domains</th></tr></thead>
      <tbody>
        ${found.slice(0, SHOWN_RULES).map((rule) => html`<tr key=${rule.id} class=${rule.id === chosen ? "chosen" : ""}>
          <th scope="row"><a href=${`#/domains/${rule.id}`} aria-current=${rule.id === chosen ? "true" : undefined}>${rule.selects}</a>
            <span class="muted">${ruleText(rule)}</span></th>
          <td class="number">${count(rule.pods)}</td>
          <td class="number">${rule.pending ? count(rule.pending) : "–"}</td>
          <td><${RuleState} rule=${rule} /></td>
        </tr>`)}
      </tbody>
    </table>
    ${!found.length && html`<${Empty}>${!rules.rules.length ? "No pod declares affinity, anti-affinity or a spread constraint." : text ? "No rule matches the search." : `No rule is ${strength}.`}<//>`}
    <p class="muted">
      ${found.length > SHOWN_RULES && `${count(found.length - SHOWN_RULES)} more: search for them. `}
      ${rules.more > 0 && `${counted(rules.more, "rule")} of few pods left out. `}Gathered ${age(rules.ageSeconds)} ago.
    </p>
  </section>`;
}

function Legend({ map }) {
  const present = STATES.map((state, index) => ({ ...state, index, number: map.states.filter((one) => one === index).length }));
  return html`<ul class="legend states">
    ${present.filter((state) => state.number).map((state) => html`<li key=${state.name}><span class=${`swatch state-${state.name}`}></span>${count(state.number)} ${state.text}</li>`)}
  </ul>`;
}

function DomainTable({ map, onChoose }) {
  const rows = map.domains.slice(0, SHOWN_ROWS);
  return html`<table>
    <thead><tr><th>Domain</th>${map.groupBy && html`<th>${map.groupBy}</th>`}<th class="number">Nodes</th><th class="number">Pods</th>${map.rule.isHard && html`<th class="number">Declare it</th>`}<th class="number">Room</th><th>State</th></tr></thead>
    <tbody>
      ${rows.map((domain, index) => html`<tr key=${domain}>
        <th scope="row"><button class="link" onClick=${() => onChoose(domain)}>${domain}</button></th>
        ${map.groupBy && html`<td>${map.groups[index] || "–"}</td>`}
        <td class="number">${count(map.nodes[index])}</td>
        <td class="number">${count(map.pods[index])}</td>
        ${map.rule.isHard && html`<td class="number">${count(map.declaring[index])}</td>`}
        <td class="number">${map.room[index] < 0 ? "any" : count(map.room[index])}</td>
        <td>${STATES[map.states[index]].text}</td>
      </tr>`)}
    </tbody>
  </table>
  ${map.domains.length > rows.length && html`<p class="muted">${count(map.domains.length - rows.length)} more in the map.</p>`}`;
}

function CellPanel({ id, domain, onClose }) {
  const panel = useRef(null);
  useEffect(() => panel.current.focus(), []);
  const { data, error } = usePolled(`rules/${segment(id)}/cell${query({ domain })}`);
  return html`<aside class="panel" tabindex="-1" ref=${panel} aria-label=${`Domain ${domain}`}>
    <h3>${domain} <button class="quiet" onClick=${onClose} aria-label="Close">✕</button></h3>
    <${Problem} error=${error} />
    ${data && html`
      <p class="muted">${STATES[data.state].text}; ${counted(data.nodes, "node")}${data.room >= 0 ? `, room for ${counted(data.room, "pod")}` : ""}</p>
      <h4>Pods that the rule counts (${count(data.pods.total)})</h4>
      <${PodList} pods=${data.pods} />
      <h4>Pending pods that it holds off (${count(data.pending.total)})</h4>
      <${PodList} pods=${data.pending} />
      <h4>Nodes</h4>
      <p class="names">${data.nodeNames.join(", ")}${data.nodes > data.nodeNames.length ? ` and ${count(data.nodes - data.nodeNames.length)} more` : ""}</p>
    `}
  </aside>`;
}

function RuleMap({ id, isAsked }) {
  const place = useRef(null);
  const [groupBy, setGroupBy] = useState("");
  const [domain, setDomain] = useState("");
  const [asTable, setAsTable] = useState(false);
  const { data: map, error } = usePolled(`rules/${segment(id)}${query({ groupBy })}`);
  const labels = usePolled("node-labels", 0).data;
  const onClose = () => (setDomain(""), place.current.querySelector("canvas, td button, th button")?.focus());
  const isThere = map !== null;
  useEffect(() => {
    // In a narrow window the map is below the list.
    if (isThere && isAsked && matchMedia("(max-width: 900px)").matches) place.current.scrollIntoView();
  }, [isThere]);
  if (!map) return error ? html`<${Problem} error=${error} />` : html`<${Empty}>Counting ...<//>`;
  const { rule } = map;
  const keys = (labels?.labels ?? []).filter((label) => label.key !== rule.topologyKey && label.values > 1);
  return html`<section class="rule" ref=${place}>
    <h2>${rule.selects}</h2>
    <p class="muted">${ruleText(rule)}.${" "}
      ${counted(rule.declaring, "running pod has", "running pods have")} it, ${counted(rule.pending, "pending pod waits", "pending pods wait")} with it.${" "}
      ${rule.rule === "topologySpread" && ` The emptiest domain has ${count(map.fewest)}.`}</p>
    <div class="tools">
      <label>Group by <select value=${groupBy} onChange=${(event) => setGroupBy(event.target.value)}>
        <option value="">nothing</option>${keys.map((label) => html`<option key=${label.key} value=${label.key}>${label.key}</option>`)}
      </select></label>
      <label><input type="checkbox" checked=${asTable} onChange=${(event) => setAsTable(event.target.checked)} /> as a table</label>
      <${Legend} map=${map} />
    </div>
    <div class="beside" onKeyDown=${(event) => event.key === "Escape" && domain && onClose()}>
      <div>
        ${map.domains.length
          ? asTable
            ? html`<${DomainTable} map=${map} onChoose=${setDomain} />`
            : html`<${HeatMap} map=${map} chosen=${domain} onChoose=${setDomain} />`
          : html`<${Empty}>No node has the label ${rule.topologyKey}${rule.rule === "topologySpread" ? " and is eligible" : ""}: the rule has no domain.<//>`}
        ${map.moreDomains > 0 && html`<p class="muted">${count(map.moreDomains)} more domains.</p>`}
      </div>
      ${domain && html`<${CellPanel} id=${id} domain=${domain} key=${domain} onClose=${onClose} />`}
    </div>
  </section>`;
}

export function DomainsView({ route }) {
  const { data: rules, error } = usePolled("rules");
  if (!rules) return error ? html`<${Problem} error=${error} />` : html`<${Empty}>Gathering the rules of all pods ...<//>`;
  const chosen = route[0] ?? rules.rules[0]?.id;
  return html`<div class="split">
    <${RuleList} rules=${rules} chosen=${chosen} />
    ${chosen && html`<${RuleMap} id=${chosen} key=${chosen} isAsked=${route.length > 0} />`}
  </div>`;
}
