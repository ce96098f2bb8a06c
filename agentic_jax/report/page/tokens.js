// Tokens as spans, coloured by a scale, with their numbers on hover.
"use strict";

(() => {
  const { el, number, signed } = report;

  // Spans of tokens from start to end (exclusive) of a trajectory.
  report.tokenSpans = (detail, start, end, scale) => {
    const spans = [];
    for (let i = start; i < end; i++) {
      const text = detail.texts[i];
      const span = document.createElement("span");
      span.className = tokenClass(detail, i, scale);
      span.dataset.i = i;
      // A token that only ends a character begun before it has no text of its own.
      span.append(...(text === "" ? ["◦"] : report.visible(text, { newlines: true })));
      spans.push(span);
    }
    return spans;
  };

  const tokenClass = (detail, i, scale) =>
    `t ${detail.mask[i] ? "sampled" : "given"}${detail.texts[i] === "" ? " part" : ""} ${scale.classOf(detail, i)}`;

  report.recolor = (root, detail, scale) => {
    for (const span of root.querySelectorAll(".t")) {
      const chosen = span.classList.contains("chosen");
      span.className = tokenClass(detail, Number(span.dataset.i), scale) + (chosen ? " chosen" : "");
    }
  };

  // The numbers of one token.
  report.tokenFacts = (detail, i) => {
    const text = detail.texts[i] === "" ? "ends the character before" : JSON.stringify(detail.texts[i]);
    const facts = [["token", `id ${detail.ids[i]}, position ${i}`]];
    if (detail.mask[i]) {
      const trainer = detail.trainer_logprobs[i];
      const gap = trainer - detail.engine_logprobs[i];
      facts.push(
        ["entropy", `${number(detail.entropy[i])} nats`],
        ["log-probability", `${number(trainer)} (p = ${number(Math.exp(trainer))})`],
        ["engine's", number(detail.engine_logprobs[i])],
        ["trainer − engine", `${signed(gap)} (ratio ${number(Math.exp(gap))})`],
        ["advantage", signed(detail.advantage[i])],
      );
    } else {
      facts.push(["trained", detail.turn[i] ? "no, a tool's result" : "no, the prompt"]);
    }
    const rows = facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
    return [el("code", { class: "token" }, report.visible(text)), el("dl", {}, rows)];
  };

  // Shows facts while the pointer is over a token of root; onPick(i) on a click.
  report.watchTokens = (root, detail, onPick) => {
    const indexOf = (event) => {
      const span = event.target.closest?.(".t");
      return span ? Number(span.dataset.i) : null;
    };
    root.addEventListener("pointermove", (event) => {
      const i = indexOf(event);
      if (i === null) report.hideTip();
      else report.showTip(event, ...report.tokenFacts(detail, i));
    });
    root.addEventListener("pointerleave", report.hideTip);
    root.addEventListener("click", (event) => {
      const i = indexOf(event);
      if (i !== null && !String(getSelection())) onPick(i);
    });
  };
})();
