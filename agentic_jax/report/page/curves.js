// The first view: a chart of every metric, of all runs, grouped by area.
"use strict";

(() => {
  const { el } = report;
  const AREAS = ["reward", "eval", "policy", "tool", "rollout", "data"]; // Then others, time.

  report.views.curves = (place, { runs }) => {
    const state = {
      smooth: Number(place.options.get("smooth") ?? 0),
      bands: (place.options.get("bands") ?? (hasSeeds(runs) ? "1" : "0")) === "1",
      metrics: place.options.get("metrics") ?? "",
      hidden: new Set((place.options.get("hidden") ?? "").split(",").filter(Boolean)),
      large: place.options.get("large") ?? "",
      cursor: null,
    };
    const board = el("div", { class: "board" });
    const charts = [];
    const redraw = () => charts.forEach((chart) => chart.visible && chart.draw());
    const lay = () => layCharts(board, charts, runs, state, redraw);
    const view = el(
      "div",
      { class: "curves" },
      controls(runs, state, lay, redraw),
      runList(runs, state, lay),
      board,
      configTable(runs),
    );
    lay();
    return { view, title: runs.map((run) => run.name).join(", "), redraw };
  };

  const hasSeeds = (runs) => new Set(runs.map((run) => run.recipe)).size < runs.length;

  function controls(runs, state, lay, redraw) {
    const shown = el("output", {}, state.smooth.toFixed(2));
    const slide = (event) => {
      state.smooth = Number(event.target.value);
      shown.textContent = state.smooth.toFixed(2);
      redraw();
    };
    const filter = (event) => {
      state.metrics = event.target.value;
      report.remember({ metrics: state.metrics });
      lay();
    };
    const band = (event) => {
      state.bands = event.target.checked;
      report.remember({ bands: state.bands ? "1" : "0" });
      redraw();
    };
    return el(
      "div",
      { class: "controls" },
      el("label", {}, "Metrics ", el("input", {
        type: "search", class: "metrics", placeholder: "all; e.g. entropy tool/",
        value: state.metrics, spellcheck: "false", on: { input: filter },
      })),
      el("label", {}, "Smoothing ", el("input", {
        type: "range", class: "smooth", min: "0", max: "0.99", step: "0.01",
        value: state.smooth,
        on: { input: slide, change: () => report.remember({ smooth: state.smooth || "" }) },
      }), " ", shown),
      hasSeeds(runs)
        ? el("label", { title: "One line per recipe: mean, lowest and highest of its seeds" },
            el("input", { type: "checkbox", class: "bands", checked: state.bands, on: { change: band } }),
            " Seeds as bands")
        : null,
      el("span", { class: "hint" }, "Click a chart to open that step; click its name to enlarge it."),
    );
  }

  function runList(runs, state, lay) {
    const toggle = (run) => (event) => {
      if (event.target.checked) state.hidden.delete(run.key);
      else state.hidden.add(run.key);
      report.remember({ hidden: [...state.hidden].join(",") });
      lay();
    };
    const item = (run, i) => {
      const sample = el("canvas", { class: "swatch" });
      requestAnimationFrame(() => drawSwatch(sample, i));
      const last = run.x.at(-1);
      return el("li", {},
        el("label", {},
          runs.length > 1
            ? el("input", { type: "checkbox", checked: !state.hidden.has(run.key), on: { change: toggle(run) } })
            : null,
          sample,
          el("strong", {}, run.name),
        ),
        el("span", { class: "quiet" },
          last === undefined ? " no step yet" : ` ${run.x.length} steps, the last is ${last}`,
          run.steps.length < run.x.length ? ` · trajectories of ${run.steps.length}` : "",
        ),
        run.steps.length
          ? el("a", { href: report.link({ run: run.key, step: run.steps.at(-1) }) }, "newest step")
          : null,
      );
    };
    return el("ul", { class: "runs" }, runs.map(item));
  }

  function drawSwatch(canvas, index) {
    const { pen, width, height } = report.pen(canvas);
    pen.strokeStyle = report.runColor(index);
    pen.lineWidth = 2.5;
    pen.setLineDash(report.runDash(index));
    pen.beginPath();
    pen.moveTo(0, height / 2);
    pen.lineTo(width, height / 2);
    pen.stroke();
  }

  function layCharts(board, charts, runs, state, redraw) {
    charts.length = 0;
    const words = state.metrics.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = (name) => !words.length || words.some((word) => name.toLowerCase().includes(word));
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))].filter(wanted);
    const areas = Map.groupBy(names, (name) => name.split("/")[0]);
    const sections = [...areas.keys()].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
    const watcher = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const chart = charts.find((c) => c.canvas === target);
        if (!chart) continue;
        chart.visible = isIntersecting;
        if (isIntersecting) chart.draw();
      }
    }, { rootMargin: "120px" });
    board.replaceChildren(...sections.map((area) => {
      const cards = areas.get(area).sort().map((name) => {
        const chart = makeChart(name, runs, state, redraw);
        charts.push(chart);
        watcher.observe(chart.canvas);
        return chart.card;
      });
      return el("section", {}, el("h2", {}, area), el("div", { class: "cards" }, cards));
    }));
    if (!names.length) board.append(el("p", { class: "quiet" }, "No metric has that in its name."));
  }

  const rank = (area) => {
    if (area === "time") return AREAS.length + 1;
    const i = AREAS.indexOf(area);
    return i < 0 ? AREAS.length : i;
  };

  // The curves of one metric: a line per run, or a band per recipe.
  function curvesOf(name, runs, state) {
    const lines = runs
      .map((run, index) => ({ run, label: run.name, index, x: run.x, y: run.metrics[name] }))
      .filter((curve) => curve.y && !state.hidden.has(curve.run.key));
    const raw = state.bands
      ? [...Map.groupBy(lines, (curve) => curve.run.recipe).values()].map(joined)
      : lines;
    if (!state.smooth) return raw;
    return raw.map((curve) => ({
      ...curve,
      y: report.smooth(curve.y, state.smooth),
      faint: curve.low ? undefined : curve.y,
      low: curve.low && report.smooth(curve.low, state.smooth),
      high: curve.high && report.smooth(curve.high, state.smooth),
    }));
  }

  function joined(members) {
    if (members.length === 1) return members[0];
    const label = `${members[0].label} and ${members.length - 1} more`;
    return { ...members[0], label, ...report.band(members) };
  }

  function makeChart(name, runs, state, redraw) {
    const canvas = el("canvas", { class: "chart", role: "img", "aria-label": `Curve of ${name}` });
    const value = el("span", { class: "now" });
    const enlarge = () => {
      state.large = state.large === name ? "" : name;
      report.remember({ large: state.large });
      document.querySelectorAll(".card.large").forEach((c) => c.classList.remove("large"));
      if (state.large) card.classList.add("large");
      redraw();
    };
    const title = el("button", { type: "button", class: "name", title: name, on: { click: enlarge } },
      name.split("/").slice(1).join("/") || name);
    const card = el("figure", { class: state.large === name ? "card large" : "card", data: { metric: name } },
      el("figcaption", {}, title, value), canvas);
    let drawing = null;
    let curves = [];
    const draw = () => {
      curves = curvesOf(name, runs, state).filter((curve) => curve.x.length);
      drawing = curves.length ? report.drawChart(canvas, curves, { cursor: state.cursor }) : null;
      const lead = curves[0];
      value.textContent = lead
        ? report.number(state.cursor === null ? lead.y.at(-1) : report.valueAt(lead, state.cursor))
        : "";
    };
    const hover = (event) => {
      if (!drawing) return;
      const step = drawing.stepAt(event.offsetX);
      if (step !== state.cursor) {
        state.cursor = step;
        redraw();
      }
      report.showTip(event, ...tipRows(name, curves, step));
    };
    const leave = () => {
      state.cursor = null;
      report.hideTip();
      redraw();
    };
    const open = (event) => {
      if (drawing) openStep(runs, curves, drawing.stepAt(event.offsetX), drawing.valueAtPixel(event.offsetY));
    };
    canvas.addEventListener("pointermove", hover);
    canvas.addEventListener("pointerleave", leave);
    canvas.addEventListener("click", open);
    return { canvas, card, draw, visible: false };
  }

  function tipRows(name, curves, step) {
    const rows = curves.map((curve) => {
      const i = curve.x.indexOf(step);
      if (i < 0) return null;
      const spread = curve.low
        ? ` (${report.number(curve.low[i])} to ${report.number(curve.high[i])})`
        : "";
      return el("div", { class: `run run-${curve.index % 6}` },
        el("b", {}, `${report.number(curve.y[i])}${spread}`), ` ${curve.label}`);
    });
    return [el("div", { class: "quiet" }, `${name}, step ${step}`), ...rows.filter(Boolean)];
  }

  // Opens the step of the run whose curve is nearest to the click and has trajectories.
  function openStep(runs, curves, step, value) {
    const distance = (curve) => Math.abs((report.valueAt(curve, step) ?? Infinity) - value);
    const near = [...curves].sort((a, b) => distance(a) - distance(b));
    const curve = near.find((c) => c.run.steps.length);
    if (!curve) return;
    const steps = curve.run.steps;
    const found = steps.reduce((a, b) => (Math.abs(b - step) < Math.abs(a - step) ? b : a));
    report.hideTip();
    report.go({ run: curve.run.key, step: found });
  }

  function configTable(runs) {
    const keys = [...new Set(runs.flatMap((run) => Object.keys(run.config)))].sort();
    if (!keys.length) return null;
    const text = (run, key) => (key in run.config ? JSON.stringify(run.config[key]) : "–");
    const differs = (key) => new Set(runs.map((run) => text(run, key))).size > 1;
    const row = (key) =>
      el("tr", { class: differs(key) ? "differs" : null }, el("th", { scope: "row" }, key),
        runs.map((run) => el("td", {}, report.visible(text(run, key)))));
    const ordered = [...keys.filter(differs), ...keys.filter((key) => !differs(key))];
    const head = runs.length > 1
      ? el("thead", {}, el("tr", {}, el("th", {}), runs.map((run) => el("th", {}, run.name))))
      : null;
    const summary = runs.length > 1
      ? `Config: ${keys.filter(differs).length} of ${keys.length} keys differ`
      : "Config";
    return el("details", { class: "config" }, el("summary", {}, summary),
      el("div", { class: "scroll" }, el("table", {}, head, el("tbody", {}, ordered.map(row)))));
  }
})();
