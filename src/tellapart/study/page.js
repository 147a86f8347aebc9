// The participant's page. Only the server tracks the progress of a participation; the page shows its current state.
"use strict";

const WAITS = [500, 1000, 2000, 4000, 8000]; // milliseconds between tries
const query = new URLSearchParams(location.search);
let about = null; // what the study says of itself
let identifier = "";
let token = null;
let state = null;
let large = false;
let pending = null; // the state that follows the feedback

const paragraphs = (texts) => texts.map((text) => element("p", text));
const pause = (time) => new Promise((done) => setTimeout(done, time));
const place = () => `study:${about.study}:${identifier}`;

const address = () => `${location.pathname}${location.search}#${token}`; // opens this participation in any browser

function remember(value) { // a browser may refuse to store anything: the page's address then knows who it is
  token = value;
  try { localStorage.setItem(place(), value); } catch { history.replaceState(null, "", address()); }
}

// A random name of this page, by which the server recognizes a repeated begin request whose answer was lost.
const newToken = () => Array.from(crypto.getRandomValues(new Uint8Array(24)), (byte) => byte.toString(16).padStart(2, "0")).join("");

function recall() {
  try { return localStorage.getItem(place()); } catch { return null; }
}

// Repeats the request until there is an answer; the server ignores duplicates.
async function ask(path, body) {
  for (let tries = 0; ; tries++) {
    try {
      const headers = { "Content-Type": "application/json", ...(token ? { "X-Participant": token } : {}) };
      const answer = await fetch(path, body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) });
      if (answer.status < 500) {
        const found = await answer.json();
        trouble("");
        return [answer.status, found];
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
    }
    trouble("The connection to the study was lost. Your earlier answers are saved; this one will be sent again automatically.");
    await pause(WAITS[Math.min(tries, WAITS.length - 1)]);
  }
}

function show(part) {
  for (const main of document.querySelectorAll("main")) main.hidden = main.id !== part;
  const running = ["item", "review", "instructions", "ready"].includes(part);
  $("leave").hidden = !running;
  $("help").hidden = part !== "item" && part !== "review";
  $("meter").hidden = $("count").hidden = part !== "item" && part !== "review";
  scrollTo(0, 0);
  $(part).querySelector("h1").focus({ preventScroll: true });
}

/* One task: the same markup for the items and for the example */

function picture(url, text) {
  const image = new Image();
  image.alt = text;
  image.decoding = "async";
  image.onload = () => image.classList.toggle("crisp", Math.max(image.naturalWidth, image.naturalHeight) <= 128);
  image.onerror = () => { // once more: a server that was started anew learns the address from the state
    image.onerror = null;
    ask("/api/state").then(() => { image.src = url + "?again"; });
  };
  image.src = url;
  return image;
}

function radio(question, option, label) {
  const input = document.createElement("input");
  input.type = "radio";
  input.name = question.name;
  input.value = option;
  input.setAttribute("aria-label", label);
  return input;
}

function build(task, name) {
  if (about.kind === "pick") return [buildPick(task, name)];
  const single = element("div", undefined, "single");
  const figure = element("figure", undefined, "picture");
  figure.append(picture(task.pictures[0], "The picture"));
  const side = element("div");
  if (about.kind === "compare") {
    const pair = element("div", undefined, "pair");
    task.captions.forEach((caption, number) => {
      const line = element("p");
      line.append(element("b", "AB"[number]), element("span", caption));
      pair.append(line);
    });
    side.append(pair);
  } else {
    side.append(element("p", task.captions[0], "caption"));
  }
  for (const question of about.questions) side.append(buildScale(question, name));
  single.append(figure, side);
  return [single];
}

function buildPick(task, name) {
  const whole = element("div", undefined, "pick");
  const set = document.createElement("fieldset");
  const choices = element("div", undefined, "choices");
  task.pictures.forEach((url, number) => {
    const label = element("label", undefined, "choice");
    const frame = element("span", undefined, "frame");
    frame.append(picture(url, ""));
    const key = element("span", String(number + 1), "number");
    key.setAttribute("aria-hidden", "true");
    label.append(radio({ name: name + about.questions[0].name }, number, `Picture ${number + 1}`), frame, key);
    choices.append(label);
  });
  set.append(element("legend", about.questions[0].text), choices);
  whole.append(element("p", task.captions[0], "caption"), set);
  return whole;
}

function buildScale(question, name) {
  const set = element("fieldset", undefined, "question");
  const legend = element("legend", question.text);
  if (question.help) legend.append(element("small", question.help));
  const scale = element("div", undefined, "scale");
  scale.style.setProperty("--options", question.options.length);
  question.options.forEach((option, number) => {
    const label = element("label");
    const rated = about.kind === "rate";
    const input = radio({ name: name + question.name }, number, rated ? `${number + 1}, ${option}` : option);
    if (rated) label.append(input, element("b", String(number + 1)), element("span", option));
    else label.append(input, element("b", option));
    scale.append(label);
  });
  set.append(legend, scale);
  return set;
}

const groups = (root = $("task")) => [...root.querySelectorAll("fieldset")];
const chosen = (group) => [...group.querySelectorAll("input")].findIndex((input) => input.checked);

function mark(root, marks) {
  groups(root).forEach((group, number) => {
    for (const option of marks[number]) group.querySelectorAll("label")[option].classList.add("mark");
  });
}

/* The states */

function open(next) {
  state = next;
  pending = null;
  if (state.phase === "practice" || state.phase === "items") return openItem();
  if (state.phase === "review") {
    progress(state.total, "All items are answered");
    return show("review");
  }
  end();
}

function progress(done, text) {
  $("count").textContent = text;
  $("meter").setAttribute("aria-valuemax", state.total);
  $("meter").setAttribute("aria-valuenow", done);
  $("meter").firstElementChild.style.width = `${(100 * done) / Math.max(state.total, 1)}%`;
}

function openItem() {
  const practice = state.phase === "practice";
  const number = practice ? state.position : state.position - state.practice;
  const text = practice ? `Practice ${number + 1} of ${state.practice}` : `${number + 1} of ${state.total}`;
  progress(practice ? 0 : number, text);
  $("item-title").textContent = practice ? text : `Item ${text}`;
  $("task").replaceChildren(...build(state.task, ""));
  if (state.answer) groups().forEach((group, at) => { group.querySelectorAll("input")[state.answer[at]].checked = true; });
  $("feedback").hidden = true;
  $("back").hidden = practice;
  $("back").disabled = !state.can_go_back;
  const many = Math.max(...groups().map((group) => group.querySelectorAll("input").length));
  $("keys").textContent = `Keys 1–${many === 10 ? "9, 0" : many} choose`;
  sizes();
  ready();
  show("item");
  for (const url of state.prefetch) new Image().src = url;
}

function sizes() {
  for (const part of document.querySelectorAll("#task .choices, #task .single")) part.classList.toggle("large", large);
  $("larger").setAttribute("aria-pressed", large);
}

function ready() {
  $("next").disabled = !pending && groups().some((group) => chosen(group) < 0);
}

async function send() {
  if (state.phase !== "practice" && state.phase !== "items") return;
  if (pending) return afterFeedback();
  if (groups().some((group) => chosen(group) < 0)) return;
  const body = { position: state.position, options: groups().map(chosen), revision: state.revision };
  const [status, found] = await ask("/api/answer", body);
  if (status === 409) {
    open(found.state);
    trouble(`This page was out of date: ${found.error}. It now shows the current state.`);
    return;
  }
  if (status !== 200) return refused(status, found);
  if (!found.feedback) return open(found);
  pending = found;
  mark($("task"), found.feedback.marks);
  for (const input of $("task").querySelectorAll("input")) input.disabled = true;
  $("feedback").replaceChildren(element("b", found.feedback.right ? "Right." : "Not quite."), element("span", found.feedback.text));
  $("feedback").className = `verdict ${found.feedback.right ? "right" : "wrong"}`;
  $("feedback").hidden = false;
  ready();
  $("next").focus();
}

async function afterFeedback() {
  if (pending.phase === "practice") return open(pending);
  state = pending;
  pending = null;
  $("ready-text").textContent = `The study begins now: ${state.total} items, without feedback. You can go back one item and pause at any time; this page continues where you stopped.`;
  show("ready");
}

function refused(status, found) {
  if (status === 401) { // the store is another, or the answers were deleted
    try { localStorage.removeItem(place()); } catch { /* nothing was stored */ }
    token = null;
    show("consent");
  }
  trouble(found.error);
}

const ENDS = {
  complete: ["Thank you", "Your answers are complete and saved."],
  no_consent: ["Thank you for your time", "You declined to take part, and nothing about you was stored. You can close this page."],
  withdrawn: ["You have withdrawn", "Your answers were deleted. You can close this page."],
  full: ["The study is full", "The study already has enough participants. Thank you for your interest."],
  expired: ["Time has run out", "This page was inactive for too long, and another participant took your place. Your answers are saved."],
};

function end() {
  const [title, text] = ENDS[state.phase];
  $("end-title").textContent = title;
  $("end-text").textContent = text;
  $("end-code").hidden = !state.code;
  $("code").textContent = state.code;
  $("return").hidden = !state.return_url;
  if (state.return_url) $("return").href = state.return_url;
  show("end");
}

function instructions() {
  const count = about.practice;
  $("practice-next").textContent = `Next: ${count} practice item${count === 1 ? "" : "s"}, with feedback, then ${about.items} items.`;
  show("instructions");
}

/* Beginning */

function introduce() {
  document.title = about.title;
  $("title").textContent = about.title;
  $("consent-text").replaceChildren(...paragraphs(about.consent.paragraphs));
  const who = [["Researcher", "researcher"], ["Institution", "institution"], ["Contact", "contact"], ["Ethics approval", "ethics"]];
  $("consent-who").replaceChildren(...who.flatMap(([label, name]) => [element("dt", label), element("dd", about.consent[name])]));
  for (const part of document.querySelectorAll(".instructions")) part.replaceChildren(...paragraphs(about.instructions));
  const keys = [["1–9, 0", "choose"], ["Tab", "next question"], ["← →", "other option"], ["Enter", "next item"], ["B", "previous item"], ["Z", "larger pictures"]];
  $("help-keys").replaceChildren(...keys.map(([name, what]) => {
    const line = element("div");
    line.append(element("dt", name), element("dd", what));
    return line;
  }));
  if (about.example) {
    $("example-task").replaceChildren(...build(about.example, "example-"));
    mark($("example-task"), about.example.marks);
    for (const input of $("example-task").querySelectorAll("input")) input.disabled = true;
    $("example-text").textContent = about.example.text;
  }
  $("example").hidden = !about.example;
}

async function begin() {
  if (!token) remember(newToken());
  const body = { consent: $("agree").checked, identifier, key: query.get("key") ?? "" };
  const [status, found] = await ask("/api/begin", body);
  if (status !== 200) return refused(status, found);
  if (found.phase === "practice" && found.position === 0) {
    state = found;
    return instructions();
  }
  open(found);
}

$("agree").addEventListener("change", () => { $("begin").disabled = !$("agree").checked; });
$("begin").addEventListener("click", () => step(begin));
$("decline").addEventListener("click", () => step(async () => open((await ask("/api/decline", { key: query.get("key") ?? "" }))[1])));
$("practise").addEventListener("click", () => step(async () => open((await ask("/api/state"))[1])));
$("start").addEventListener("click", () => step(async () => open((await ask("/api/state"))[1])));
$("task").addEventListener("change", ready);
$("task").addEventListener("submit", (event) => { event.preventDefault(); step(send); });
$("finish").addEventListener("click", () => step(async () => open((await ask("/api/finish", {}))[1])));
for (const id of ["back", "back-last"]) $(id).addEventListener("click", () => step(back));
$("larger").addEventListener("click", () => { large = !large; sizes(); });
$("help").addEventListener("click", () => $("help-dialog").showModal());
$("leave").addEventListener("click", () => {
  $("address").value = location.origin + address();
  $("leave-dialog").showModal();
});
$("withdraw").addEventListener("click", () => step(async () => {
  const [status, found] = await ask("/api/withdraw", {});
  $("leave-dialog").close();
  if (status !== 200) return refused(status, found);
  open(found);
}));
for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());

async function back() {
  if (state.phase !== "review" && !state.can_go_back) return;
  const [status, found] = await ask("/api/back", {});
  open(status === 409 ? found.state : found);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || document.querySelector("dialog[open]")) return;
  const name = event.key.toLowerCase();
  if (!$("review").hidden && name === "b") return void step(back);
  if ($("item").hidden) return;
  if (name === "enter" && !["BUTTON", "A"].includes(event.target.tagName)) {
    event.preventDefault();
    return void step(send);
  }
  if (pending) return;
  if (/^[0-9]$/.test(name)) {
    // The focused group, otherwise the first one without an answer, otherwise the last.
    const all = groups();
    const group = all.find((one) => one.contains(document.activeElement)) ?? all.find((one) => chosen(one) < 0) ?? all.at(-1);
    const option = name === "0" ? 9 : Number(name) - 1;
    const input = group.querySelectorAll("input")[option];
    if (!input) return;
    event.preventDefault();
    input.checked = true;
    $("announcement").textContent = `${group.querySelector("legend").firstChild.textContent}: ${input.getAttribute("aria-label")}`;
    const after = all[all.indexOf(group) + 1];
    if (after) after.querySelector("input:checked, input").focus({ preventScroll: true });
    else input.focus({ preventScroll: true });
    return ready();
  }
  if (name === "b") step(back);
  if (name === "z") { large = !large; sizes(); }
});

step(async () => {
  [, about] = await ask("/api/study");
  identifier = query.get(about.id_parameter) ?? "";
  introduce();
  for (const known of [recall(), location.hash.slice(1)]) { // the second is of the address that another page gave
    if (!known) continue;
    token = known;
    const [status, found] = await ask("/api/state");
    if (status !== 200) continue;
    remember(known);
    if (found.phase !== "practice" || found.position !== 0) return open(found);
    state = found;
    return instructions();
  }
  token = null;
  show("consent");
});
