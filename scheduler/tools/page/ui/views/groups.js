// Groups: those that wait, how many members each needs, and why; below them the machine room.

import { html } from "../vendor/htm-preact-standalone.js";
import { Empty, PodName, Problem, usePolled } from "../parts.js";
import { ageOf, count, counted } from "../wording.js";
import { MachineRoom } from "./machine-room.js";

export function GroupsView({ now, route }) {
  const { data, error } = usePolled("groups");
  const at = now?.at ?? Date.now() / 1000;
  return html`
    <${Problem} error=${error} />
    ${!data && !error && html`<${Empty}>Gathering ...<//>`}
    ${data && !data.groups.length && html`<${Empty}>No group is waiting for places.<//>`}
    ${data?.groups.length > 0 && html`<section>
      <h2>${counted(data.groups.length + data.more, "group waits", "groups wait")}</h2>
      <table>
        <thead><tr><th>Group</th><th class="number">Pending</th><th class="number">On nodes</th><th class="number">Needs</th><th class="number wide">Oldest</th></tr></thead>
        <tbody>${data.groups.map((one) => html`<tr key=${`${one.namespace}/${one.name}`}>
            <th scope="row"><${PodName} pod=${{ namespace: one.namespace, name: one.member }} /> <span class="muted">of ${one.name}${one.topologyKey && `, in one ${one.topologyKey}`}</span></th>
            <td class="number">${count(one.pending)}</td>
            <td class="number">${count(one.placed)}</td>
            <td class="number">${count(one.needed)}</td>
            <td class="number wide">${ageOf(one.oldest, at)}</td>
          </tr>
          <tr key=${`${one.namespace}/${one.name} why`} class="why"><td colspan="5">${one.message || html`<span class="muted">not tried yet</span>`}</td></tr>`)}</tbody>
      </table>
      <p class="muted">Needs: members that have to find places at once.</p>
    </section>`}
    ${data?.more > 0 && html`<p class="muted">${counted(data.more, "more group")}</p>`}
    <${MachineRoom} asked=${route} />
  `;
}
