// The review page. Edits are written to the files before the next caption is shown.
"use strict";

const HEIGHT = 120; // pixels of a row, as in page.css
const SPARE = 6; // rows drawn above and below the visible part
const MOST_TAGS = 200;
const LOOK_SECONDS = 15; // seconds between checks for changes by other tabs and programs
const KINDS = {
  all: ["All", () => true],
  doubts: ["Doubtful", (row) => row.doubts],
  shared: ["Shared captions", (row) => row.text && shared.get(plain(row.text)) > 1],
  collide: ["Also fit other pictures", (row) => row.collides],
  bare: ["No caption", (row) => !row.text && !row.decorative],
  person: ["Written by hand", (row) => row.by === "person"],
  model: ["By a model", (row) => row.by && row.by !== "person"],
  open: ["Not accepted", (row) => !row.accepted && !row.decorative],
  accepted: ["Accepted", (row) => row.accepted],
  decorative: ["Decorative", (row) => row.decorative],
  changed: ["Changed here", (row) => row.changed],
  candidates: ["With candidates", (row) => row.candidates],
};

const LEVELS = { all: "All", most: "Most", some: "Some", one: "Only one" }; // of several captions

let state = null; // the server's initial state; rows are kept up to date
let seen = []; // numbers of the rows that pass the filters
let kind = "all";
let tag = "";
let selected = -1; // the number of a row
let dirty = false; // the text in the box is not saved
let shared = new Map();

const plain = (text) => text.toLowerCase().replace(/\s+/g, " ").trim();
const words = (text) => (text.match(/\S+/g) || []).length;
const tagsOf = (text) => text.split(",").map((part) => part.trim()).filter((part) => part && words(part) <= 4);
// Most parts between the commas are short, and the text is not a sentence.
const isTags = (row) => row.text.includes(",") && !/[.!?]$/.test(row.text) && tagsOf(row.text).length >= row.text.split(",").length * .6;

/* The server */

const TRY_AGAIN = "; your text is still in the box.";

async function load() {
  const reply = await (await askServer("/api/state")).json();
  if (reply.error) throw new Error(reply.error);
  state = reply;
}

function take(reply) {
  for (const [number, row] of Object.entries(reply.rows)) {
    const before = state.rows[number];
    if (before.text !== row.text) state.compared = false; // what the new text fits is unknown
    state.rows[number] = { ...row, collides: before.text === row.text ? before.collides : undefined };
  }
  if (reply.revision !== undefined) state.revision = reply.revision;
  state.undo = reply.undo;
  state.redo = reply.redo;
  filter(false);
  if (reply.message) announce(reply.message);
}

function announce(text) {
  $("announcement").textContent = text;
  $("count").textContent = text;
  clearTimeout(announce.timer);
  announce.timer = setTimeout(count, 4000);
}

async function look(deep) {
  if (busy || !state || document.hidden) return;
  try {
    const reply = await (await askServer(`/api/since?revision=${state.revision}&look=${deep ? 1 : 0}`)).json();
    if (reply.error || busy) return;
    const mine = String(selected);
    const clash = dirty && mine in reply.rows && reply.rows[mine].version !== state.rows[selected].version;
    const kept = clash ? { [mine]: reply.rows[mine] } : {};
    if (clash) delete reply.rows[mine];
    if (Object.keys(reply.rows).length || reply.revision !== state.revision) take(reply);
    if (clash) conflict(kept[mine]);
    else if (mine in reply.rows && !dirty) open(selected, false);
  } catch (error) {
    if (!(error instanceof Offline)) throw error;
  }
}

/* Filters */

function filter(top = true) {
  shared = new Map();
  for (const row of state.rows) if (row.text) shared.set(plain(row.text), (shared.get(plain(row.text)) || 0) + 1);
  const sought = plain($("search").value);
  const language = $("language").value;
  const shortest = Number($("shortest").value || 0), longest = Number($("longest").value || Infinity);
  const measured = $("shortest").value || $("longest").value;
  const passes = (row) => KINDS[kind][1](row)
    && (!sought || plain(row.text).includes(sought) || row.id.toLowerCase().includes(sought))
    && (!language || (row.language || "") === (language === "none" ? "" : language))
    && (!measured || (words(row.text) >= shortest && words(row.text) <= longest))
    && (!tag || tagsOf(row.text).some((each) => each.toLowerCase() === tag));
  seen = [];
  state.rows.forEach((row, number) => { if (passes(row)) seen.push(number); });
  if (!top && selected >= 0 && !seen.includes(selected)) { // keep the caption that was just edited in view
    seen.push(selected);
    seen.sort((a, b) => a - b);
  }
  drawKinds();
  drawTags();
  if (top) $("list").scrollTop = 0;
  draw(true);
  count();
  $("undo").disabled = !state.undo;
  $("undo").title = state.undo ? `Undo: ${state.undo.what}` : "";
  $("redo").disabled = !state.redo;
}

function count() {
  const all = state.rows.length;
  $("count").textContent = seen.length === all ? `${all.toLocaleString()} pictures` : `${seen.length.toLocaleString()} of ${all.toLocaleString()}`;
  $("none").hidden = seen.length > 0;
}

function drawKinds() {
  const counts = Object.fromEntries(Object.keys(KINDS).map((name) => [name, 0]));
  for (const row of state.rows) for (const name in KINDS) if (KINDS[name][1](row)) counts[name] += 1;
  const shown = Object.keys(KINDS).filter((name) => counts[name] || name === kind || name === "all" || (name === "collide" && state.scorer));
  $("kinds").replaceChildren(...shown.map((name) => choice(KINDS[name][0], name === "collide" && !state.compared ? "" : counts[name], name === kind, () => {
    if (name === "collide" && !state.compared) return step(compare);
    kind = name;
    filter();
  })));
}

function choice(label, number, pressed, chosen) {
  const item = element("li"), button = element("button");
  button.type = "button";
  button.setAttribute("aria-pressed", pressed);
  button.append(element("span", label), element("span", number.toLocaleString()));
  button.onclick = () => { $("filters").classList.remove("open"); chosen(); };
  item.append(button);
  return item;
}

function drawTags() {
  const counts = new Map();
  for (const row of state.rows) {
    if (isTags(row)) for (const each of new Set(tagsOf(row.text.toLowerCase()))) counts.set(each, (counts.get(each) || 0) + 1);
  }
  const most = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  $("tag-count").textContent = most.length ? `(${most.length.toLocaleString()})` : "";
  $("tags").previousElementSibling.hidden = !most.length;
  const shown = most.slice(0, MOST_TAGS);
  if (tag && !shown.some(([name]) => name === tag)) shown.unshift([tag, counts.get(tag) || 0]);
  $("tags").replaceChildren(...shown.map(([name, number]) => choice(name, number, name === tag, () => {
    tag = tag === name ? "" : name;
    filter();
  })));
}

function languages() {
  const known = [...new Set(state.rows.map((row) => row.language).filter(Boolean))].sort();
  $("language").replaceChildren(...[["", "any"], ...known.map((name) => [name, name]), ["none", "not known"]].map(([value, label]) => {
    const option = element("option", label);
    option.value = value;
    return option;
  }));
  $("language").parentElement.hidden = !known.length;
}

/* The list: only rows that are seen are in the page. */

const drawn = new Map(); // by number

function draw(anew = false) {
  const list = $("list");
  $("rows").style.height = `${seen.length * HEIGHT}px`;
  const first = Math.max(0, Math.floor(list.scrollTop / HEIGHT) - SPARE);
  const last = Math.min(seen.length, Math.ceil((list.scrollTop + list.clientHeight) / HEIGHT) + SPARE);
  const visible = new Map();
  for (let place = first; place < last; place += 1) visible.set(seen[place], place);
  for (const [number, row] of drawn) {
    if (anew || !visible.has(number)) {
      row.remove();
      drawn.delete(number);
    }
  }
  for (const [number, place] of visible) {
    if (!drawn.has(number)) {
      const row = rowElement(number);
      drawn.set(number, row);
      $("rows").append(row);
    }
    drawn.get(number).style.transform = `translateY(${place * HEIGHT}px)`;
  }
}

function rowElement(number) {
  const row = state.rows[number];
  const made = element("div", undefined, "row"), thumb = element("div", undefined, "thumb"), what = element("div", undefined, "what");
  made.setAttribute("role", "option");
  made.setAttribute("aria-selected", number === selected);
  made.dataset.number = number;
  thumb.append(image(`/thumbnails/${number}`, () => thumb.replaceChildren(element("p", "cannot be read", "bad"))));
  const empty = row.decorative ? "decorative" : "no caption";
  what.append(element("p", row.text || empty, row.text ? "said" : "said empty"));
  const marks = element("p", undefined, "marks");
  if (row.accepted) marks.append(element("span", "accepted", "mark good"));
  if (row.doubts) marks.append(element("span", "doubt", "mark bad"));
  if (row.collides) marks.append(element("span", `also fits ${row.collides}`, "mark bad"));
  if (row.text && shared.get(plain(row.text)) > 1) marks.append(element("span", "shared", "mark"));
  if (row.by === "person") marks.append(element("span", "person", "mark"));
  marks.append(element("bdi", row.id, "file"));
  what.append(marks);
  made.append(thumb, what);
  return made;
}

function image(address, failed) {
  const made = new Image();
  made.alt = "";
  made.decoding = "async";
  made.onerror = failed;
  made.src = address;
  return made;
}

/* The selected picture */

function open(number, show = true) {
  const row = state.rows[number];
  const other = number !== selected;
  drawn.get(selected)?.setAttribute("aria-selected", "false");
  selected = number;
  drawn.get(number)?.setAttribute("aria-selected", "true");
  if (other) {
    $("picture").src = `/pictures/${number}`;
    $("fits-part").hidden = $("history-part").hidden = true;
  }
  $("picture").alt = row.text;
  $("id").textContent = row.id;
  $("text").value = row.text;
  $("text").readOnly = !state.writable;
  $("text").placeholder = row.decorative ? "Decorative: no caption needed" : "No caption";
  dirty = false;
  $("conflict").hidden = true;
  const writer = row.by === "person" ? "by a person" : row.by ? `by ${row.by}` : "";
  $("facts").textContent = [row.text && `${words(row.text)} words, ${row.text.length} characters`, writer, row.accepted && "accepted", row.language].filter(Boolean).join(" · ");
  $("decorative").setAttribute("aria-pressed", Boolean(row.decorative));
  $("doubts").replaceChildren(...(row.doubts || []).map((each) => element("li", each)));
  const variation = row.variation || {};
  $("variation-title").textContent = `What ${variation.samples} captions say`;
  $("variation").replaceChildren(...Object.entries(LEVELS).filter(([name]) => variation[name]).map(([name, label]) => {
    const line = element("div", undefined, name);
    line.append(element("dt", label), element("dd", variation[name].join(", ")));
    return line;
  }));
  $("variation-part").hidden = !row.variation;
  $("candidates").replaceChildren(...(row.candidates || []).map((text, place) => {
    const item = element("li"), button = element("button");
    button.type = "button";
    if (place < 9) button.append(element("kbd", String(place + 1)), " ");
    button.append(text);
    button.onclick = () => step(() => save({ text }, "choose"));
    item.append(button);
    return item;
  }));
  $("candidates-part").hidden = !row.candidates;
  $("detail").classList.add("shown");
  if (show) $("detail").classList.add("open");
}

function reveal(number) {
  const place = seen.indexOf(number), list = $("list");
  if (place < 0) return;
  const top = place * HEIGHT;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + HEIGHT > list.scrollTop + list.clientHeight) list.scrollTop = top + HEIGHT - list.clientHeight;
  draw();
}

async function go(number) {
  await keep();
  if (number === undefined) return;
  open(number, $("detail").classList.contains("open") || window.innerWidth > 1050);
  reveal(number);
}

const neighbour = (by) => {
  const place = seen.indexOf(selected);
  return seen[Math.min(seen.length - 1, Math.max(0, place + by))];
};

// Saves the text in the box, if it was edited.
async function keep() {
  if (dirty) await save({ text: $("text").value }, "edit");
}

async function save(fields, what) {
  const number = selected, row = state.rows[number];
  const reply = await post("/api/write", { edits: { [number]: { ...fields, version: row.version } }, what });
  if (reply.conflicts.length) {
    conflict(reply.rows[number]);
    throw new Error("Not saved: this caption was changed in another tab or program. Choose one of the two versions below the text.");
  }
  dirty = false;
  take(reply);
  if (selected === number) open(number, $("detail").classList.contains("open"));
}

function conflict(row) {
  const mine = $("text").value;
  const box = $("conflict");
  box.replaceChildren(element("b", "Now reads: "), element("bdi", row.text || "no caption"), element("br"));
  for (const [label, chosen] of [["Take theirs", () => undefined], ["Keep mine", async () => {
    state.rows[selected] = row;
    await save({ text: mine }, "edit");
  }]]) {
    const button = element("button", label);
    button.type = "button";
    button.onclick = () => step(async () => {
      await chosen();
      state.rows[selected] = label === "Take theirs" ? row : state.rows[selected];
      trouble("");
      filter(false);
      open(selected, $("detail").classList.contains("open"));
    });
    box.append(button);
  }
  box.hidden = false;
}

async function accept() {
  const row = state.rows[selected], text = $("text").value;
  const next = neighbour(1), last = next === selected;
  if (row.accepted && !dirty) {
    await save({ accepted: false }, "do not accept");
    return;
  }
  if (text.trim()) await save({ ...(dirty ? { text } : {}), accepted: true, ...(row.decorative ? { decorative: false } : {}) }, "accept");
  if (!last) await go(next);
}

async function decorate() {
  const row = state.rows[selected];
  await save(row.decorative ? { decorative: false } : { text: "", decorative: true, accepted: false }, "decorative");
}

async function undo() {
  if (dirty) {
    $("text").value = state.rows[selected].text;
    dirty = false;
    return;
  }
  if (state.undo) await back(state.undo.id);
}

async function back(change) {
  const reply = await post("/api/undo", { change });
  take(reply);
  const numbers = Object.keys(reply.rows).map(Number);
  if (numbers.length === 1 && numbers[0] !== selected) {
    if (!seen.includes(numbers[0])) { kind = "all"; tag = ""; $("search").value = ""; filter(false); }
    open(numbers[0], window.innerWidth > 1050);
    reveal(numbers[0]);
  } else if (selected >= 0) open(selected, $("detail").classList.contains("open"));
  if (!reply.message) announce(`${numbers.length.toLocaleString()} captions restored`);
}

async function showHistory() {
  if (!$("history-part").hidden) { $("history-part").hidden = true; return; }
  const versions = await (await askServer(`/api/history/${selected}`)).json();
  $("history").replaceChildren(...versions.map((each) => {
    const item = element("li");
    const when = new Date(each.time + "Z").toLocaleString();
    item.append(element("span", [when, each.what, each.by === "person" ? "a person" : each.by, each.prompt && `“${each.prompt}”`].filter(Boolean).join(" · ")), each.text || "no caption");
    return item;
  }));
  const first = versions.length ? versions[versions.length - 1].before : state.rows[selected].text;
  if (first) {
    const item = element("li", first);
    item.prepend(element("span", "original caption"));
    $("history").append(item);
  }
  $("history-part").hidden = false;
}

async function showFits() {
  if (!state.scorer) return;
  announce("Comparing with the other pictures…");
  const own = selected;
  const { fits, better } = await post("/api/look-alikes", { number: own, text: $("text").value });
  $("fits-title").textContent = !fits.length ? "No caption to compare" : !better ? "This picture fits best" : `${better.toLocaleString()} other picture${better > 1 ? "s fit" : " fits"} better`;
  $("fits").replaceChildren(...fits.map((each) => {
    const item = element("li", undefined, each.number === own ? "own" : ""), button = element("button");
    button.type = "button";
    button.title = state.rows[each.number].text || "no caption";
    button.append(image(`/thumbnails/${each.number}`, () => {}), each.number === own ? `this: ${each.cosine.toFixed(3)}` : each.cosine.toFixed(3));
    button.onclick = () => step(() => go(each.number));
    item.append(button);
    return item;
  }));
  $("fits-part").hidden = false;
  $("fits-part").scrollIntoView({ block: "nearest" });
  count();
}

/* Many captions */

async function compare() {
  announce("Comparing captions with pictures…");
  const reply = await (await askServer("/api/collisions")).json();
  if (reply.error) throw new Error(reply.error);
  state.rows.forEach((row, number) => { row.collides = reply[number]; });
  state.compared = true;
  kind = "collide";
  filter();
}

async function openAll() {
  await keep();
  const some = seen.length < state.rows.length;
  $("scope").textContent = `Changes apply to ${some ? "the" : "all"} ${seen.length.toLocaleString()} pictures${some ? " shown" : ""} and can be undone.`;
  const colliding = seen.filter((number) => state.rows[number].collides);
  $("collide").hidden = !state.model || !colliding.length;
  $("collide-text").textContent = `${colliding.length.toLocaleString()} captions fit other pictures equally well`;
  matches();
  $("all").showModal();
}

function matches() {
  const form = $("replace"), text = form.text.value;
  if (!text) { $("matches").textContent = ""; return; }
  const escaped = text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const found = new RegExp(form.whole_words.checked ? `(?<![\\p{L}\\p{N}_])${escaped}(?![\\p{L}\\p{N}_])` : escaped, form.case.checked ? "u" : "iu");
  $("matches").textContent = `in ${seen.filter((number) => found.test(state.rows[number].text)).length.toLocaleString()} captions`;
}

async function batch(what, fields) {
  const reply = await post("/api/batch", { what, numbers: seen, ...fields });
  take(reply);
  $("all").close();
  if (selected >= 0) open(selected, $("detail").classList.contains("open"));
  announce(`${Object.keys(reply.rows).length.toLocaleString()} captions changed`);
}

async function recaption() {
  const numbers = seen.filter((number) => state.rows[number].collides);
  if (!numbers.length) return;
  $("all").close();
  announce(`Captioning ${numbers.length.toLocaleString()} pictures…`);
  const reply = await post("/api/recaption", { numbers });
  take(reply);
  await compare();
  const left = state.rows.filter((row) => row.collides).length;
  announce(`${reply.message}; ${left.toLocaleString()} captions fit other pictures`);
  if (selected >= 0) open(selected, $("detail").classList.contains("open"));
}

/* Keys */

const ACTIONS = {
  a: accept, d: decorate, h: showHistory, f: showFits, u: undo,
  n: () => go(neighbour(1)), ArrowDown: () => go(neighbour(1)), ArrowUp: () => go(neighbour(-1)),
  j: () => go(neighbour(1)), k: () => go(neighbour(-1)),
  "?": () => { if ($("keys").open) $("keys").close(); else $("keys").showModal(); },
};
const READS = ["n", "h", "f", "ArrowDown", "ArrowUp", "j", "k", "?"]; // allowed in a read-only layout

function act(key) {
  if (!state || (selected < 0 && key !== "?") || !(key in ACTIONS)) return;
  if (state.writable || READS.includes(key)) step(ACTIONS[key]);
}

function pressed(event) {
  const writing = event.target.matches("textarea, input, select");
  if (document.querySelector("dialog[open]") && event.key !== "?") return;
  if (event.target.id === "text") {
    if (event.key === "Escape") { $("list").focus(); step(keep); }
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); step(async () => { await accept(); $("text").focus(); }); }
    return;
  }
  if (writing) {
    if (event.key === "Escape") $("list").focus();
    return;
  }
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") {
    event.preventDefault();
    if (!event.shiftKey) act("u");
    else if (state.redo) step(() => back(state.redo));
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); $("search").focus(); return; }
  if (event.key === "Enter" && !event.target.matches("button")) { event.preventDefault(); $("detail").classList.add("open"); $("text").focus(); return; }
  if (/^[1-9]$/.test(event.key)) {
    const text = (state.rows[selected]?.candidates || [])[Number(event.key) - 1];
    if (text !== undefined && state.writable) step(() => save({ text }, "choose"));
    return;
  }
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (key in ACTIONS) { event.preventDefault(); act(key); }
}

function later(work, pause) {
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(work, pause); };
}

function listen() {
  document.addEventListener("keydown", pressed);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-key]");
    if (button) act(button.dataset.key);
  });
  $("list").addEventListener("scroll", () => requestAnimationFrame(() => draw()), { passive: true });
  $("rows").addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (row) step(async () => { await keep(); open(Number(row.dataset.number)); });
  });
  $("text").addEventListener("input", () => { dirty = true; });
  $("text").addEventListener("blur", (event) => { if (event.relatedTarget?.matches("input, select") && $("conflict").hidden) step(keep); });
  window.addEventListener("blur", () => { if (dirty && $("conflict").hidden) step(keep); });
  $("back").onclick = () => step(async () => { await keep(); $("detail").classList.remove("open"); });
  $("redo").onclick = () => step(() => back(state.redo));
  $("search").addEventListener("input", later(() => filter(), 120));
  for (const id of ["shortest", "longest", "language"]) $(id).addEventListener("input", later(() => filter(), 120));
  $("clear").onclick = () => { kind = "all"; tag = ""; for (const id of ["search", "shortest", "longest", "language"]) $(id).value = ""; filter(); };
  $("filter-button").onclick = () => $("filter-button").setAttribute("aria-expanded", $("filters").classList.toggle("open"));
  document.querySelector("main").addEventListener("click", () => { $("filters").classList.remove("open"); $("filter-button").setAttribute("aria-expanded", "false"); }, true);
  $("all-button").onclick = () => step(openAll);
  $("close-all").onclick = () => $("all").close();
  $("replace").addEventListener("input", matches);
  const forms = {
    replace: (form) => batch("replace", { text: form.text.value, by: form.by.value, case: form.case.checked, whole_words: form.whole_words.checked }),
    trigger: (form) => batch("trigger", { text: form.text.value }),
    tag: (form, value) => batch(value || "add tag", { text: form.text.value }),
    accept: () => batch("accept", {}),
    collide: recaption,
  };
  for (const [id, submit] of Object.entries(forms)) {
    $(id).addEventListener("submit", (event) => {
      event.preventDefault();
      step(() => submit(event.target, event.submitter?.value));
    });
  }
  window.addEventListener("resize", later(() => draw(), 60));
  window.addEventListener("focus", () => look(true));
  window.addEventListener("beforeunload", (event) => { if (dirty) event.preventDefault(); });
  setInterval(() => look(false), LOOK_SECONDS * 1000);
}

step(async () => {
  await load();
  $("name").textContent = state.name;
  document.title = `${state.name} · captions`;
  $("fits-button").hidden = !state.scorer;
  $("all-button").hidden = !state.writable;
  languages();
  listen();
  filter();
  if (state.rows.length) open(0, window.innerWidth > 1050);
  $("list").focus();
});
