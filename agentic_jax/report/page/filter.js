// Which trajectories of a step are shown: conditions such as "reward<0.5 stop=answer",
// and words that the problem, its answer or its name must have.
"use strict";

(() => {
  const CONDITION = /^([a-z]+)(<=|>=|!=|<|>|=)(.+)$/i;
  const COMPARE = {
    "<": (a, b) => a < b,
    "<=": (a, b) => a <= b,
    ">": (a, b) => a > b,
    ">=": (a, b) => a >= b,
    "=": (a, b) => a === b,
    "!=": (a, b) => a !== b,
  };

  // What a condition may be about, each from a line of a step's table.
  const NUMBERS = {
    reward: (s) => s.reward,
    score: (s) => s.score,
    tokens: (s) => s.tokens,
    sampled: (s) => s.sampled,
    turns: (s) => s.turns,
    calls: (s) => s.statuses.length,
    seconds: (s) => s.seconds,
    staleness: (s) => s.staleness,
    entropy: (s) => s.entropy,
    logprob: (s) => s.logprob,
    mismatch: (s) => s.mismatch,
    group: (s) => s.group,
  };
  const WORDS = { stop: (s) => [s.stop], status: (s) => (s.statuses.length ? s.statuses : ["none"]) };

  report.filterFields = [...Object.keys(NUMBERS), ...Object.keys(WORDS)];

  // {test(sample, group), problem}; problem says what could not be read, or is "".
  report.makeFilter = (text) => {
    const tests = [];
    let problem = "";
    for (const term of text.trim().split(/\s+/).filter(Boolean)) {
      const [, field, operator, value] = term.match(CONDITION) ?? [];
      if (!field) {
        tests.push(hasWord(term.toLowerCase()));
      } else if (field in NUMBERS && value.trim() !== "" && Number.isFinite(Number(value))) {
        const compare = COMPARE[operator];
        tests.push((s) => NUMBERS[field](s) !== null && compare(NUMBERS[field](s), Number(value)));
      } else if (field in WORDS && ["=", "!="].includes(operator)) {
        tests.push((s) => WORDS[field](s).includes(value) === (operator === "="));
      } else {
        problem = `cannot read ${term}: compare one of ${report.filterFields.join(", ")}`;
      }
    }
    return { test: (sample, group) => tests.every((test) => test(sample, group)), problem };
  };

  function hasWord(word) {
    return (sample, group) =>
      [group.problem, group.answer, group.task, group.domain].some((text) =>
        text.toLowerCase().includes(word),
      );
  }
})();
