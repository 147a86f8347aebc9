// The page is whole without this; it unfolds the run that a link leads to, and narrows a gallery down to one outcome.
addEventListener("hashchange", () => document.getElementById(location.hash.slice(1))?.closest("details")?.setAttribute("open", ""));
for (const filter of document.querySelectorAll(".filter")) {
  const sets = filter.closest(".gallery").querySelectorAll(".set");
  const shown = filter.querySelector("output");
  filter.hidden = false;
  filter.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    let count = 0;
    for (const set of sets) {
      set.hidden = button.value !== "all" && set.dataset.outcome !== button.value;
      count += !set.hidden;
    }
    for (const other of filter.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
    shown.textContent = `${count} of ${sets.length} sets`;
  });
}
