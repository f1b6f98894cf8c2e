// Requests to /api/v1 and the stream of changes. The token, if one is needed, stays in this page's memory.

const BASE = new URL("../api/v1/", document.baseURI);
const RETRIES = 5;
const LONGEST_RETRY_S = 10;
const RECONNECT_MS = 1000;

let token = "";

export class RequestError extends Error {
  constructor(status, message, retryAfterS) {
    super(message);
    this.status = status;
    this.retryAfterS = retryAfterS;
  }
}

/** Whether nobody answers: no server, or one in between says so. The head of the page tells it, and no view does. */
export const isDown = (error) => Boolean(error) && (!error.status || error.status === 502);

export function setToken(text) {
  token = text.trim();
}

/** Return the URL of a path; its parts and parameters are escaped by the caller through `segment` and `query`. */
export function segment(text) {
  return encodeURIComponent(text);
}

export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

function headers(more = {}) {
  return token ? { Authorization: `Bearer ${token}`, ...more } : more;
}

async function problem(response) {
  let message = response.statusText || `status ${response.status}`;
  try {
    message = (await response.json()).message || message;
  } catch {
    // a text of a proxy: the status says enough
  }
  return new RequestError(response.status, message, Number(response.headers.get("Retry-After")) || 1);
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** Return the JSON of a request; one that comes too early (429) or while objects are listed (503) is repeated. */
async function request(path, options = {}) {
  for (let tries = 1; ; tries++) {
    const response = await fetch(new URL(path, BASE), { ...options, headers: headers(options.headers) });
    if (response.ok) return response.json();
    const waits = response.status === 429 || response.status === 503;
    if (!waits || tries >= RETRIES || options.signal?.aborted) throw await problem(response);
    const { retryAfterS } = await problem(response);
    await pause(1000 * Math.min(retryAfterS, LONGEST_RETRY_S), options.signal);
  }
}

export const get = (path, signal) => request(path, { signal });

export const ask = (path, question, signal) =>
  request(path, {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(question),
  });

const openStream = (signal) => fetch(new URL("stream", BASE), { headers: headers(), signal });

// index.html loads this module first, so that the first figures are on their way while the views are loaded.
let first = openStream();
first.catch(() => {}); // told by `follow`

/** Call `onEvent(name, data)` for every event, and `onState(error or null)` when the stream breaks or is back. */
export function follow(onEvent, onState) {
  const ended = new AbortController();
  (async () => {
    while (!ended.signal.aborted) {
      let waitMs = RECONNECT_MS;
      try {
        const opened = first ?? openStream(ended.signal);
        first = null;
        const response = await opened;
        if (!response.ok) throw await problem(response);
        onState(null);
        await read(response.body, onEvent);
      } catch (error) {
        if (!ended.signal.aborted) onState(error);
        waitMs = 1000 * Math.min(error.retryAfterS ?? 1, LONGEST_RETRY_S);
      }
      await pause(waitMs, ended.signal);
    }
  })();
  return () => ended.abort();
}

async function read(body, onEvent) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const name = /^event: (.*)$/m.exec(event)?.[1];
      const data = /^data: (.*)$/m.exec(event)?.[1];
      if (name && data) onEvent(name, JSON.parse(data));
    }
  }
}
