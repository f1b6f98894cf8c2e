// Pending: pods by what keeps them waiting, and one pod's explanation.

import { html, useState } from "../vendor/htm-preact-standalone.js";
import { query } from "../connection.js";
import { Explanation } from "../explanation.js";
import { Empty, PodName, Problem, useDelayed, usePolled } from "../parts.js";
import { ageOf, count, counted } from "../wording.js";

const FIRST_SHOWN = 10;

function Search({ search, onChange }) {
  const field = (name, label, hint) => html`<label>${label}
    <input type="search" placeholder=${hint} value=${search[name]} onInput=${(event) => onChange({ ...search, [name]: event.target.value })} />
  </label>`;
  return html`<form class="tools" role="search" onSubmit=${(event) => event.preventDefault()}>
    ${field("namespace", "Namespace", "part of its name")}
    ${field("name", "Pod", "part of its name")}
    ${field("label", "Label", "key or key=value")}
  </form>`;
}

function Group({ group, at }) {
  const [all, setAll] = useState(false);
  const shown = all ? group.shown : group.shown.slice(0, FIRST_SHOWN);
  const rest = group.pods - group.shown.length;
  return html`<section class="group">
    <h2><span class="number">${count(group.pods)}</span> ${group.reason} <span class="muted">${group.queue}, oldest ${ageOf(group.oldest, at)}</span></h2>
    <table>
      <thead><tr><th>Pod</th><th class="number">Age</th><th class="number">Attempts</th><th class="number wide">Priority</th></tr></thead>
      <tbody>
        ${shown.map((pod) => html`<tr key=${pod.namespace + "/" + pod.pod}>
          <th scope="row"><${PodName} pod=${pod} /></th>
          <td class="number">${ageOf(pod.created, at)}</td>
          <td class="number">${count(pod.attempts)}</td>
          <td class="number wide">${count(pod.priority)}</td>
        </tr>`)}
      </tbody>
    </table>
    <p class="muted">${shown.length < group.shown.length && html`<button class="link" onClick=${() => setAll(true)}>Show ${count(group.shown.length)}</button> `}${rest > 0 && `${counted(rest, "younger pod")}: search for them.`}</p>
  </section>`;
}

function Groups({ now }) {
  const [search, setSearch] = useState({ namespace: "", name: "", label: "" });
  const { data, error } = usePolled(`pending${query(useDelayed(search))}`);
  const at = now?.at ?? Date.now() / 1000;
  return html`
    <${Search} search=${search} onChange=${setSearch} />
    <${Problem} error=${error} />
    ${!data && !error && html`<${Empty}>Grouping ...<//>`}
    ${data && !data.pods && html`<${Empty}>No pod is waiting: every pod of this scheduler has a node.<//>`}
    ${data && data.pods > 0 && !data.matching && html`<${Empty}>None of the ${counted(data.pods, "pending pod")} matches the search.<//>`}
    ${data?.groups.map((group) => html`<${Group} key=${group.queue + group.reason} group=${group} at=${at} />`)}
    ${data?.moreGroups > 0 && html`<p class="muted">${counted(data.moreGroups, "more group")}</p>`}
  `;
}

export function PendingView({ route, now }) {
  const [namespace, name] = route;
  return namespace && name
    ? html`<${Explanation} key=${namespace + "/" + name} namespace=${namespace} name=${name} now=${now} />`
    : html`<${Groups} now=${now} />`;
}
