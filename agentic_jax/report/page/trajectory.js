// A trajectory: its turns, calls and tokens; beside it, if asked for, another of its group.
"use strict";

(() => {
  const { el, number, signed } = report;
  let lastColor = "entropy"; // Kept from one trajectory to the next.

  report.views.trajectory = async (place, { runs }) => {
    const run = report.findRun(runs, place.run);
    const step = `${run.key}/steps/${place.step}`;
    const [index, group] = await Promise.all([
      report.load(step),
      report.load(`${run.key}/groups/${place.step}/${place.group}`),
    ]);
    const find = (sample) => group.samples.find((d) => d.sample === sample);
    const detail = find(place.sample);
    if (!detail) throw new Error(`step ${place.step} has no trajectory ${place.group}.${place.sample}`);
    const besides = place.options.get("with");
    const other = besides ? find(Number(besides)) : null;
    const asked = place.options.get("color");
    const state = { color: asked in report.COLORINGS ? asked : lastColor };
    const shown = other && other !== detail ? [detail, other] : [detail];
    const columns = shown.map((d, side) => makeColumn(d, side));
    const legend = el("span", { class: "legend-holder" });
    const paint = () => {
      const scale = report.makeScale(state.color, group.samples);
      legend.replaceChildren(report.legend(scale));
      columns.forEach((column) => column.paint(scale));
    };
    const recolor = (name) => {
      state.color = lastColor = name;
      select.value = name;
      report.remember({ color: name });
      paint();
    };
    const select = colorMenu(state.color, recolor);
    const view = el("div", { class: "trajectory" },
      heading(place, index, group, detail, other),
      el("div", { class: "controls sticky" }, el("label", {}, "Colour ", select), legend),
      el("div", { class: shown.length > 1 ? "columns two" : "columns" }, columns.map((column) => column.root)),
    );
    const ready = () => {
      paint();
      if (state.color !== (asked ?? "entropy")) report.remember({ color: state.color });
      const token = place.options.get("token");
      if (token !== null) columns[0].pick(Number(token), { scroll: true });
    };
    const keys = makeKeys({ place, index, group, run, state, columns, recolor });
    return { view, title: `${place.step} · ${place.group}.${place.sample}, ${run.name}`, keys, ready, redraw: paint };
  };

  function colorMenu(chosen, recolor) {
    const option = ([name, { label, about }]) => el("option", { value: name, title: about, selected: name === chosen }, label);
    return el("select", { class: "color", on: { change: (event) => recolor(event.target.value) } },
      Object.entries(report.COLORINGS).map(option));
  }

  function makeKeys({ place, index, group, run, state, columns, recolor }) {
    const here = { run: place.run, step: place.step };
    const options = () => ({ color: state.color, with: place.options.get("with") ?? "" });
    const order = report.orderOf(place, index);
    const at = order.findIndex((s) => s.group === place.group && s.sample === place.sample);
    const go = (by) => {
      const next = order[at + by];
      if (next) report.go({ ...here, group: next.group, sample: next.sample }, { color: state.color });
    };
    const compare = () => {
      const others = group.samples.map((d) => d.sample).filter((s) => s !== place.sample);
      const now = others.indexOf(Number(place.options.get("with") ?? NaN));
      report.go({ ...here, group: place.group, sample: place.sample }, { ...options(), with: others[now + 1] ?? "" });
    };
    const names = Object.keys(report.COLORINGS);
    return {
      j: () => go(1), k: () => go(-1), c: compare,
      e: () => recolor(names[(names.indexOf(state.color) + 1) % names.length]),
      ArrowRight: () => columns[0].movePick(1), ArrowLeft: () => columns[0].movePick(-1),
      "]": () => report.alongSteps(run, place.step, 1), "[": () => report.alongSteps(run, place.step, -1),
      u: () => report.go(here),
    };
  }

  function heading(place, index, group, detail, other) {
    const lines = index.samples.filter((s) => s.group === place.group);
    const siblings = lines.map((s) => report.chip(place, s, s.sample === place.sample ? "here" : ""));
    const against = (event) =>
      report.go({ run: place.run, step: place.step, group: place.group, sample: place.sample },
        { color: report.place().options.get("color") ?? "", with: event.target.value });
    const menu = el("select", { class: "with", on: { change: against } },
      el("option", { value: "" }, "nothing"),
      lines.filter((s) => s.sample !== place.sample).map((s) =>
        el("option", { value: s.sample, selected: other?.sample === s.sample },
          `${s.group}.${s.sample} ${report.glyph(s).sign} reward ${number(s.reward)}`)));
    const question = detail.task.messages.at(-1).content;
    return el("div", { class: "heading" },
      el("h1", {}, `${place.group}.${place.sample}`),
      el("span", { class: "chips", title: "The samples of this group" }, siblings),
      el("label", {}, "beside ", menu),
      el("p", { class: "question" }, report.visible(question.length > 400 ? `${question.slice(0, 400)}…` : question),
        el("b", {}, " → ", report.visible(String(detail.task.answer)))));
  }

  // One trajectory as a column: {root, paint, pick, movePick}.
  function makeColumn(detail, side) {
    const strip = el("canvas", { class: "strip" });
    const facts = el("aside", { class: "facts-of-token" },
      el("span", { class: "quiet" }, "Hover over a token for its numbers; click it, or ← →, to keep them here."));
    const blank = report.makeScale("none", []);
    const body = el("div", { class: "turns" }, promptBlock(detail, blank), turnBlocks(detail, blank), faultBlock(detail));
    const root = el("article", { class: "column" }, summary(detail), strip, facts, body);
    const column = { root, chosen: null, scale: blank, tokenAt: () => null };
    column.paint = (scale) => {
      column.scale = scale;
      report.recolor(body, detail, scale);
      column.tokenAt = report.drawStrip(strip, detail, scale, column.chosen);
    };
    column.pick = (i, { scroll = false } = {}) => {
      if (!(i >= 0 && i < detail.texts.length)) return;
      body.querySelector(".chosen")?.classList.remove("chosen");
      column.chosen = i;
      const span = body.querySelector(`.t[data-i="${i}"]`);
      span.closest("details")?.setAttribute("open", "");
      span.classList.add("chosen");
      if (scroll) span.scrollIntoView({ block: "center" });
      facts.replaceChildren(...report.tokenFacts(detail, i));
      column.tokenAt = report.drawStrip(strip, detail, column.scale, i);
      if (side === 0) report.remember({ token: i });
    };
    column.movePick = (by) => column.pick(column.chosen === null ? detail.mask.indexOf(1) : column.chosen + by, { scroll: true });
    report.watchTokens(body, detail, column.pick);
    strip.addEventListener("click", (event) => column.pick(column.tokenAt(event.offsetX), { scroll: true }));
    strip.addEventListener("pointermove", (event) => {
      const i = column.tokenAt(event.offsetX);
      if (i !== null) report.showTip(event, ...report.tokenFacts(detail, i));
    });
    strip.addEventListener("pointerleave", report.hideTip);
    return column;
  }

  function summary(detail) {
    const { sign, kind, word } = report.glyph(detail);
    const sampled = detail.mask.filter(Boolean).length;
    const facts = [
      ["reward", number(detail.reward)], ["score", number(detail.score)],
      ["stop", detail.stop.replace("_", " ")], ["turns", number(detail.turns.length)],
      ["sampled", `${number(sampled)} of ${number(detail.texts.length)} tokens`],
    ];
    return el("div", { class: "summary" }, el("span", { class: `verdict ${kind}` }, `${sign} ${word}`),
      facts.map(([name, value]) => el("span", {}, el("span", { class: "quiet" }, `${name} `), value)));
  }

  function promptBlock(detail, scale) {
    const end = detail.turns[0]?.start ?? detail.texts.length;
    if (!end) return null;
    return el("details", { class: "block prompt", open: end <= 400 },
      el("summary", {}, "prompt", el("span", { class: "quiet" }, ` ${number(end)} tokens`)),
      el("div", { class: "text" }, report.tokenSpans(detail, 0, end, scale)));
  }

  function turnBlocks(detail, scale) {
    return detail.turns.map((turn, k) => {
      const sampled = detail.entropy.slice(turn.start, turn.results);
      const entropy = sampled.length ? ` · mean entropy ${number(report.mean(sampled))}` : "";
      const head = el("h3", {}, `turn ${k + 1}`, el("span", { class: "quiet" },
        ` ${number(turn.results - turn.start)} tokens · weights of version ${turn.weight_version}${entropy}`));
      const results = turn.end > turn.results
        ? el("details", { class: "appended" },
            el("summary", {}, `${number(turn.end - turn.results)} tokens that were appended, not trained`),
            el("div", { class: "text" }, report.tokenSpans(detail, turn.results, turn.end, scale)))
        : null;
      return el("section", { class: "block turn" }, head,
        el("div", { class: "text" }, report.tokenSpans(detail, turn.start, turn.results, scale)),
        turn.calls.map((record, i) => callBlock(record, i, turn)), results);
    });
  }

  function callBlock({ call, result, seconds }, i, turn) {
    const change = turn.entropy_change;
    return el("div", { class: "call" },
      el("div", { class: "call-head" },
        el("b", {}, report.visible(call.name || "unnamed call")), report.statusBadge(result.status),
        el("span", { class: "quiet" }, `${number(Number(seconds.toPrecision(3)))} s`),
        i === turn.calls.length - 1 && change !== null
          ? el("span", { class: `change ${change < 0 ? "down" : "up"}`,
              title: "Mean entropy of the next turn's sampled tokens less that of this turn's, nats" }, `ΔH ${signed(change)}`)
          : null),
      call.problem ? el("p", { class: "problem" }, report.visible(call.problem)) : null,
      argumentBlocks(call), el("pre", { class: "output", title: "What the tool answered" }, report.visible(result.text)));
  }

  function argumentBlocks(call) {
    return Object.entries(call.arguments ?? {}).map(([name, value]) => {
      const text = typeof value === "string" ? value : JSON.stringify(value, null, 1);
      const shown = name === "code" ? report.python(text) : report.visible(text);
      return [
        name === "code" ? null : el("div", { class: "quiet" }, report.visible(name)),
        el("pre", { class: name === "code" ? "code" : "argument" }, shown),
      ];
    });
  }

  const faultBlock = (detail) =>
    detail.fault ? el("div", { class: "block fault" }, el("h3", {}, "fault"), el("pre", {}, report.visible(detail.fault))) : null;
})();
