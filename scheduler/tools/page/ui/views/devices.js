// Devices: the pools of each node, how many devices are free, and which pods have the others.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact-standalone.js";
import { query, segment } from "../connection.js";
import { Badge, Empty, PodList, Problem, useDelayed, usePolled } from "../parts.js";
import { count, counted } from "../wording.js";

const poolLink = (one) => `#/devices/${segment(one.driver)}/${segment(one.pool)}`;

function PoolState({ pool }) {
  if (pool.slicesMissing) return html`<${Badge} kind="warn">incomplete<//>`;
  if (pool.tainted) return html`<${Badge} kind="warn">${count(pool.tainted)} tainted<//>`;
  return pool.free ? html`<span class="muted">free</span>` : html`<span>all in use</span>`;
}

function Drivers({ drivers }) {
  if (!drivers.length) return null;
  return html`<ul class="legend">${drivers.map((one) => html`<li key=${one.driver}>
    <strong>${count(one.free)}</strong> of ${counted(one.free + one.allocated, "device")} of ${one.driver} free
  </li>`)}</ul>`;
}

function PoolList({ found, text, onSearch, chosen }) {
  const isChosen = (one) => chosen && one.driver === chosen.driver && one.pool === chosen.pool;
  return html`<section class="rules">
    <h2>Pools</h2>
    <${Drivers} drivers=${found.drivers} />
    <div class="search">
      <label><span class="hidden">Search pools</span>
        <input type="search" placeholder="node, pool or driver" value=${text} onInput=${(event) => onSearch(event.target.value)} /></label>
    </div>
    <table>
      <thead><tr><th>Pool</th><th class="number">Devices</th><th class="number">Free</th><th>State</th></tr></thead>
      <tbody>${found.pools.map((one) => html`<tr key=${`${one.driver}/${one.pool}`} class=${isChosen(one) ? "chosen" : ""}>
        <th scope="row"><a href=${poolLink(one)} aria-current=${isChosen(one) ? "true" : undefined}>${one.pool}</a>
          <span class="muted">${one.driver}${one.node === one.pool ? "" : one.node ? `, on ${one.node}` : ", of several nodes"}</span></th>
        <td class="number">${count(one.devices)}</td>
        <td class="number">${count(one.free)}</td>
        <td><${PoolState} pool=${one} /></td>
      </tr>`)}</tbody>
    </table>
    ${!found.pools.length && html`<${Empty}>${!text ? "No driver publishes devices." : "No pool matches the search."}<//>`}
    ${found.matching > found.pools.length && html`<p class="muted">${count(found.matching - found.pools.length)} more: search for them.</p>`}
  </section>`;
}

/** The pods that have the device; their node is named where it is not the one of the whole pool. */
function Use({ device, node }) {
  if (device.isFree) return html`<span class="muted">free</span>`;
  return html`${device.holders.map((one) => html`<div key=${`${one.namespace}/${one.claim}`}>
      <${PodList} pods=${{ ...one.pods, shown: one.pods.shown.map((pod) => (pod.node === node ? { ...pod, node: "" } : pod)) }} none="no pod yet" />
      <span class="muted">by claim ${one.namespace}/${one.claim}</span>
    </div>`)}`;
}

function Pool({ driver, pool, isAsked }) {
  const place = useRef(null);
  const { data, error } = usePolled(`devices/pool${query({ driver, pool })}`);
  const isThere = data !== null;
  useEffect(() => {
    // In a narrow window the devices are below the list.
    if (isThere && isAsked && matchMedia("(max-width: 900px)").matches) place.current.scrollIntoView();
  }, [isThere]);
  if (!data) return error ? html`<${Problem} error=${error} />` : html`<${Empty}>Looking ...<//>`;
  const { summary } = data;
  return html`<section ref=${place}>
    <h2>${pool}</h2>
    <p class="muted">${driver}, ${summary.node ? `on ${summary.node}` : "of several nodes"}: ${count(summary.free)} of ${counted(summary.devices, "device")} free${summary.tainted ? `, ${count(summary.tainted)} tainted` : ""}.
      ${summary.slicesMissing > 0 && ` Not used: ${counted(summary.slicesMissing, "slice")} of its newest generation missing.`}</p>
    <table>
      <thead><tr><th>Device</th><th>Used by</th></tr></thead>
      <tbody>${data.devices.map((device) => html`<tr key=${device.name}>
        <th scope="row">${device.name}</th>
        <td><${Use} device=${device} node=${summary.node} />
          ${device.taints.map((taint) => html`<div key=${taint}>tainted <${Badge} kind="warn">${taint}<//></div>`)}</td>
      </tr>`)}</tbody>
    </table>
    ${data.more > 0 && html`<p class="muted">${count(data.more)} more devices.</p>`}
  </section>`;
}

export function DevicesView({ route }) {
  const [text, setText] = useState("");
  const { data: found, error } = usePolled(`devices${query({ search: useDelayed(text) })}`);
  const latest = useRef(null);
  latest.current = found ?? latest.current;
  if (!latest.current) return error ? html`<${Problem} error=${error} />` : html`<${Empty}>Counting devices ...<//>`;
  if (!latest.current.isServed) return html`<${Empty}>This scheduler reads no devices: the cluster does not serve resource.k8s.io/v1, or the scheduler has no right to it.<//>`;
  const chosen = route.length > 1 ? { driver: route[0], pool: route[1] } : latest.current.pools[0];
  return html`<div class="split">
    <${PoolList} found=${latest.current} text=${text} onSearch=${setText} chosen=${chosen} />
    ${chosen && html`<${Pool} driver=${chosen.driver} pool=${chosen.pool} key=${`${chosen.driver}/${chosen.pool}`} isAsked=${route.length > 1} />`}
  </div>`;
}
