// A trajectory at a glance: one bar per token, tool results shaded, the chosen token marked.
"use strict";

(() => {
  // Draws into a canvas and returns tokenAt(pixel).
  report.drawStrip = (canvas, detail, scale, selected) => {
    const { pen, width, height } = report.pen(canvas);
    const count = detail.texts.length;
    if (!count) return () => null;
    const base = scale.kind === "diverging" ? height / 2 : height - 1;
    const step = width / count;
    shadeResults(pen, detail, step, height);
    const reach = scale.kind === "diverging" ? height / 2 - 2 : height - 4;
    for (let i = 0; i < count; i++) {
      if (!detail.mask[i]) continue;
      const x = scale.value(detail, i) - scale.center;
      const size = scale.kind === "flag" ? x / 2 : scale.top ? Math.min(Math.abs(x) / scale.top, 1) : 0;
      const tall = Math.max(size * reach, 0.5);
      const tone = scale.kind !== "diverging" ? "heat" : x < 0 ? "below" : "above";
      pen.fillStyle = report.color(tone);
      const wide = Math.max(step - (step > 3 ? 1 : 0), 0.75);
      pen.fillRect(i * step, x < 0 ? base : base - tall, wide, tall);
    }
    pen.fillStyle = report.color("line");
    pen.fillRect(0, Math.floor(base), width, 1);
    if (selected !== null) {
      pen.strokeStyle = report.color("ink");
      pen.strokeRect(selected * step - 0.5, 0.5, Math.max(step, 2) + 1, height - 1);
    }
    return (pixel) => Math.min(Math.max(Math.floor(pixel / step), 0), count - 1);
  };

  function shadeResults(pen, detail, step, height) {
    pen.fillStyle = report.color("shade");
    const start = detail.turns[0]?.start ?? detail.texts.length;
    pen.fillRect(0, 0, start * step, height);
    for (const turn of detail.turns) {
      pen.fillRect(turn.results * step, 0, (turn.end - turn.results) * step, height);
    }
    pen.fillStyle = report.color("muted");
    const label = (text, from, to) => {
      if ((to - from) * step > pen.measureText(text).width + 8) pen.fillText(text, from * step + 4, 11);
    };
    label("prompt", 0, start);
    detail.turns.forEach((turn, i) => {
      label(`turn ${i + 1}`, turn.start, turn.results);
      label("result", turn.results, turn.end);
    });
  }
})();
