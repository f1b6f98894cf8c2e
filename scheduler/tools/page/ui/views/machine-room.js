// The machine room: blocks, racks and hosts, the groups that sit there, and the hole that a waiting group waits for.

import { html, useRef, useState } from "../vendor/htm-preact-standalone.js";
import { query, segment } from "../connection.js";
import { Problem, usePolled } from "../parts.js";
import { count, counted } from "../wording.js";

const tint = (number) => `tint t${number % 7}`;

/** What a waiting group waits for, in one sentence. */
function holeText(hole) {
  const wanted = `${counted(hole.needed, "place")}${hole.level && ` in one ${hole.level}`}`;
  if (hole.missing) return `waits for ${counted(hole.missing, "more member")} before it looks for ${wanted}`;
  const where = hole.domain ? `${hole.domain} has room for ${count(hole.room)}` : hole.room ? `there is room for ${count(hole.room)}` : "no node has room";
  return `needs ${wanted}: ${where}${hole.lacking ? `, ${count(hole.lacking)} too few` : "; its own rules are in the way"}`;
}

/** The groups at a place, as their numbers in the legend with as many members as they have there. */
function Seats({ place, chosen }) {
  const seats = place.members.map(([number, members]) => html`<span key=${number} class=${`seat ${tint(number)} ${chosen === number ? "lit" : ""}`}>${number + 1}${members > 1 && html`<small>×${count(members)}</small>`}</span>`);
  return html`${seats}${place.others > 0 && html`<span class="seat">+${count(place.others)}</span>`}`;
}

function placeText(place, groups) {
  const names = place.members.map(([number, members]) => `${groups[number].namespace}/${groups[number].name}: ${members}`);
  if (place.others) names.push(`other groups: ${place.others}`);
  if (place.room) names.push(`room for ${place.room}`);
  return `${place.name}: ${names.join(", ") || "no member of a group"}`;
}

function Host({ host, groups, chosen }) {
  const isUsed = host.members.length || host.others;
  return html`<li class=${`host ${host.room ? "free" : ""}`} title=${placeText(host, groups)} aria-label=${placeText(host, groups)}>
    <${Seats} place=${host} chosen=${chosen} />${host.room > 0 && html`<span class="plus">+${count(host.room)}</span>`}${!isUsed && !host.room && "·"}
  </li>`;
}

function Domain({ domain, groups, chosen, isAsked }) {
  return html`<div class=${`domain ${domain.isHole ? "hole" : ""}`}>
    <h4>${domain.name} <span class="muted">${counted(domain.nodes, "host")}${isAsked ? `, room for ${count(domain.room)}` : ""}</span></h4>
    ${domain.hosts.length
      ? html`<ul class="hosts">${domain.hosts.map((host) => html`<${Host} key=${host.name} host=${host} groups=${groups} chosen=${chosen} />`)}</ul>`
      : html`<p class="hosts" title=${placeText(domain, groups)}><${Seats} place=${domain} chosen=${chosen} />${!domain.members.length && !domain.others && html`<span class="muted">no group</span>`}</p>`}
  </div>`;
}

/** The domains of one level with what they have in common, and so on inwards. */
function Level({ domains, depth, data, chosen }) {
  const isAsked = data.asked >= 0 && !data.waiting[data.asked].missing;
  if (depth === data.levels.length - 1) {
    return html`<div class="domains">${domains.map((domain) => html`<${Domain} key=${domain.name} domain=${domain} groups=${data.groups} chosen=${chosen} isAsked=${isAsked} />`)}</div>`;
  }
  const byName = new Map();
  for (const domain of domains) byName.set(domain.outer[depth], [...(byName.get(domain.outer[depth]) ?? []), domain]);
  return [...byName].map(([name, within]) => html`<div class="block" key=${name}>
    <h3>${name} <span class="muted">${counted(within.reduce((sum, each) => sum + each.nodes, 0), "host")}${isAsked ? `, room for ${count(within.reduce((sum, each) => sum + each.room, 0))}` : ""}</span>
      ${within.every((each) => each.isHole || !each.room) && within.some((each) => each.isHole) && html` <span class="badge good">the hole</span>`}</h3>
    <${Level} domains=${within} depth=${depth + 1} data=${data} chosen=${chosen} />
  </div>`);
}

/** The waiting groups; the one whose hole is outlined is marked, and the others lead to theirs. */
function Holes({ waiting, asked, more }) {
  return html`<ul class="holes" aria-label="Waiting groups">${waiting.map((hole, index) => html`<li key=${`${hole.namespace}/${hole.name}`}>
      <a href=${`#/groups/${segment(hole.namespace)}/${segment(hole.name)}`} aria-current=${index === asked ? "true" : undefined}>${hole.namespace}/${hole.name}</a> ${holeText(hole)}.
    </li>`)}${more > 0 && html`<li class="muted">${counted(more, "more group waits", "more groups wait")}</li>`}</ul>`;
}

function Legend({ groups, chosen, onChoose }) {
  if (!groups.length) return html`<p class="muted">No group has members on nodes.</p>`;
  return html`<ul class="legend" aria-label="Groups on nodes">${groups.map((group, number) => html`<li key=${`${group.namespace}/${group.name}`}>
    <button class="link" aria-pressed=${chosen === number} onClick=${() => onChoose(chosen === number ? -1 : number)}>
      <span class=${`seat ${tint(number)}`}>${number + 1}</span> ${group.namespace}/${group.name}</button> ${count(group.placed)}
  </li>`)}</ul>`;
}

const Choice = ({ label, value, options, onChoose }) => html`<label>${label}
  <select value=${value} onChange=${(event) => onChoose(event.target.value)}>${options.map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label>`;

export function MachineRoom({ asked }) {
  const [hierarchy, setHierarchy] = useState("");
  const [within, setWithin] = useState("");
  const [lit, setLit] = useState("");
  const latest = useRef(null);
  const { data: polled, error } = usePolled(`room${query({ hierarchy, within, namespace: asked[0] ?? "", name: asked[1] ?? "" })}`);
  latest.current = polled ?? latest.current;
  const data = latest.current;
  if (!data) return html`<${Problem} error=${error} />`;
  if (!data.hierarchies.length) return html`<section><h2>Machine room</h2><p class="muted">No levels above the host are known: neither the configuration (topologyLevels of GangScheduling) nor a Topology of Kueue names any, and no group with pods on nodes asks for one.</p></section>`;
  const chosen = data.groups.findIndex((group) => `${group.namespace}/${group.name}` === lit);
  const hole = data.waiting[data.asked];
  const isPart = data.moreDomains > 0 || data.domains.some((domain) => !domain.hosts.length);
  return html`<section class="room">
    <h2>Machine room <span class="muted">${data.levels.join(" › ")} › host</span></h2>
    ${(data.hierarchies.length > 1 || isPart || within) && html`<div class="tools">
      ${data.hierarchies.length > 1 && html`<${Choice} label="Hierarchy" value=${data.hierarchy} options=${data.hierarchies.map((name) => [name, name])} onChoose=${(name) => (setWithin(""), setHierarchy(name))} />`}
      ${(isPart || within) && html`<${Choice} label="Within" value=${within} options=${[["", "all"], ...data.outermost.map((name) => [name, name])]} onChoose=${setWithin} />`}
    </div>`}
    <${Holes} waiting=${data.waiting} asked=${data.asked} more=${data.moreWaiting} />
    ${hole && !hole.missing && html`<p class="muted">+N: room for N members like its largest one, by filters and resources${hole.domain && "; outlined: the hole"}.</p>`}
    <${Legend} groups=${data.groups} chosen=${chosen} onChoose=${(number) => setLit(number < 0 ? "" : `${data.groups[number].namespace}/${data.groups[number].name}`)} />
    <div class=${chosen >= 0 ? "dimmed" : ""}><${Level} domains=${data.domains} depth=${0} data=${data} chosen=${chosen} /></div>
    ${data.moreDomains > 0 && html`<p class="muted">${counted(data.moreDomains, "more domain")}: choose one to look within.</p>`}
    ${data.outside > 0 && html`<p class="muted">${counted(data.outside, "node lacks", "nodes lack")} a label of these levels.</p>`}
  </section>`;
}
