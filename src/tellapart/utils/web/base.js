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
