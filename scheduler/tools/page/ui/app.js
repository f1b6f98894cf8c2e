// The page: a bar with the views, one view below it, and the stream that all views share.

import { html, render, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact-standalone.js";
import { follow, get, isDown, setToken } from "./connection.js";
import { Badge, Empty } from "./parts.js";
import { clock, count } from "./wording.js";
import { DecisionsView } from "./views/decisions.js";
import { DevicesView } from "./views/devices.js";
import { DomainsView } from "./views/domains.js";
import { GroupsView } from "./views/groups.js";
import { NodesView } from "./views/nodes.js";
import { NowView } from "./views/now.js";
import { PendingView } from "./views/pending.js";
import { WhatIfView } from "./views/what-if.js";

const VIEWS = [
  { path: "now", title: "Now", view: NowView },
  { path: "domains", title: "Domains", view: DomainsView },
  { path: "devices", title: "Devices", view: DevicesView },
  { path: "pending", title: "Pending", view: PendingView },
  { path: "groups", title: "Groups", view: GroupsView },
  { path: "nodes", title: "Nodes", view: NodesView },
  { path: "decisions", title: "Decisions", view: DecisionsView },
  { path: "what-if", title: "What if", view: WhatIfView },
];
const MOST_ENTRIES = 300;
/** All connections of the port for viewers are taken. */
const FULL = 503;
const THEMES = ["auto", "light", "dark"];

/** Return the parts of the address after #/, each decoded. */
function currentRoute() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  try {
    return parts.length ? parts.map(decodeURIComponent) : ["now"];
  } catch {
    return ["now"];
  }
}

function useRoute() {
  const [route, setRoute] = useState(currentRoute());
  useEffect(() => {
    const changed = () => setRoute(currentRoute());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Add decisions and evictions, the newest first; a scheduler that has started anew numbers them from 1 again. */
function merged(feed, { began, decisions, evictions }) {
  const byNumber = new Map(feed.began === began ? feed.entries.map((one) => [one.number, one]) : []);
  [...decisions, ...evictions].forEach((one) => byNumber.set(one.number, one));
  const entries = [...byNumber.values()].sort((one, other) => other.number - one.number);
  return { began, entries: entries.slice(0, MOST_ENTRIES) };
}

function useStream(attempt) {
  const [now, setNow] = useState(null);
  const [feed, setFeed] = useState({ began: 0, entries: [] });
  const [problem, setProblem] = useState(null);
  const [connects, setConnects] = useState(0);
  const onDecisions = (data) => setFeed((old) => merged(old, data));
  useEffect(() => {
    const onEvent = (name, data) => (name === "now" ? setNow(data) : onDecisions(data));
    const onState = (error) => {
      setProblem(error);
      if (!error || error.status === FULL) setConnects((old) => old + 1);
      if (error?.status === FULL) get("now").then(setNow, () => {});
    };
    return follow(onEvent, onState);
  }, [attempt]);
  return { now, feed, onDecisions, connects, problem };
}

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
    dispatchEvent(new Event("themechange"));
  }, [theme]);
  return [theme, () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length])];
}

function Status({ now, problem }) {
  if (problem) return html`<${Badge} kind="bad">${problem.status === FULL && now ? "not live" : "not connected"}<//>`;
  if (!now) return html`<${Badge}>connecting<//>`;
  const roles = { leader: "leader", standby: "standby", alone: "no leader election" };
  return html`
    <${Badge} kind=${now.role === "standby" ? "warn" : ""}>${roles[now.role]}<//>
    <${Badge} kind=${now.isFresh ? "" : "warn"}>${now.isFresh ? "caches in step" : "caches behind"}<//>
  `;
}

/** What holds for everything on the page: that nobody answers, or else that this instance is a standby. */
function Notice({ now, problem }) {
  if (isDown(problem)) return html`<p class="notice" role="alert">The scheduler does not answer. The page tries again by itself${now && `; what it shows is of ${clock(now.at)}`}.</p>`;
  if (now?.role !== "standby") return null;
  return html`<p class="notice">This instance is a standby: it shows its own caches and decides nothing.
    ${now.leader ? ` The leader is ${now.leader}.` : " There is no leader."}</p>`;
}

function Token({ problem, onGiven }) {
  const [text, setText] = useState("");
  const submit = (event) => {
    event.preventDefault();
    setToken(text);
    onGiven();
  };
  return html`<form class="token" onSubmit=${submit}>
    <h2>Who are you?</h2>
    <p role="alert">${problem.message}.</p>
    <p>This port asks the API server whose token it is and what its user may see. The token stays in this page and is
    gone when you close it.</p>
    <p><code>kubectl create token SERVICE-ACCOUNT</code> makes one.</p>
    <label>Token <input type="password" autocomplete="off" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <button type="submit">Continue</button>
  </form>`;
}

function Page() {
  const route = useRoute();
  const [attempt, setAttempt] = useState(0);
  const { now, problem, ...stream } = useStream(attempt);
  const [theme, nextTheme] = useTheme();
  const main = useRef(null);
  const chosen = VIEWS.find((one) => one.path === route[0]) ?? VIEWS[0];
  const needsToken = problem && (problem.status === 401 || /^forbidden: User/.test(problem.message));
  const pending = now ? now.queue.reduce((sum, one) => sum + one.pods, 0) : 0;
  useLayoutEffect(() => {  // with the view: after it, the old title would stand over the new view for a frame
    document.title = `${chosen.title} · affinity-scheduler`;
  }, [chosen.title]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), main.current.focus())}>Skip to the view</a>
    <header>
      <h1>affinity-scheduler</h1>
      <nav aria-label="Views">
        ${VIEWS.map(({ path, title }) => html`<a key=${path} href=${`#/${path}`} aria-current=${path === chosen.path ? "page" : undefined}>
          ${title}${path === "pending" && pending > 0 && html` <span class="tally">${count(pending)}</span>`}
        </a>`)}
      </nav>
      <div class="status" role="status"><${Status} now=${now} problem=${problem} /></div>
      <button class="quiet" onClick=${nextTheme} aria-label=${`Colours: ${theme}. Change`}>◐ ${theme}</button>
    </header>
    <${Notice} now=${now} problem=${problem} />
    <main id="main" tabindex="-1" ref=${main}>
      ${needsToken
        ? html`<${Token} problem=${problem} onGiven=${() => setAttempt(attempt + 1)} />`
        : problem && !now
          ? !isDown(problem) && html`<${Empty}>${problem.message}. The page tries again by itself.<//>`
          : html`<${chosen.view} key=${chosen.path} route=${route.slice(1)} now=${now} stream=${stream} isDown=${isDown(problem)} />`}
    </main>
  `;
}

const root = document.getElementById("page");
root.replaceChildren();
render(html`<${Page} />`, root);
