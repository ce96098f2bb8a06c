// Where we are, kept in location.hash, so that every view has a permanent link:
//   #/?smooth=0.6                           curves
//   #/RUN/STEP?sort=-reward                 the groups of a step
//   #/RUN/STEP/GROUP.SAMPLE?color=entropy   a trajectory
//   #/search?q=TEXT                         a search
"use strict";

(() => {
  let remembered = null; // A hash that we set ourselves and that needs no drawing.

  // Each view's file adds (place, data) => {view, title, keys?, redraw?} here.
  report.views = {};

  report.place = () => {
    const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
    const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
    const options = new URLSearchParams(query);
    if (parts[0] === "search") return { view: "search", options };
    if (!parts.length) return { view: "curves", options };
    const [run, step, sample] = parts;
    const place = { view: "step", run, step: Number(step), options };
    if (sample === undefined) return place;
    const [group, index] = sample.split(".").map(Number);
    return { ...place, view: "trajectory", group, sample: index };
  };

  // The link to a place; options that are empty are left out.
  report.link = (place, options = {}) => {
    let path = "/";
    if (place.view === "search") path = "/search";
    if (place.run !== undefined) path = `/${encodeURIComponent(place.run)}/${place.step}`;
    if (place.sample !== undefined) path += `/${place.group}.${place.sample}`;
    const given = Object.entries(options).filter(([, value]) => value !== "" && value !== null);
    const query = new URLSearchParams(given).toString();
    return `#${path}${query ? `?${query}` : ""}`;
  };

  report.go = (place, options) => {
    location.hash = report.link(place, options);
  };

  // Writes changed options into the link of the place we are at, without drawing it anew.
  report.remember = (changes) => {
    const place = report.place();
    const options = { ...Object.fromEntries(place.options), ...changes };
    const hash = report.link(place, options);
    if (hash === (location.hash || "#/")) return;
    remembered = hash;
    location.replace(hash);
  };

  report.onMove = (draw) => {
    window.addEventListener("hashchange", () => {
      if (location.hash === remembered) return; // Several changes may end in one hash.
      remembered = null;
      draw();
    });
  };
})();
