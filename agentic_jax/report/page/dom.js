// Elements, numbers and text. Text only ever becomes text nodes.
"use strict";

(() => {
  // Controls, formats (bidi overrides, zero widths), lone surrogates, line separators.
  const UNSEEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

  // An element. Properties: "class", "on" for listeners, "data" for data-*, others are
  // attributes; null and false leave one out. Children: nodes, strings, arrays of both.
  report.el = (tag, properties = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "on") {
        for (const [event, f] of Object.entries(value)) element.addEventListener(event, f);
      } else if (name === "data") {
        Object.assign(element.dataset, value);
      } else if (name === "value" || name === "checked") {
        element[name] = value;
      } else {
        element.setAttribute(name, value === true ? "" : value);
      }
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null));
    return element;
  };

  // Nodes that show a text as it is: what cannot be seen gets a mark with its name, so
  // that nothing hides, and no bidi override reorders what stands beside it.
  report.visible = (text, { newlines = false } = {}) => {
    const nodes = [];
    let from = 0;
    for (const match of text.matchAll(UNSEEN)) {
      pushText(nodes, text.slice(from, match.index), newlines);
      nodes.push(report.el("span", { class: "unseen" }, nameOf(match[0])));
      from = match.index + match[0].length;
    }
    pushText(nodes, text.slice(from), newlines);
    return nodes;
  };

  function pushText(nodes, text, newlines) {
    if (!newlines) {
      if (text) nodes.push(document.createTextNode(text));
      return;
    }
    text.split("\n").forEach((line, i) => {
      if (i) nodes.push(report.el("span", { class: "newline" }, "↵"), "\n");
      if (line) nodes.push(document.createTextNode(line));
    });
  }

  function nameOf(character) {
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code); // Pictures: ␀, ␛, ␍.
    return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  }

  // A number as short as it may be: four digits, or thousands with separators.
  report.number = (value) =>
    value === null || value === undefined ? "–" : shortest(value).replaceAll("-", "−");

  function shortest(value) {
    const size = Math.abs(value);
    if (Number.isInteger(value) || size >= 1000) return Math.round(value).toLocaleString("en-US");
    if (size < 0.0001) return value.toExponential(1);
    return String(Number(value.toPrecision(size < 1 ? 3 : 4)));
  }

  report.signed = (value) => (value > 0 ? "+" : "") + report.number(value);

  report.mean = (values) =>
    values.length ? values.reduce((sum, x) => sum + x, 0) / values.length : null;

  const tip = () => document.getElementById("tip");

  // Shows nodes beside the pointer, within the window.
  report.showTip = (event, ...nodes) => {
    const box = tip();
    box.replaceChildren(...nodes);
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, window.innerWidth - width - 8);
    const below = event.clientY + 18;
    const above = event.clientY - height - 12;
    box.style.left = `${Math.max(left, 8)}px`;
    box.style.top = `${below + height > window.innerHeight && above > 0 ? above : below}px`;
  };

  report.hideTip = () => {
    tip().hidden = true;
  };
})();
