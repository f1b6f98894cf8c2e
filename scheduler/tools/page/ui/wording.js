// Numbers, times and rules as people read them.

const NUMBER = new Intl.NumberFormat("en-US");

export const count = (number) => NUMBER.format(number);

export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A duration in seconds, with two or three digits: 64 µs, 1.2 ms, 340 ms, 2.1 s, 3 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1e-3) return `${Math.round(seconds * 1e6)} µs`;
  // Not 1.0e+2 ms, nor 1.00e+3.
  if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(seconds < 0.1 ? 2 : 3))} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return age(seconds);
}

const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

/** An amount of a resource: cpu is in thousandths, memory and storage are in bytes. */
export function amount(resource, number) {
  if (resource === "cpu") return number > 0 && number < 1000 ? `${number}m` : NUMBER.format(number / 1000);
  if (!/memory|storage|hugepages/.test(resource)) return NUMBER.format(number);
  const power = number > 0 ? Math.min(BINARY.length - 1, Math.floor(Math.log2(number) / 10)) : 0;
  return `${NUMBER.format(Number((number / 1024 ** power).toPrecision(3)))}${BINARY[power]}`;
}

/** A time span as kubectl prints ages: 45s, 12m, 3h, 2d. */
export function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole}s`;
  if (whole < 7200) return `${Math.floor(whole / 60)}m`;
  if (whole < 172800) return `${Math.floor(whole / 3600)}h`;
  return `${Math.floor(whole / 86400)}d`;
}

/** The age of an API server's timestamp at the second `at` of the scheduler's clock. */
export const ageOf = (created, at) => (created ? age(at - Date.parse(created) / 1000) : "–");

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });

const RULES = {
  requiredAffinity: "affinity",
  requiredAntiAffinity: "anti-affinity",
  preferredAffinity: "preferred affinity",
  preferredAntiAffinity: "preferred anti-affinity",
  topologySpread: "spread",
};

export const QUEUES = {
  active: "to be tried next",
  backoff: "waits for its backoff",
  unschedulable: "fits nowhere, waits for a change",
  gated: "has scheduling gates",
};

/** Why a pod was evicted, by the reason of its condition DisruptionTarget. */
export const DISRUPTIONS = {
  EvictionByEvictionAPI: "through the Eviction API: by the enforcer, a drain or a client",
  PreemptionByScheduler: "preempted for a pod of higher priority",
  DeletionByTaintManager: "for a taint that it does not tolerate",
  DeletionByPodGC: "its node is gone",
  TerminationByKubelet: "by its kubelet, which lacks room or shuts down",
};

/** What PostFilter adds to the message of a pod that fits nowhere. */
const POSTFILTER =
  / (?:(?:no new claims to deallocate|still not schedulable|(?:deallocation|deletion) of ResourceClaim completed)(?:, |$)|preemption: )/;

/** The reasons of a message, without its parts on claims and preemption. */
export const refusalOf = (message) => message.split(POSTFILTER)[0].replace(/^0\/\d+ nodes are available: /, "");

/** The rule of the list in words: its kind and limit, its topology key, and where it counts. */
export function ruleText(rule) {
  const domains = rule.nodes ? `, on ${rule.nodes}` : "";
  const least = rule.minDomains > 1 ? `, minDomains ${rule.minDomains}` : "";
  return `${RULES[rule.rule] ?? rule.rule}, ${limitText(rule)}${least} per ${rule.topologyKey}, in ${rule.namespaces}${domains}`;
}

function limitText(rule) {
  if (rule.rule === "requiredAffinity") return "beside one";
  if (rule.rule === "topologySpread") return `maxSkew ${rule.limit}${rule.isHard ? "" : ", soft"}`;
  if (!rule.isHard) return `weight ${rule.limit}${rule.share && `, shares ${rule.share}`}`;
  if (rule.share) return `shares ${rule.share}`;
  return `at most ${rule.limit}`;
}

export const STATES = [
  { name: "empty", text: "no pod yet" },
  { name: "room", text: "room left" },
  { name: "full", text: "full" },
  { name: "broken", text: "rule does not hold" },
  { name: "closed", text: "closed: no pod there that the rule requires" },
];
