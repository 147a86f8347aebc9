// Code shared by the served pages. Inserts texts as text only, never as HTML.
"use strict";

const $ = (id) => document.getElementById(id);
let busy = false; // whether a step is running; no other step starts before it ends

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

// Shows an error at the top of the page; "" hides it.
function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}

// Runs a step; errors are shown at the top and passed to `failed`.
async function step(work, failed = () => {}) {
  if (busy) return;
  busy = true;
  document.body.classList.add("busy");
  try {
    await work();
  } catch (error) {
    trouble(error.message);
    failed(error);
  } finally {
    busy = false;
    document.body.classList.remove("busy");
  }
}

/* Requests of the review pages, whose `state` has the server's token */

class Offline extends Error {}

const askServer = (...request) => fetch(...request).catch(() => {
  throw new Offline("The review server is not running, so nothing was saved. Start it again" + TRY_AGAIN);
});

// Returns the reply to a writing request. Throws an error with the status of a refusal.
async function post(path, body, again = true) {
  const answer = await askServer(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Review-Token": state.token },
    body: JSON.stringify(body),
  });
  if (answer.status === 403 && again) { // the review was restarted and has a new token
    state.token = (await (await askServer("/api/state")).json()).token;
    return post(path, body, false);
  }
  const reply = await answer.json();
  if (!answer.ok) throw Object.assign(new Error((answer.status === 409 ? "" : "Not saved: ") + reply.error), { status: answer.status });
  trouble("");
  return reply;
}
