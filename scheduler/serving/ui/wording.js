// Numbers, times, rules and changes as people read them.

const NUMBER = new Intl.NumberFormat("en-US");

export const count = (number) => NUMBER.format(number);

export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** A duration in seconds, with two or three digits: 64 µs, 1.2 ms, 340 ms, 2.1 s, 3 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1e-3) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toPrecision(seconds < 0.1 ? 2 : 3)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return age(seconds);
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
  existingAntiAffinity: "anti-affinity of running pods",
  topologySpread: "spread",
};

export const ruleKind = (rule) => RULES[rule] ?? rule;

export const QUEUES = {
  active: "to be tried next",
  backoff: "waits for its backoff",
  unschedulable: "fits nowhere, waits for a change",
  gated: "has scheduling gates",
};

/** The limit of a rule of the list: at most N, maxSkew N, or beside such a pod. */
export function limitText(rule) {
  if (rule.rule === "requiredAffinity") return "beside one";
  if (rule.rule === "topologySpread") return `maxSkew ${rule.limit}${rule.isHard ? "" : ", soft"}`;
  return `at most ${rule.limit}`;
}

export const STATES = [
  { name: "empty", text: "no pod yet" },
  { name: "room", text: "room left" },
  { name: "full", text: "full" },
  { name: "broken", text: "rule does not hold" },
  { name: "closed", text: "lacks a pod that the rule requires" },
];

/** The sentence of a rule in an explanation. */
export function blockingRule(rule) {
  const pods = `${rule.selects} in ${rule.namespaces}`;
  const most = Math.max(0, ...rule.domains.map((domain) => domain.most ?? 0));
  const many = most ? `more than ${counted(most, "pod")} with` : "pods with";
  switch (rule.kind) {
    case "requiredAffinity":
      return `Its affinity: beside a pod with ${pods}, by ${rule.topologyKey}`;
    case "requiredAntiAffinity":
      return `Its anti-affinity: not beside ${many} ${pods}, by ${rule.topologyKey}`;
    case "existingAntiAffinity":
      return `Anti-affinity of running pods against ${many} ${pods}, by ${rule.topologyKey}`;
    case "topologySpread":
      return `Its spread of ${pods}, by ${rule.topologyKey}: ${skew(rule.skew)}`;
    default:
      return `${rule.kind}: ${pods}, by ${rule.topologyKey}`;
  }
}

function skew(numbers) {
  if (!numbers) return "no numbers";
  if (!numbers.domains) return `maxSkew ${numbers.maxSkew}, but no node is eligible`;
  return `maxSkew ${numbers.maxSkew}, the emptiest domain has ${numbers.fewest}`;
}

const taint = (change) => `${change.key}${change.value ? `=${change.value}` : ""}:${change.effect}`;

const UNITS = [["Ti", 2 ** 40], ["Gi", 2 ** 30], ["Mi", 2 ** 20], ["Ki", 2 ** 10]];

function amount({ resource, amount: number }) {
  if (resource === "cpu") return number % 1000 ? `${number}m` : String(number / 1000);
  const unit = UNITS.find(([, size]) => number >= size);
  return /memory|storage|hugepages/.test(resource) && unit
    ? `${Math.ceil((number / unit[1]) * 10) / 10}${unit[0]}`
    : String(number);
}

/** The sentence of a change that would help. */
export function changeText(change) {
  switch (change.change) {
    case "removePod":
      return `pod ${change.namespace}/${change.pod} leaves node ${change.node}${change.terminating ? " (it is terminating already)" : ""}`;
    case "runPod": {
      const labels = Object.entries(change.labels).map(([key, value]) => `${key}=${value}`).join(",") || "any labels";
      return `a pod with ${labels} runs in namespace ${change.namespace} on node ${change.node} or in its domain`;
    }
    case "addRoom":
      return change.resource === "pods"
        ? `node ${change.node} has room for one more pod`
        : `node ${change.node} has ${amount(change)} more ${change.resource}`;
    case "tolerateTaint":
      return `the pod tolerates the taint ${taint(change)}`;
    case "removeTaint":
      return `node ${change.node} loses the taint ${taint(change)}`;
    case "uncordon":
      return `node ${change.node} is uncordoned`;
    case "labelNode":
      return change.value === null
        ? `node ${change.node} loses the label ${change.key}`
        : `node ${change.node} has the label ${change.key}=${change.value}`;
    case "labelNamespace":
      return `namespace ${change.namespace} has the label ${change.key}=${change.value}`;
    case "allowSkew":
      return `the pod's spread by ${change.topologyKey} allows maxSkew ${change.maxSkew}`;
    default:
      // A kind of change that is newer than this page.
      return JSON.stringify(change);
  }
}
