// Loads data files. Each is a script that hands one JSON text to report.receive, because
// a page opened from a disk may load scripts only. The text is parsed, never run.
"use strict";

const report = {};

(() => {
  const MOST_HELD = 24; // Files kept in memory; a group of long trajectories is large.
  const held = new Map(); // Name to value, the least recently used first.
  const waiting = new Map(); // Name to {promise, resolve}.

  report.receive = (name, text) => waiting.get(name)?.resolve(JSON.parse(text));

  // The value of data/NAME.js. With fresh, what was loaded before does not count.
  report.load = (name, { fresh = false } = {}) => {
    if (waiting.has(name)) return waiting.get(name).promise;
    if (held.has(name) && !fresh) {
      const value = held.get(name);
      held.delete(name);
      held.set(name, value);
      return Promise.resolve(value);
    }
    const request = {};
    request.promise = new Promise((resolve, reject) => {
      request.resolve = resolve;
      request.reject = reject;
    });
    waiting.set(name, request);
    append(name, fresh ? `?${Date.now()}` : "", request);
    return request.promise.then(
      (value) => keep(name, value),
      (error) => {
        waiting.delete(name);
        throw error;
      },
    );
  };

  function append(name, query, request) {
    const script = document.createElement("script");
    script.src = `data/${name}.js${query}`;
    script.onload = () => {
      script.remove();
      request.reject(new Error(`data/${name}.js holds no data`)); // If it called nothing.
    };
    script.onerror = () => {
      script.remove();
      request.reject(
        new Error(`data/${name}.js is missing: run launch.report again to build it`),
      );
    };
    document.head.append(script);
  }

  function keep(name, value) {
    waiting.delete(name);
    held.delete(name);
    held.set(name, value);
    if (held.size > MOST_HELD) held.delete(held.keys().next().value);
    return value;
  }
})();
