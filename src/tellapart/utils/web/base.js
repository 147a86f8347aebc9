// What served pages share. Texts go into a page as text only.
"use strict";

const $ = (id) => document.getElementById(id);
let busy = false; // a step is under way: nothing else begins before it ends

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

// The line at the top for what went wrong; "" takes it away.
function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}

// Run a step; what goes wrong is shown at the top, and handed to `failed`.
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
