// Shows the gateway's events: running streams, totals, lanes. Knows the events; fetches nothing from elsewhere.

const MAX_STREAMS = 40; // shown at one time; the oldest that ended go first
const MAX_PIECES = 1500; // of one stream's text
const ENDED_SECONDS = 30; // an ended stream stays so long
const RATE_SECONDS = 3; // over which tokens/s and acceptance are taken
const LANE_SECONDS = 4; // the width of the timeline
const RETRY_SECONDS = 1;
const KEY = "slipstream-watch-key";

const byId = (id) => document.getElementById(id);
const seconds = () => performance.now() / 1000;

const streams = new Map(); // name -> what is shown of it
const lanes = new Map(); // "verify host:port" -> its work, oldest first
const passes = []; // of the last RATE_SECONDS, of all streams
const load = new Map(); // verifier -> its newest step
let clockOffset = Infinity; // our clock less the gateway's, at the quickest delivery so far
let isPaused = false;

const takers = { pass: takePass, end: takeEnd, work: takeWork, dropped: () => say("too slow, connecting again", true) };

function takePass(event) {
  const now = seconds();
  passes.push({ at: now, ...event });
  const stream = streams.get(event.stream) ?? addStream(event, now);
  stream.tokens += event.tokens;
  stream.drafted += event.drafted;
  stream.accepted += event.accepted;
  stream.last = now;
  if (event.proposer) stream.proposer = event.proposer;
  for (const [text, origin] of event.pieces) append(stream.text, text, origin);
  const rejected = event.drafted - event.accepted;
  if (rejected > 0) append(stream.text, `×${rejected}`, "rejected");
  tellFacts(stream, event);
  stream.text.scrollTop = stream.text.scrollHeight;
}

function takeEnd(event) {
  const stream = streams.get(event.stream);
  if (!stream) return;
  stream.ended = seconds();
  stream.card.classList.add("ended");
  stream.facts.textContent += ` · ${event.outcome}`;
}

function takeWork(event) {
  clockOffset = Math.min(clockOffset, seconds() - event.end);
  const name = `${event.lane} ${event.peer}`;
  if (!lanes.has(name)) lanes.set(name, []);
  lanes.get(name).push(event);
  if (event.lane === "verify") load.set(event.peer, event);
}

function addStream(event, now) {
  const card = document.createElement("article");
  const facts = document.createElement("p");
  const text = document.createElement("pre");
  card.className = "stream";
  card.dataset.stream = event.stream;
  facts.className = "facts";
  text.className = "text";
  card.append(facts, text);
  byId("streams").prepend(card);
  const counts = { tokens: 0, firstTokens: event.tokens, drafted: 0, accepted: 0 };
  const stream = { card, facts, text, first: now, last: now, ended: 0, proposer: "", ...counts };
  streams.set(event.stream, stream);
  return stream;
}

function append(box, text, origin) {
  // Only ever as text: it is other people's.
  if (!text) return;
  const last = box.lastElementChild;
  if (last && last.className === origin && origin === "plain") {
    last.append(text);
  } else {
    const piece = document.createElement("span");
    piece.className = origin;
    piece.textContent = text;
    box.append(piece);
  }
  while (box.childElementCount > MAX_PIECES) box.firstElementChild.remove();
}

function tellFacts(stream, event) {
  const took = stream.last - stream.first;
  const facts = [event.request, event.tenant, event.model, `${stream.tokens} tokens`];
  if (took > 0.2) facts.push(`${((stream.tokens - stream.firstTokens) / took).toFixed(1)} tok/s`);
  if (stream.drafted) facts.push(`${stream.proposer}: ${share(stream.accepted, stream.drafted)} accepted`);
  stream.facts.textContent = facts.join(" · ");
}

function share(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : "–";
}

function sum(values, field) {
  return values.reduce((total, value) => total + value[field], 0);
}

function forget(now) {
  while (passes.length && passes[0].at < now - RATE_SECONDS) passes.shift();
  for (const [name, stream] of streams) {
    const isOld = stream.ended && stream.ended < now - ENDED_SECONDS;
    if (isOld || streams.size > MAX_STREAMS) {
      stream.card.remove();
      streams.delete(name);
    }
  }
  for (const work of lanes.values()) {
    while (work.length && work[0].end < now - clockOffset - 2 * LANE_SECONDS) work.shift();
  }
}

function tellTotals() {
  const steps = [...load.values()];
  byId("rate").textContent = (sum(passes, "tokens") / RATE_SECONDS).toFixed(1);
  byId("acceptance").textContent = share(sum(passes, "accepted"), sum(passes, "drafted"));
  byId("per-pass").textContent = passes.length ? (sum(passes, "tokens") / passes.length).toFixed(2) : "–";
  byId("streams-live").textContent = [...streams.values()].filter((stream) => !stream.ended).length;
  byId("waiting").textContent = sum(steps, "waiting");
  byId("kv").textContent = share(sum(steps, "kv_used"), sum(steps, "kv_total"));
  byId("nothing").hidden = streams.size > 0;
}

function drawLanes(now) {
  const canvas = byId("lanes");
  const names = [...lanes.keys()].sort().reverse(); // verifiers first
  const height = 34;
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = `${Math.max(1, names.length) * height}px`;
  canvas.width = width * scale;
  canvas.height = Math.max(1, names.length) * height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`);
  const left = now - clockOffset - LANE_SECONDS;
  const across = (time) => Math.round(((time - left) / LANE_SECONDS) * width);
  names.forEach((name, row) => {
    const top = row * height;
    pen.fillStyle = colour("dim");
    pen.font = "11px system-ui, sans-serif";
    pen.fillText(name, 0, top + 11);
    for (const work of lanes.get(name)) {
      const start = work.end - work.work_us / 1e6;
      const draw = (from, to, lower) => pen.fillRect(across(from), top + 15 + lower, Math.max(1, across(to) - across(from)), 14 - 2 * lower);
      pen.fillStyle = colour("wait");
      if (work.wait_us) draw(start - work.wait_us / 1e6, start, 4);
      pen.fillStyle = colour(work.lane);
      draw(start, work.end, 0);
    }
  });
}

function paint() {
  if (!isPaused) {
    const now = seconds();
    forget(now);
    tellTotals();
    drawLanes(now);
  }
  requestAnimationFrame(paint);
}

function say(text, isFailure = false) {
  byId("state").textContent = text;
  byId("state").classList.toggle("failed", isFailure);
}

// EventSource cannot send a header, and a key in an address would end up in logs.
async function follow(key) {
  const answer = await fetch("watch/events", { headers: { Authorization: `Bearer ${key}` }, cache: "no-store" });
  if (answer.status === 401) {
    sessionStorage.removeItem(KEY);
    throw new Error("this key is not the operator's");
  }
  if (!answer.ok) throw new Error((await answer.json()).error.message);
  say("connected");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const messages = (text + part.value).split("\n\n");
    text = messages.pop();
    for (const message of messages) take(message);
  }
  say("the gateway ended the stream, connecting again", true);
}

function take(message) {
  if (isPaused || !message.startsWith("data: ")) return;
  for (const event of JSON.parse(message.slice("data: ".length))) takers[event.kind]?.(event);
}

async function run() {
  while (sessionStorage.getItem(KEY)) {
    try {
      await follow(sessionStorage.getItem(KEY));
    } catch (error) {
      say(error.message, true);
    }
    await new Promise((done) => setTimeout(done, RETRY_SECONDS * 1000));
  }
  byId("ask").hidden = false;
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key").value);
  byId("ask").hidden = true;
  byId("key").value = "";
  run();
});

byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  byId("pause").textContent = isPaused ? "Go on" : "Pause";
});

// `slipstream up --watch` prints an address that ends in the key, which browsers send to nobody.
if (location.hash.length > 1) {
  sessionStorage.setItem(KEY, decodeURIComponent(location.hash.slice(1)));
  history.replaceState(null, "", location.pathname);
}
paint();
run();
