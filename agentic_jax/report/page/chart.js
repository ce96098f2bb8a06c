// Line charts on a canvas: smoothing, bands over seeds, and the value under the pointer.
"use strict";

(() => {
  const PAD = { left: 46, right: 10, top: 8, bottom: 18 };
  const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [1, 2]];
  const COLORS = 6; // --run-0 to --run-5 in base.css.

  report.color = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  report.runColor = (i) => report.color(`run-${i % COLORS}`);
  report.runDash = (i) => DASHES[i % DASHES.length];

  // Exponential moving average with the start's bias divided out; gaps stay gaps.
  report.smooth = (values, weight) => {
    let sum = 0;
    let total = 0;
    return values.map((value) => {
      if (value === null) return null;
      sum = weight * sum + (1 - weight) * value;
      total = weight * total + (1 - weight);
      return sum / total;
    });
  };

  // Mean, lowest and highest of several curves at each x that any of them has.
  report.band = (curves) => {
    const at = new Map();
    for (const { x, y } of curves) {
      x.forEach((step, i) => {
        if (y[i] === null) return;
        if (!at.has(step)) at.set(step, []);
        at.get(step).push(y[i]);
      });
    }
    const x = [...at.keys()].sort((a, b) => a - b);
    return {
      x,
      y: x.map((step) => report.mean(at.get(step))),
      low: x.map((step) => Math.min(...at.get(step))),
      high: x.map((step) => Math.max(...at.get(step))),
    };
  };

  // The value at a step, or null.
  report.valueAt = (curve, step) => {
    const i = curve.x.indexOf(step);
    return i < 0 ? null : curve.y[i];
  };

  // A canvas ready to be drawn on in CSS pixels.
  report.pen = (canvas) => {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = canvas;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = `10px ${getComputedStyle(document.body).fontFamily}`;
    return { pen, width, height };
  };

  // Draws curves and returns stepAt(pixel) and valueAtPixel(pixel) of the drawing.
  //   curves: {x, y, index, low?, high?, faint?}; index gives colour and dash
  //   cursor: a step to mark, or null
  report.drawChart = (canvas, curves, { cursor = null } = {}) => {
    const { pen, width, height } = report.pen(canvas);
    const xs = curves.flatMap((curve) => [curve.x[0], curve.x.at(-1)]);
    const ys = curves
      .flatMap((c) => [...c.y, ...(c.low ?? []), ...(c.high ?? []), ...(c.faint ?? [])])
      .filter((value) => value !== null);
    if (!ys.length) return null;
    const [first, last] = [Math.min(...xs), Math.max(...xs)];
    const range = padded(lowest(ys), highest(ys));
    const inner = width - PAD.left - PAD.right;
    const tall = height - PAD.top - PAD.bottom;
    const px = (x) => PAD.left + (last > first ? (x - first) / (last - first) : 0.5) * inner;
    const py = (y) => PAD.top + (1 - (y - range.low) / (range.high - range.low)) * tall;
    drawAxes(pen, { width, height, first, last, range, px, py });
    for (const curve of curves) {
      if (curve.low) fillBand(pen, curve, px, py);
      if (curve.faint) strokeCurve(pen, curve, curve.faint, px, py, 0.28, 1);
    }
    for (const curve of curves) strokeCurve(pen, curve, curve.y, px, py, 1, 1.7);
    if (cursor !== null) drawCursor(pen, curves, cursor, px, py, height);
    const steps = [...new Set(curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
    const stepAt = (pixel) => nearest(steps, first + ((pixel - PAD.left) / inner) * (last - first));
    const valueAtPixel = (pixel) =>
      range.high - ((pixel - PAD.top) / tall) * (range.high - range.low);
    return { stepAt, valueAtPixel };
  };

  // Not Math.min(...values): a long run has more values than a call may have arguments.
  const lowest = (values) => values.reduce((a, b) => (b < a ? b : a));
  const highest = (values) => values.reduce((a, b) => (b > a ? b : a));

  function padded(low, high) {
    if (low === high) {
      const room = Math.abs(low) / 2 || 1;
      return { low: low - room, high: high + room };
    }
    const room = (high - low) * 0.06;
    return { low: low >= 0 && low < room ? 0 : low - room, high: high + room };
  }

  function drawAxes(pen, { width, height, first, last, range, px, py }) {
    pen.fillStyle = report.color("muted");
    pen.strokeStyle = report.color("line");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of ticks(range.low, range.high)) {
      const y = Math.round(py(tick)) + 0.5;
      line(pen, PAD.left, y, width - PAD.right, y);
      pen.fillText(report.number(tick), PAD.left - 6, y);
    }
    pen.textBaseline = "alphabetic";
    pen.textAlign = "left";
    pen.fillText(report.number(first), PAD.left, height - 5);
    if (last > first) {
      pen.textAlign = "right";
      pen.fillText(report.number(last), px(last), height - 5);
    }
  }

  // Two to four round values within a range.
  function ticks(low, high) {
    const rough = (high - low) / 3;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const from = Math.ceil(low / step);
    const count = Math.floor(high / step) - from + 1;
    return Array.from({ length: count }, (_, i) => Number(((from + i) * step).toPrecision(12)));
  }

  function fillBand(pen, curve, px, py) {
    pen.globalAlpha = 0.16;
    pen.fillStyle = report.runColor(curve.index);
    pen.beginPath();
    curve.x.forEach((x, i) => pen.lineTo(px(x), py(curve.high[i])));
    for (let i = curve.x.length - 1; i >= 0; i--) pen.lineTo(px(curve.x[i]), py(curve.low[i]));
    pen.fill();
    pen.globalAlpha = 1;
  }

  function strokeCurve(pen, curve, values, px, py, alpha, thickness) {
    pen.globalAlpha = alpha;
    pen.strokeStyle = pen.fillStyle = report.runColor(curve.index);
    pen.lineWidth = thickness;
    pen.lineJoin = "round";
    pen.setLineDash(report.runDash(curve.index));
    pen.beginPath();
    let drawing = false;
    values.forEach((value, i) => {
      if (value === null) {
        drawing = false;
      } else if (drawing) {
        pen.lineTo(px(curve.x[i]), py(value));
      } else {
        pen.moveTo(px(curve.x[i]), py(value));
        drawing = true;
        const alone = values[i + 1] === null || i === values.length - 1;
        if (alone) pen.fillRect(px(curve.x[i]) - 1.5, py(value) - 1.5, 3, 3);
      }
    });
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  function drawCursor(pen, curves, cursor, px, py, height) {
    const x = Math.round(px(cursor)) + 0.5;
    pen.strokeStyle = report.color("muted");
    line(pen, x, PAD.top, x, height - PAD.bottom);
    for (const curve of curves) {
      const value = report.valueAt(curve, cursor);
      if (value === null) continue;
      pen.fillStyle = report.runColor(curve.index);
      pen.beginPath();
      pen.arc(x, py(value), 3, 0, 2 * Math.PI);
      pen.fill();
    }
  }

  function line(pen, x0, y0, x1, y1) {
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
    pen.stroke();
  }

  function nearest(sorted, wanted) {
    return sorted.reduce((a, b) => (Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a));
  }
})();
