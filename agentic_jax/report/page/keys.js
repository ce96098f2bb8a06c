// Keyboard: the keys of the view, and those that work everywhere.
"use strict";

(() => {
  const { el } = report;
  const HELP = [
    ["j k ↓ ↑", "next and previous row, or trajectory"],
    ["Enter", "open the row"],
    ["u Esc", "up: to the step, to the curves"],
    ["[ ]", "previous and next step"],
    ["← →", "previous and next token"],
    ["e", "next colouring of tokens"],
    ["c", "put the next sample of the group beside this one"],
    ["/", "search"],
    ["?", "these keys"],
  ];

  report.listen = (viewKeys) => {
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const field = event.target.closest?.("input, select, textarea");
      if (field) {
        if (event.key === "Escape") field.blur();
        return;
      }
      const dialog = document.querySelector("dialog[open]");
      if (dialog) {
        if (["Escape", "?"].includes(event.key)) dialog.close();
        return;
      }
      if (event.target.closest?.("a, button, summary") && event.key === "Enter") return;
      const key = event.key === "Escape" ? "u" : event.key;
      const action = { "/": focusSearch, "?": report.showHelp, ...viewKeys() }[key];
      if (!action) return;
      event.preventDefault();
      action();
    });
  };

  function focusSearch() {
    const input = document.querySelector("#find input");
    input.focus();
    input.select();
  }

  report.showHelp = () => {
    const close = el("button", { type: "button", on: { click: () => dialog.close() } }, "Close");
    const rows = HELP.map(([keys, what]) =>
      el("div", {}, el("dt", {}, keys.split(" ").map((key) => el("kbd", {}, key))), el("dd", {}, what)));
    const dialog = el("dialog", { on: { close: () => dialog.remove() } }, el("h2", {}, "Keys"), el("dl", { class: "keys" }, rows), close);
    document.body.append(dialog);
    dialog.showModal();
  };
})();
