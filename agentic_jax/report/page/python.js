// Python source as spans with a class per kind of token; anything else stays plain.
"use strict";

(() => {
  const KEYWORDS = new Set(
    ("False None True and as assert async await break case class continue def del elif else " +
      "except finally for from global if import in is lambda match nonlocal not or pass raise " +
      "return try while with yield").split(" "),
  );
  const PARTS = [
    ["comment", /#[^\n]*/y],
    ["string", /[rbuf]{0,2}(?:'''[\s\S]*?(?:'''|$)|"""[\s\S]*?(?:"""|$)|'(?:\\.|[^'\\\n])*'?|"(?:\\.|[^"\\\n])*"?)/iy],
    ["decorator", /@[\p{L}_][\p{L}\p{N}_.]*/uy],
    ["number", /(?:0[xob][\da-f_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:e[+-]?\d+)?j?)/iy],
    ["word", /[\p{L}_][\p{L}\p{N}_]*/uy],
    ["space", /\s+/y],
    ["operator", /[\s\S]/uy],
  ];

  // Nodes of the highlighted source.
  report.python = (source) => {
    const nodes = [];
    let at = 0;
    while (at < source.length) {
      const [kind, text] = partAt(source, at);
      at += text.length;
      const shown = report.visible(text);
      const name = kind === "word" ? wordKind(text, source[at]) : kind;
      nodes.push(["space", "operator", "plain"].includes(name) ? shown : report.el("span", { class: `py-${name}` }, shown));
    }
    return nodes.flat();
  };

  function partAt(source, at) {
    for (const [kind, pattern] of PARTS) {
      pattern.lastIndex = at;
      const match = pattern.exec(source);
      if (match && match[0]) return [kind, match[0]];
    }
    return ["plain", source[at]];
  }

  function wordKind(word, next) {
    if (KEYWORDS.has(word)) return "keyword";
    return next === "(" ? "call" : "plain";
  }
})();
