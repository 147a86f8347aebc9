"use strict";
const $ = (id) => document.getElementById(id);
const content = JSON.parse($("content").textContent);
const { rows, doubtful, pictures, characters } = content;
const before = new Map(rows.map((row) => [row.id, row.caption]));
const place = `tellapart ${content.file} ${rows.length} ${doubtful.map((one) => one.id + one.caption).join()}`;
let texts = {}, saved = true, at = 0; // texts that were accepted, by id

// What is accepted in any window of this page: read before each change, so that none takes back another's.
function reload() {
  try { texts = JSON.parse(localStorage.getItem(place)) || texts; } catch { /* a browser that keeps nothing */ }
}
reload();

const own = () => doubtful[at].id;
const clean = (text) => text.split(/\s+/).filter(Boolean).join(" ");

function measure() {
  const length = clean($("text").value).length;
  $("length").textContent = `${length} of ${characters} characters`;
  $("length").classList.toggle("over", length > characters);
}

function show(place) {
  at = Math.max(0, Math.min(place, doubtful.length - 1));
  const one = doubtful[at], done = one.id in texts;
  $("picture").src = pictures[one.id];
  $("picture").alt = pictures[one.id] ? "" : "This picture cannot be read";
  $("id").textContent = one.id;
  $("text").value = done ? texts[one.id] : before.get(one.id);
  $("accepted").hidden = !done;
  $("accepted").textContent = texts[one.id] === "" ? "Accepted: decorative, no text" : "Accepted";
  $("doubts").replaceChildren(...one.doubts.map(({ kind, detail }) => {
    const line = document.createElement("li"), name = document.createElement("b");
    name.textContent = kind;
    line.append(name, detail ? ` ${detail}` : "");
    return line;
  }));
  $("written").textContent = one.written && one.written !== one.caption ? `Written: ${one.written}` : "";
  measure();
  $("text").focus();
  $("text").setSelectionRange($("text").value.length, $("text").value.length);
  count();
}

function count() {
  const bold = document.createElement("b");
  bold.textContent = `${Object.keys(texts).length} of ${doubtful.length}`;
  $("count").replaceChildren(bold, ` accepted · picture ${at + 1}`);
}

function change(id, text) {
  reload();
  if (text === undefined) delete texts[id];
  else texts[id] = text;
  saved = false;
  try { localStorage.setItem(place, JSON.stringify(texts)); } catch { /* stays in this window */ }
}

function accept() {
  change(own(), clean($("text").value)); // an empty text: the picture needs none
  const open = doubtful.findIndex((one, place) => place > at && !(one.id in texts));
  show(open < 0 ? at + 1 : open);
}

function reset() {
  change(own());
  show(at);
}

function save() {
  reload();
  const lines = rows.map((row) => (row.id in texts ? { ...row, caption: texts[row.id], accepted: true } : row));
  const text = lines.filter((row) => row.caption || row.accepted).map((row) => JSON.stringify(row) + "\n").join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  link.download = content.file;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  saved = true;
}

const keys = { Enter: accept, Escape: reset, PageUp: () => show(at - 1), PageDown: () => show(at + 1) };
$("save").addEventListener("click", save);
addEventListener("storage", (event) => {
  if (event.key !== place) return;
  reload();
  if (doubtful.length) count();
});
addEventListener("beforeunload", (event) => { if (!saved) event.preventDefault(); });
addEventListener("keydown", (event) => {
  if (event.isComposing || event.altKey || event.shiftKey) return;
  const control = event.ctrlKey || event.metaKey;
  const work = control && event.key === "s" ? save : !control && doubtful.length && keys[event.key];
  if (!work || (event.key === "Enter" && event.target.tagName === "BUTTON")) return;
  event.preventDefault();
  work();
});
if (doubtful.length) {
  $("text").addEventListener("input", measure);
  for (const [id, key] of [["accept", "Enter"], ["reset", "Escape"], ["previous", "PageUp"], ["next", "PageDown"]]) {
    $(id).addEventListener("click", keys[key]);
  }
  const open = doubtful.findIndex((one) => !(one.id in texts));
  show(open < 0 ? 0 : open);
} else {
  $("save").hidden = true;
}
