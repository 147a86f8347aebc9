// The review page. Every decision is on disk before the next bag is shown.
"use strict";

const NAME = "tellapart-reviewer";
const TRY_AGAIN = ", then press the key once more.";
const WIDE_TRACK = 120; // with more bags than this, the track is one bar instead of a mark per bag

let state = null; // the server's last reply
let reviewer = null;
let at = 0; // the current bag
let chosen = new Set();
let captionsShown = false;
let large = false;

function show(part) {
  for (const id of ["asking", "reviewing", "finished"]) $(id).hidden = id !== part;
}

const shown = (part) => !$(part).hidden;

async function load() {
  const query = reviewer ? "?reviewer=" + encodeURIComponent(reviewer) : "";
  const answer = await askServer("/api/state" + query);
  const reply = await answer.json();
  if (!answer.ok) throw new Error(reply.error);
  state = reply;
  $("file").textContent = state.file;
  document.title = `${state.file} · review`;
}

// Saves or undoes a decision, and takes over the progress in the reply.
async function save(path, body) {
  try {
    const reply = await post(path, body);
    Object.assign(state, { decisions: reply.decisions, last: reply.last, reviewers: reply.reviewers, agreement: reply.agreement });
    return reply;
  } catch (error) {
    if (error.status !== 409) throw error;
    await load();
    throw new Error(error.message + "; the page now shows the current decisions");
  }
}

// Runs a step; if it fails, shows the bag's current state, so that a key never applies to a bag that is not on screen.
const onBag = (work) => step(work, (error) => {
  if (!(error instanceof Offline) && state && shown("reviewing")) open(at);
});

/* Who */

function ask() {
  show("asking");
  $("name").value = "";
  $("known").replaceChildren();
  if (state.reviewers.length) $("known").append(element("span", "or continue as"));
  for (const { name } of state.reviewers) {
    const button = element("button", name);
    button.type = "button";
    button.onclick = () => onBag(() => begin(name));
    $("known").append(button);
  }
  $("name").focus();
}

async function begin(name) {
  const before = reviewer;
  reviewer = name.normalize("NFC").split(/\s+/).filter(Boolean).join(" ");
  try {
    await load();
  } catch (error) {
    reviewer = before;
    throw error;
  }
  localStorage.setItem(NAME, reviewer);
  trouble("");
  $("who").textContent = reviewer;
  $("who").hidden = false;
  advance(-1);
}

/* Bags */

function advance(from) {
  const count = state.bags.length;
  for (let ahead = 1; ahead <= count; ahead++) {
    const next = (from + ahead + count) % count;
    if (!(next in state.decisions)) return open(next);
  }
  finish();
}

function open(number) {
  at = number;
  const bag = state.bags[at];
  const decision = state.decisions[at];
  chosen = new Set(decision ? decision.facets : []);
  $("note").value = decision ? decision.note : "";
  $("noting").hidden = !$("note").value;
  $("title").textContent = `Bag ${at + 1} of ${state.bags.length}`;
  $("alike").textContent = bag.similarity === null ? `${bag.pictures.length} pictures` : `${bag.pictures.length} pictures · α ${bag.similarity.toFixed(3)}`;
  $("verdict").textContent = decision ? { keep: "You kept it", drop: "You dropped it" }[decision.verdict] : "";
  $("verdict").className = "verdict " + (decision ? decision.verdict : "");
  $("pictures").replaceChildren(...bag.pictures.map(picture));
  show("reviewing");
  arrange();
  facets();
  progress();
  if (captionsShown) captions().catch((error) => trouble(error.message));
  for (const next of state.bags[at + 1]?.pictures ?? []) new Image().src = address(next);
  $("announcement").textContent = $("title").textContent;
}

const address = (number) => `/pictures/${number}?${state.token.slice(0, 6)}`; // picture numbers differ between reviews

function picture(number, place) {
  const item = document.createElement("li");
  const figure = element("figure");
  const frame = element("div", undefined, "frame");
  const image = new Image();
  image.alt = `Picture ${place + 1}`;
  image.onload = () => {
    image.classList.toggle("crisp", Math.max(image.naturalWidth, image.naturalHeight) <= 96);
    arrange();
  };
  image.onerror = () => frame.replaceChildren(element("p", `Picture ${place + 1} cannot be read`));
  image.src = address(number);
  frame.append(image);
  figure.append(frame, document.createElement("figcaption"));
  item.append(figure);
  return item;
}

// Chooses the number of columns that makes the pictures largest in the available space.
function arrange() {
  if (!shown("reviewing")) return;
  const count = state.bags[at].pictures.length;
  const dock = document.querySelector(".dock").offsetHeight;
  const room = innerHeight - $("pictures").getBoundingClientRect().top - scrollY - dock - 24;
  const width = $("pictures").clientWidth;
  const shapes = [...document.querySelectorAll(".frame img")].filter((image) => image.naturalWidth);
  const widest = Math.max(...shapes.map((image) => image.naturalWidth / image.naturalHeight), shapes.length ? 0.5 : 1.33);
  let best = { side: 0, columns: 1 };
  for (let columns = 1; columns <= count; columns++) {
    const rows = Math.ceil(count / columns);
    const wide = width / columns - 18;
    const tall = room / rows - 18;
    const side = Math.min(wide / widest, tall);
    if (side > best.side) best = { side, columns };
  }
  best = { columns: best.columns, tall: best.side, wide: Math.floor(best.side * widest) + "px" };
  if (captionsShown) { // leave room for captions: as many columns as remain wide enough to read
    const columns = Math.max(1, Math.min(count, Math.floor(width / 220)));
    best = { columns, tall: Math.min((width / columns - 18) * 0.75, room * 0.6) };
  }
  const three = !captionsShown && !large && count === 3 ? besideTheFirst(width, room, widest, best.tall) : null;
  $("pictures").classList.toggle("three", three !== null);
  if (three) best = { columns: 2, ...three };
  if (large) best = { columns: Math.max(1, Math.min(2, best.columns - 1)), tall: Math.max(room - 18, 240) };
  $("pictures").style.setProperty("--columns", best.columns);
  $("pictures").style.setProperty("--wide", best.wide ?? "1fr");
  $("pictures").style.setProperty("--first-wide", best.firstWide ?? "auto");
  $("pictures").style.setProperty("--first-tall", (best.firstTall ?? best.tall) + "px");
  $("pictures").style.setProperty("--tall", Math.max(Math.floor(best.tall), 120) + "px");
  $("captions").setAttribute("aria-pressed", captionsShown);
  $("large").setAttribute("aria-pressed", large);
}

// Lays out three pictures with the first one large; returns null if a plain grid would show all of them over 10 % larger.
function besideTheFirst(width, room, widest, plain) {
  const gap = parseFloat(getComputedStyle($("pictures")).rowGap) || 0;
  if (innerWidth <= 760) { // the first picture goes above the others
    const firstTall = Math.floor(Math.min(width / widest, Math.max(room * 0.6, 160)));
    return { firstTall, tall: Math.floor((width - gap) / 2 / widest) };
  }
  // The required width: widest · (first + (first − gap) / 2) + gap.
  const firstTall = Math.floor(Math.min(room - 18, (width - gap + (widest * gap) / 2) / (1.5 * widest)));
  const tall = (firstTall - gap) / 2;
  if (tall < 0.9 * plain) return null;
  return { firstTall, tall, wide: tall * widest + "px", firstWide: firstTall * widest + "px" };
}

async function captions() {
  const number = at;
  const answer = await askServer(`/api/bags/${number}/captions`);
  const found = await answer.json();
  if (number !== at || !captionsShown) return;
  [...$("pictures").children].forEach((item, place) => {
    const list = element("ul");
    for (const text of found[place].captions) list.append(element("li", text));
    if (!found[place].captions.length) list.append(element("li", "no captions", "none"));
    item.querySelector("figcaption").replaceChildren(element("span", found[place].id, "id"), list);
  });
}

function facets() {
  $("facets").replaceChildren(...state.facets.map((facet, place) => {
    const button = element("button");
    button.type = "button";
    button.dataset.key = String(place + 1);
    button.setAttribute("aria-pressed", chosen.has(facet));
    button.append(element("kbd", String(place + 1)), " " + facet);
    return button;
  }));
}

function progress() {
  const decisions = Object.values(state.decisions);
  const kept = decisions.filter((decision) => decision.verdict === "keep").length;
  const track = $("track");
  const marks = [];
  if (state.bags.length <= WIDE_TRACK) {
    for (let number = 0; number < state.bags.length; number++) {
      const mark = element("i", undefined, state.decisions[number] ? state.decisions[number].verdict : "");
      if (number === at && shown("reviewing")) mark.classList.add("here");
      marks.push(mark);
    }
  } else {
    for (const [name, count] of [["keep", kept], ["drop", decisions.length - kept]]) {
      const mark = element("i", undefined, name);
      mark.style.width = (100 * count) / state.bags.length + "%";
      marks.push(mark);
    }
  }
  track.classList.toggle("bar", state.bags.length > WIDE_TRACK);
  track.replaceChildren(...marks);
  track.setAttribute("aria-valuemax", state.bags.length);
  track.setAttribute("aria-valuenow", decisions.length);
  $("count").replaceChildren(element("b", `${decisions.length} of ${state.bags.length}`), ` · ${kept} kept · ${decisions.length - kept} dropped`);
  $("undo").disabled = state.last === null;
}

/* Deciding */

async function decide(verdict) {
  const standing = state.decisions[at];
  await save("/api/decisions", {
    reviewer, bag: at, verdict, facets: [...chosen], note: $("note").value, replaces: standing ? standing.id : null,
  });
  $("announcement").textContent = verdict === "keep" ? "Kept" : "Dropped";
  document.activeElement.blur();
  advance(at);
}

async function undo() {
  if (state.last === null) return;
  const reply = await save("/api/undo", { reviewer, decision: state.last });
  if (reply.bag === null) return trouble("Undone: a decision on a bag that is not in this file");
  open(reply.bag);
  if (!state.decisions[reply.bag]) { // restore the undone choices, so that only the mistake needs correcting
    chosen = new Set(reply.undone.facets);
    $("note").value = reply.undone.note;
    $("noting").hidden = !reply.undone.note;
    facets();
  }
  $("announcement").textContent = "Undone";
}

/* The end */

function table(caption, head, rows) {
  const made = element("table");
  made.append(element("caption", caption));
  const line = (cells, inHead) => {
    const row = element("tr");
    cells.forEach((cell, place) => {
      const field = element(inHead || place === 0 ? "th" : "td", cell);
      if (inHead || place === 0) field.scope = inHead ? "col" : "row";
      row.append(field);
    });
    return row;
  };
  const top = element("thead");
  top.append(line(head, true));
  const body = element("tbody");
  body.append(...rows.map((row) => line(row, false)));
  made.append(top, body);
  return made;
}

const figure = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));

function finish() {
  const kept = Object.values(state.decisions).filter((decision) => decision.verdict === "keep").length;
  $("result").textContent = `All ${state.bags.length} bags reviewed: ${kept} kept, ${state.bags.length - kept} dropped.`;
  $("table").replaceChildren(table("Reviewers", ["", "kept", "dropped", "open"], state.reviewers.map((one) => [
    one.name, one.keep, one.drop, state.bags.length - one.keep - one.drop,
  ])));
  $("kappa").replaceChildren();
  if (state.agreement.length) {
    $("kappa").append(table("Agreement", ["", "bags in common", "agreed", "Cohen’s κ"], state.agreement.map((pair) => [
      pair.reviewers.join(" and "), pair.bags, pair.agreed === null ? "–" : Math.round(100 * pair.agreed) + " %", figure(pair.kappa),
    ])));
  }
  $("export").textContent = state.export;
  show("finished");
  progress();
}

function key(name) {
  if (name === "?") return $("keys").open ? $("keys").close() : $("keys").showModal();
  if ($("keys").open) return;
  if (shown("finished")) {
    if (name === "ArrowLeft") return open(state.bags.length - 1);
    return { u: undo, n: ask }[name]?.();
  }
  if (!shown("reviewing")) return;
  const facet = state.facets[Number(name) - 1];
  if (facet) {
    if (!chosen.delete(facet)) chosen.add(facet);
    return facets();
  }
  switch (name) {
    case "k": return decide("keep");
    case "d": return decide("drop");
    case "u": return undo();
    case "c":
      captionsShown = !captionsShown;
      if (!captionsShown) for (const caption of document.querySelectorAll("figcaption")) caption.replaceChildren();
      arrange();
      return captionsShown ? captions() : undefined;
    case "z": large = !large; return arrange();
    case "m": $("noting").hidden = false; arrange(); return $("note").focus();
    case "n": return ask();
    case "ArrowLeft": return at > 0 ? open(at - 1) : undefined;
    case "ArrowRight":
      if (at + 1 < state.bags.length) return open(at + 1);
      return state.bags.every((_, number) => number in state.decisions) ? finish() : undefined;
  }
}

document.addEventListener("keydown", (event) => {
  if (event.target instanceof HTMLInputElement) {
    if (event.target.id === "note" && (event.key === "Enter" || event.key === "Escape")) {
      event.preventDefault();
      event.target.blur();
    }
    return;
  }
  if (event.key === "z" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    onBag(() => key("u"));
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (name.startsWith("Arrow") || /^[a-z0-9]$/.test(name)) event.preventDefault(); // otherwise M would type an m into the note
  onBag(() => key(name));
});

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-key]");
  if (button) onBag(() => key(button.dataset.key));
});

$("who").addEventListener("click", () => onBag(ask));
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  onBag(() => begin($("name").value));
});
addEventListener("resize", () => state && arrange());

onBag(async () => {
  await load();
  const name = state.reviewer ?? localStorage.getItem(NAME);
  await (name ? begin(name) : ask());
});
