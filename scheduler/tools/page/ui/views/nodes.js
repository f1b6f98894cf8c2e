// Nodes: what their pods request of each resource, the fullest nodes first.

import { html, useState } from "../vendor/htm-preact-standalone.js";
import { query } from "../connection.js";
import { Badge, Empty, Problem, useDelayed, usePolled } from "../parts.js";
import { amount, count, counted } from "../wording.js";

const percent = (requested, allocatable) => `${allocatable ? Math.round((100 * requested) / allocatable) : 0} %`;

const Bar = ({ use }) => html`<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
  <rect class="fill" width=${use.allocatable ? Math.min(100, (100 * use.requested) / use.allocatable) : 0} height="10"></rect></svg>`;

const Use = ({ use }) =>
  use
    ? html`<${Bar} use=${use} /><span class="muted">${amount(use.resource, use.requested)} of ${amount(use.resource, use.allocatable)}</span>`
    : html`<span class="muted">–</span>`;

function Totals({ data }) {
  const nodes = data.byShare.reduce((sum, number) => sum + number, 0);
  const most = Math.max(1, ...data.byShare);
  const label = (index) => (index === 10 ? "full" : `${index * 10} to ${index * 10 + 10} %`);
  return html`<section>
    <h2>${counted(nodes, "node")} <span class="muted">what pods request of what there is</span></h2>
    <div class="columns uses">
      <table><tbody>${data.total.map((use) => html`<tr key=${use.resource}>
        <th scope="row">${use.resource}</th><td><${Use} use=${use} /></td><td class="number">${percent(use.requested, use.allocatable)}</td>
        <td class="muted">at most ${amount(use.resource, use.mostFree)} free on one node</td>
      </tr>`)}</tbody></table>
      <table><thead><tr><th>Fullest resource</th><th><span class="hidden">Share</span></th><th class="number">Nodes</th></tr></thead>
        <tbody>${data.byShare.map((number, index) => number > 0 && html`<tr key=${index}>
          <th scope="row">${label(index)}</th><td><${Bar} use=${{ requested: number, allocatable: most }} /></td><td class="number">${count(number)}</td>
        </tr>`)}</tbody></table>
    </div>
  </section>`;
}

export function NodesView() {
  const [search, setSearch] = useState("");
  const { data, error } = usePolled(`nodes${query({ search: useDelayed(search) })}`);
  const resources = data ? data.total.map((use) => use.resource) : [];
  return html`
    <${Problem} error=${error} />
    ${!data && !error && html`<${Empty}>Adding up ...<//>`}
    ${data && html`<${Totals} data=${data} />
      <section>
        <form class="tools" role="search" onSubmit=${(event) => event.preventDefault()}><label>Node or zone
          <input type="search" placeholder="part of its name" value=${search} onInput=${(event) => setSearch(event.target.value)} /></label></form>
        <div class="scrolls"><table>
          <thead><tr><th>Node</th>${resources.map((name) => html`<th key=${name}>${name}</th>`)}</tr></thead>
          <tbody>${data.nodes.map((node) => html`<tr key=${node.node}>
            <th scope="row">${node.node} <span class="muted">${node.zone}</span> ${node.cordoned && html`<${Badge} kind="warn">cordoned<//>`}</th>
            ${resources.map((name) => html`<td key=${name}><${Use} use=${node.uses.find((use) => use.resource === name)} /></td>`)}
          </tr>`)}</tbody>
        </table></div>
        ${!data.nodes.length && html`<${Empty}>No node or zone has this in its name.<//>`}
        ${data.more > 0 && html`<p class="muted">${counted(data.more, "node")} that are less full: search for them.</p>`}
      </section>`}
  `;
}
