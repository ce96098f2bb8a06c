// What tokens can be coloured by, and the levels that a value falls into. The levels are
// classes, so that light and dark have their own colours (tokens.css).
"use strict";

(() => {
  const { el, number } = report;
  const LEVELS = 10;

  const gap = (d, i) => d.trainer_logprobs[i] - d.engine_logprobs[i];

  // Of each: what it says, its kind, and its value at token i of a trajectory.
  report.COLORINGS = {
    entropy: {
      label: "entropy", about: "Entropy of the policy before this token, nats",
      kind: "sequential", value: (d, i) => d.entropy[i],
    },
    logprob: {
      label: "surprise", about: "Minus the trainer's log-probability, nats",
      kind: "sequential", value: (d, i) => Math.max(-d.trainer_logprobs[i], 0),
    },
    difference: {
      label: "trainer − engine", about: "Difference of log-probabilities, nats; blue where the trainer's is lower",
      kind: "diverging", value: gap,
    },
    ratio: {
      label: "ratio", about: "Trainer's probability over the engine's; corrections weigh by it. White at 1, blue below",
      kind: "diverging", center: 1, value: (d, i) => Math.exp(gap(d, i)),
    },
    advantage: {
      label: "advantage", about: "Credit of this token; blue below 0, orange above",
      kind: "diverging", value: (d, i) => d.advantage[i],
    },
    mask: {
      label: "sampled", about: "What the policy sampled, and only that, is trained",
      kind: "flag", value: () => 1,
    },
    none: { label: "none", about: "No colour", kind: "flag", value: () => 0 },
  };

  // A scale over all sampled tokens of some trajectories: the deepest colour begins at
  // the 99th percentile, so that one outlier does not pale all others.
  report.makeScale = (name, details) => {
    const { kind, value, center = 0 } = report.COLORINGS[name];
    const sizes = details
      .flatMap((d) => d.mask.map((m, i) => (m ? Math.abs(value(d, i) - center) : null)))
      .filter((size) => size !== null)
      .sort((a, b) => a - b);
    const top = sizes[Math.floor((sizes.length - 1) * 0.99)] || sizes.at(-1) || 0;
    const level = (x) => (top > 0 ? Math.min(Math.ceil((Math.abs(x - center) / top) * LEVELS - 1e-9), LEVELS) : 0);
    const classOf = (d, i) => {
      if (!d.mask[i]) return "";
      const x = value(d, i);
      if (kind === "flag") return x ? "heat l3" : "";
      return `${kind === "sequential" ? "heat" : x < center ? "below" : "above"} l${level(x)}`;
    };
    return { name, kind, center, top, classOf, value };
  };

  report.legend = (scale) => {
    const { about, kind } = report.COLORINGS[scale.name];
    if (kind === "flag") return el("span", { class: "legend", title: about }, el("span", { class: "quiet" }, about));
    const cells = (tone, levels) => levels.map((l) => el("i", { class: `${tone} l${l}` }));
    const up = Array.from({ length: LEVELS + 1 }, (_, i) => i);
    const { center, top } = scale;
    const bar = kind === "sequential"
      ? [number(0), el("span", { class: "bar" }, cells("heat", up)), `≥ ${number(top)}`]
      : [`≤ ${number(center - top)}`,
          el("span", { class: "bar" }, cells("below", [...up].reverse()), cells("above", up.slice(1))),
          `≥ ${number(center + top)}`];
    return el("span", { class: "legend", title: about }, bar);
  };
})();
