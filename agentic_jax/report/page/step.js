// A step: its groups or its trajectories as a table that sorts and filters.
"use strict";

(() => {
  const { el, number, mean } = report;

  report.glyph = (sample) => {
    if (sample.stop === "fault") return { sign: "!", kind: "fault", word: "fault" };
    if (sample.score === 1) return { sign: "✓", kind: "right", word: "right" };
    if (sample.score > 0) return { sign: "◐", kind: "partly", word: "partly right" };
    return { sign: "✗", kind: "wrong", word: "wrong" };
  };

  const STATUS_SIGNS = { ok: "✓", error: "✗", timeout: "◷", memory: "▤", output: "≫", bad_call: "?", busy: "…" };

  report.statusBadge = (status) =>
    el("span", { class: `status ${status === "ok" ? "ok" : "bad"}`, title: status },
      `${STATUS_SIGNS[status] ?? "•"} ${status.replace("_", " ")}`);

  // The trajectories of a step in the order of the last table, for going through them.
  report.orderOf = (place, index) => {
    const here = `${place.run}/${place.step}`;
    return report.order?.of === here ? report.order.samples : index.samples;
  };

  const chip = (place, sample, extra = "") => {
    const { sign, kind, word } = report.glyph(sample);
    return el("a", {
      class: `chip ${kind} ${extra}`,
      href: report.link({ run: place.run, step: place.step, group: sample.group, sample: sample.sample }),
      title: `${sample.group}.${sample.sample}: ${word}, reward ${number(sample.reward)}, ${sample.tokens} tokens, stop ${sample.stop}`,
    }, sign);
  };
  report.chip = chip;

  // Column: [head, explanation, sort key of a row, cell of a row].
  const SAMPLE_COLUMNS = [
    ["sample", "Group and sample; opens it", (r) => r.s.group * 1e6 + r.s.sample, (r, p) =>
      el("a", { href: sampleLink(p, r.s) }, `${r.s.group}.${r.s.sample}`)],
    ["score", "Correctness, from 0 to 1", (r) => r.s.score ?? -1, (r, p) => [chip(p, r.s), ` ${number(r.s.score)}`]],
    ["reward", "Shaped reward", (r) => r.s.reward, (r) => number(r.s.reward)],
    ["stop", "Why it ended", (r) => r.s.stop, (r) => r.s.stop.replace("_", " ")],
    ["calls", "Status of each tool call", (r) => r.s.statuses.filter((x) => x !== "ok").length * 1e3 + r.s.statuses.length,
      (r) => r.s.statuses.map(report.statusBadge)],
    ["tokens", "Sampled and tool-result tokens", (r) => r.s.tokens, (r) => number(r.s.tokens)],
    ["turns", "Turns of the policy", (r) => r.s.turns, (r) => number(r.s.turns)],
    ["entropy", "Mean over sampled tokens, nats", (r) => r.s.entropy, (r) => number(r.s.entropy)],
    ["logprob", "Mean of the trainer's over sampled tokens, nats", (r) => r.s.logprob, (r) => number(r.s.logprob)],
    ["mismatch", "Largest gap between trainer and engine log-probabilities, nats", (r) => r.s.mismatch, (r) => number(r.s.mismatch)],
    ["seconds", "Wall-clock time of its tool calls", (r) => r.s.seconds, (r) => number(r.s.seconds)],
    ["staleness", "Weight versions that its oldest turn was behind", (r) => r.s.staleness, (r) => number(r.s.staleness)],
    ["problem", "The question", (r) => r.g.problem, (r) => el("span", { class: "line" }, report.visible(r.g.problem))],
  ];
  const GROUP_COLUMNS = [
    ["group", "Number in its step", (r) => r.g.group, (r, p) =>
      el("a", { href: sampleLink(p, r.all[0]) }, String(r.g.group))],
    ["samples", "Each opens", (r) => r.shown.length, (r, p) =>
      el("span", { class: "chips" }, r.all.map((s) => chip(p, s, r.shown.includes(s) ? "" : "dim")))],
    ["score", "Mean correctness", (r) => mean(r.shown.map((s) => s.score ?? 0)), (r) => number(mean(r.shown.map((s) => s.score ?? 0)))],
    ["reward", "Mean shaped reward", (r) => mean(r.shown.map((s) => s.reward)), (r) => number(mean(r.shown.map((s) => s.reward)))],
    ["spread", "Highest less lowest reward; 0 teaches nothing", (r) => spread(r.shown), (r) => number(spread(r.shown))],
    ["tokens", "Mean of sampled and tool-result tokens", (r) => mean(r.shown.map((s) => s.tokens)), (r) => number(mean(r.shown.map((s) => s.tokens)))],
    ["calls", "Tool calls that were ok, of all", (r) => okCalls(r.shown) - callCount(r.shown), (r) => `${okCalls(r.shown)}/${callCount(r.shown)}`],
    ["entropy", "Mean over samples, nats", (r) => mean(r.shown.map((s) => s.entropy)), (r) => number(mean(r.shown.map((s) => s.entropy)))],
    ["staleness", "Most of any sample", (r) => Math.max(...r.shown.map((s) => s.staleness)), (r) => number(Math.max(...r.shown.map((s) => s.staleness)))],
    ["problem", "The question and its answer", (r) => r.g.problem, (r) =>
      el("span", { class: "line" }, report.visible(r.g.problem), el("b", {}, " → ", report.visible(r.g.answer)))],
  ];

  const sampleLink = (place, s) =>
    report.link({ run: place.run, step: place.step, group: s.group, sample: s.sample });
  const spread = (samples) =>
    Math.max(...samples.map((s) => s.reward)) - Math.min(...samples.map((s) => s.reward));
  const callCount = (samples) => samples.flatMap((s) => s.statuses).length;
  const okCalls = (samples) => samples.flatMap((s) => s.statuses).filter((x) => x === "ok").length;

  report.views.step = async (place, { runs }) => {
    const run = report.findRun(runs, place.run);
    const index = await report.load(`${run.key}/steps/${place.step}`);
    const groups = new Map(index.groups.map((group) => [group.group, group]));
    const state = {
      by: place.options.get("by") ?? "groups",
      sort: place.options.get("sort") ?? "",
      filter: place.options.get("filter") ?? "",
      cursor: 0,
    };
    const holder = el("div", { class: "scroll" });
    const note = el("span", { class: "quiet", role: "status" });
    const lay = () => layTable({ place, index, groups, state, holder, note });
    lay();
    const move = (by) => {
      const rows = holder.querySelectorAll("tbody tr");
      state.cursor = Math.min(Math.max(state.cursor + by, 0), rows.length - 1);
      markCursor(rows, state.cursor, true);
    };
    const open = () => {
      const link = holder.querySelectorAll("tbody tr")[state.cursor]?.querySelector("a");
      if (link) location.hash = link.getAttribute("href");
    };
    const along = (by) => report.alongSteps(run, place.step, by);
    const view = el("div", { class: "step" }, heading(run, place.step, index, along), controls(state, index, lay, note), holder);
    const keys = { j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1),
      Enter: open, "]": () => along(1), "[": () => along(-1), u: () => report.go({}) };
    return { view, title: `step ${place.step}, ${run.name}`, keys };
  };

  report.alongSteps = (run, step, by) => {
    const next = run.steps[run.steps.indexOf(step) + by];
    if (next === undefined) return;
    const { by: table, sort, filter } = Object.fromEntries(report.place().options);
    report.go({ run: run.key, step: next }, { by: table ?? "", sort: sort ?? "", filter: filter ?? "" });
  };

  function heading(run, step, index, along) {
    const { samples } = index;
    const sound = samples.filter((s) => s.stop !== "fault");
    const facts = [
      [samples.length, "trajectories"],
      [index.groups.length, "groups"],
      [mean(sound.map((s) => s.score ?? 0)), "mean score"],
      [mean(sound.map((s) => s.reward)), "mean reward"],
      [callCount(samples) ? okCalls(samples) / callCount(samples) : null, "calls ok"],
      [samples.length - sound.length, "faults"],
    ];
    const button = (sign, by, name) =>
      el("button", { type: "button", title: `${name} step (${by < 0 ? "[" : "]"})`, "aria-label": `${name} step`,
        disabled: run.steps[run.steps.indexOf(step) + by] === undefined, on: { click: () => along(by) } }, sign);
    return el("div", { class: "heading" },
      el("h1", {}, `Step ${step}`), button("‹", -1, "Previous"), button("›", 1, "Next"),
      el("dl", { class: "facts" }, facts.map(([value, name]) => el("div", {}, el("dd", {}, number(value)), el("dt", {}, name)))));
  }

  function controls(state, index, lay, note) {
    const setFilter = (text) => {
      state.filter = text;
      report.remember({ filter: text });
      lay();
    };
    const input = el("input", { type: "search", class: "filter", value: state.filter, spellcheck: "false",
      placeholder: "reward<0.5 tokens>60 status=error or a word of the problem",
      title: `Conditions on ${report.filterFields.join(", ")}`, on: { input: (event) => setFilter(event.target.value) } });
    const values = { stop: [...new Set(index.samples.map((s) => s.stop))].sort(),
      status: [...new Set(index.samples.flatMap((s) => (s.statuses.length ? s.statuses : ["none"])))].sort() };
    const menu = (field) => {
      const choose = (event) => {
        const others = input.value.split(/\s+/).filter((term) => term && !term.startsWith(`${field}=`));
        input.value = [...others, ...(event.target.value ? [`${field}=${event.target.value}`] : [])].join(" ");
        setFilter(input.value);
      };
      const now = (state.filter.match(new RegExp(`(?:^|\\s)${field}=(\\S+)`)) ?? [])[1] ?? "";
      return el("label", {}, `${field} `, el("select", { class: `by-${field}`, on: { change: choose } },
        el("option", { value: "" }, "any"),
        values[field].map((v) => el("option", { value: v, selected: v === now }, v.replace("_", " ")))));
    };
    const tab = (by) => el("button", { type: "button", class: "tab", "aria-pressed": String(state.by === by),
      on: { click: (event) => {
        state.by = by;
        state.sort = "";
        state.cursor = 0;
        event.target.parentElement.querySelectorAll(".tab").forEach((t) => t.setAttribute("aria-pressed", String(t === event.target)));
        report.remember({ by, sort: "" });
        lay();
      } } }, by);
    return el("div", { class: "controls" }, el("span", { class: "tabs" }, tab("groups"), tab("samples")),
      el("label", {}, "Filter ", input), menu("stop"), menu("status"), note);
  }

  function layTable({ place, index, groups, state, holder, note }) {
    const { test, problem } = report.makeFilter(state.filter);
    const shown = index.samples.filter((s) => test(s, groups.get(s.group)));
    note.textContent = problem || (shown.length < index.samples.length ? `${shown.length} of ${index.samples.length} trajectories` : "");
    const bySample = state.by === "samples";
    const columns = bySample ? SAMPLE_COLUMNS : GROUP_COLUMNS;
    let rows = shown.map((s) => ({ s, g: groups.get(s.group) }));
    if (!bySample) {
      const kept = Map.groupBy(shown, (s) => s.group);
      const all = Map.groupBy(index.samples, (s) => s.group);
      rows = index.groups.filter((g) => kept.has(g.group))
        .map((g) => ({ g, shown: kept.get(g.group), all: all.get(g.group) }));
    }
    const column = columns.find(([name]) => name === state.sort.replace("-", ""));
    if (column) {
      const sign = state.sort.startsWith("-") ? -1 : 1;
      const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
      rows.sort((a, b) => sign * order(column[2](a), column[2](b)));
    }
    report.order = { of: `${place.run}/${place.step}`, samples: bySample ? rows.map((r) => r.s) : rows.flatMap((r) => r.shown) };
    const sortBy = (name) => () => {
      state.sort = state.sort === `-${name}` ? name : `-${name}`;
      report.remember({ sort: state.sort });
      layTable({ place, index, groups, state, holder, note });
    };
    const head = columns.map(([name, explanation]) => {
      const direction = state.sort === name ? "ascending" : state.sort === `-${name}` ? "descending" : null;
      return el("th", { class: name, scope: "col", title: explanation, "aria-sort": direction },
        el("button", { type: "button", on: { click: sortBy(name) } }, name));
    });
    const body = rows.map((row) => el("tr", {}, columns.map(([name, , , cell]) => el("td", { class: name }, cell(row, place)))));
    holder.replaceChildren(el("table", { class: "samples-table" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
    state.cursor = Math.min(state.cursor, Math.max(rows.length - 1, 0));
    markCursor(holder.querySelectorAll("tbody tr"), state.cursor, false);
  }

  function markCursor(rows, cursor, scroll) {
    rows.forEach((row, i) => row.classList.toggle("cursor", i === cursor));
    if (scroll) rows[cursor]?.scrollIntoView({ block: "nearest" });
  }
})();
