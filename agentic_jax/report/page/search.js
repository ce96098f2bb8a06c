// Full-text search over one step or all steps of a run, file by file, with its progress.
"use strict";

(() => {
  const { el, number } = report;
  const MOST_SHOWN = 300;
  const AROUND = 60; // Characters shown before and after a hit.

  report.views.search = async (place, { runs }) => {
    const query = place.options.get("q") ?? "";
    const run = report.findRun(runs, place.options.get("run") ?? runs[0].key);
    const only = place.options.get("step");
    const steps = only ? [Number(only)] : run.steps;
    const search = { stopped: false };
    const note = el("p", { class: "quiet", role: "status" });
    const bar = el("progress", { max: steps.length || 1, value: 0 });
    const list = el("ol", { class: "hits" });
    const again = (changes) => report.go({ view: "search" }, { q: query, run: run.key, step: only ?? "", ...changes });
    const pickRun = el("select", { on: { change: (e) => again({ run: e.target.value, step: "" }) } },
      runs.map((r) => el("option", { value: r.key, selected: r === run }, r.name)));
    const pickStep = el("select", { class: "in-step", on: { change: (e) => again({ step: e.target.value }) } },
      el("option", { value: "" }, "all steps"),
      run.steps.map((s) => el("option", { value: s, selected: only === String(s) }, `step ${s}`)));
    const view = el("div", { class: "search" },
      el("div", { class: "heading" }, el("h1", {}, "Search"), el("code", { class: "query" }, report.visible(query))),
      el("div", { class: "controls" }, runs.length > 1 ? el("label", {}, "Run ", pickRun) : null, el("label", {}, "In ", pickStep), bar),
      note, list);
    const ready = () => scan({ query, run, steps, search, note, bar, list });
    const move = (by) => {
      const links = [...list.querySelectorAll("a")];
      const next = links.indexOf(document.activeElement) + by;
      links[Math.min(Math.max(next, 0), links.length - 1)]?.focus();
    };
    const keys = { j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1), u: () => report.go({}) };
    return { view, title: `search ${query}`, keys, ready, leave: () => (search.stopped = true) };
  };

  async function scan({ query, run, steps, search, note, bar, list }) {
    if (!query) {
      note.textContent = "Type what to look for, above; upper and lower case are the same.";
      return;
    }
    const wanted = query.toLowerCase();
    let hits = 0;
    for (const [done, step] of steps.entries()) {
      if (search.stopped) return;
      const [index, texts] = await Promise.all([
        report.load(`${run.key}/steps/${step}`),
        report.load(`${run.key}/texts/${step}`),
      ]);
      texts.forEach((text, i) => {
        const at = text.toLowerCase().indexOf(wanted);
        if (at < 0) return;
        hits += 1;
        if (hits <= MOST_SHOWN) list.append(hit(run, step, index.samples[i], text, at, query.length));
      });
      bar.value = done + 1;
      const cut = hits > MOST_SHOWN ? `, the first ${MOST_SHOWN} shown` : "";
      note.textContent = `${number(hits)} trajectories in ${done + 1} of ${steps.length} steps${cut}`;
    }
    bar.hidden = true;
  }

  function hit(run, step, sample, text, at, length) {
    const link = report.link({ run: run.key, step, group: sample.group, sample: sample.sample });
    const from = Math.max(at - AROUND, 0);
    const part = (start, end) => report.visible(text.slice(start, end).replaceAll("\n", " ⏎ "));
    return el("li", {},
      el("a", { href: link }, `step ${step} · ${sample.group}.${sample.sample} ${report.glyph(sample).sign}`),
      el("code", {}, from ? "…" : "", part(from, at), el("mark", {}, part(at, at + length)), part(at + length, at + length + AROUND)));
  }
})();
