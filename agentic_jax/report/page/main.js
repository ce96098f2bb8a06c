// Draws the view that the address names, and follows a running run where it is served.
"use strict";

(() => {
  const { el } = report;
  const SECONDS_BETWEEN_LOOKS = 5;
  const holder = document.getElementById("view");
  let data = null; // What data/runs.js holds.
  let shown = {}; // What the view's function returned.
  let drawing = 0; // Counts drawings, so that a slow one does not replace a newer one.

  report.findRun = (runs, key) => {
    const run = runs.find((r) => r.key === key);
    if (!run) throw new Error(`this report has no run ${key}`);
    return run;
  };

  async function draw() {
    const mine = ++drawing;
    report.hideTip();
    const place = report.place();
    holder.setAttribute("aria-busy", "true");
    let next;
    try {
      next = await report.views[place.view](place, data);
    } catch (error) {
      next = { view: el("p", { class: "error" }, report.visible(error.message)), title: "error", keys: { u: () => report.go({}) } };
    }
    if (mine !== drawing) return;
    shown.leave?.();
    shown = next;
    holder.replaceChildren(shown.view);
    holder.removeAttribute("aria-busy");
    window.scrollTo(0, 0);
    document.title = `${shown.title} · run report`;
    drawTrail(place);
    await shown.ready?.();
  }

  function drawTrail(place) {
    const parts = [el("a", { href: "#/" }, "Curves")];
    const run = data.runs.find((r) => r.key === place.run);
    if (run) {
      const here = { run: place.run, step: place.step };
      if (data.runs.length > 1) parts.push(el("span", {}, run.name));
      parts.push(el("a", { href: report.link(here) }, `step ${place.step}`));
      if (place.sample !== undefined) parts.push(el("span", {}, `${place.group}.${place.sample}`));
    }
    if (place.view === "search") parts.push(el("span", {}, "search"));
    const trail = document.getElementById("trail");
    trail.replaceChildren(...parts.flatMap((part, i) => (i ? [el("span", { class: "sep" }, "›"), part] : [part])));
    trail.lastChild.setAttribute("aria-current", "page");
    document.querySelector("#find input").value = place.view === "search" ? (place.options.get("q") ?? "") : "";
  }

  function startSearch(event) {
    event.preventDefault();
    const q = new FormData(event.target).get("q");
    const place = report.place();
    report.go({ view: "search" }, { q, run: place.run ?? place.options.get("run") ?? "", step: place.step ?? "" });
  }

  const length = (runs) => runs.map((run) => `${run.x.length}/${run.steps.length}`).join();

  async function follow() {
    try {
      const fresh = await report.load("runs", { fresh: true });
      const grew = length(fresh.runs) !== length(data.runs);
      data = fresh;
      const busy = document.activeElement?.closest?.("#view input");
      if (grew && report.place().view === "curves" && !busy) {
        const { scrollY } = window;
        await draw();
        window.scrollTo(0, scrollY);
      }
    } catch (error) {
      console.warn(error.message); // The server is gone; what is here stays readable.
    }
    setTimeout(follow, SECONDS_BETWEEN_LOOKS * 1000);
  }

  async function start() {
    try {
      data = await report.load("runs");
    } catch (error) {
      holder.replaceChildren(el("p", { class: "error" }, error.message));
      return;
    }
    report.onMove(draw);
    report.listen(() => shown.keys ?? {});
    document.getElementById("find").addEventListener("submit", startSearch);
    document.getElementById("help").addEventListener("click", report.showHelp);
    window.addEventListener("resize", () => shown.redraw?.());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    await draw();
    if (data.live) setTimeout(follow, SECONDS_BETWEEN_LOOKS * 1000);
  }

  start();
})();
