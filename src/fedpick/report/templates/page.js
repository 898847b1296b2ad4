"use strict";
// Charts with a legend of their own (figures).
document.querySelectorAll("script[type='application/json'][data-chart]").forEach((spec) => {
  const place = document.getElementById(spec.dataset.chart);
  const actions = { export: true, source: false, compiled: false, editor: false };
  vegaEmbed(place, JSON.parse(spec.textContent), { renderer: "svg", actions })
    .then(() => place.querySelector("summary").setAttribute("aria-label", "Save the chart"))
    .catch((error) => { place.textContent = "The chart could not be drawn: " + error; });
});

// Charts of a page with one legend (panels): views by name, and what they all are told.
const panels = new Map();
const told = { focus: "" };
const number = (value) => Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });

// Tables come by columns: what all rows have alone, texts by their place, numbers.
function unfold({ length, texts, columns }) {
  const rows = Array.from({ length }, () => ({}));
  Object.entries(columns).forEach(([key, { all, text, number }]) => rows.forEach((row, i) => {
    row[key] = text ? texts[text[i]] : number ? number[i] : all;
  }));
  return rows;
}

function draw(name, { spec, tables }, kind, axis) {
  const place = document.getElementById("chart-" + name);
  const own = Object.fromEntries(Object.entries(tables).map(([key, table]) => [key, unfold(table)]));
  spec.datasets = { ...spec.datasets, ...own };
  return vegaEmbed(place, spec, { renderer: "svg", actions: false }).then(({ view }) => {
    place.querySelector("svg").setAttribute("aria-hidden", "true");
    const panel = panels.get(name);
    panels.set(name, { view, axis, place, values: spec.datasets[name] });
    if (!panel) { (kind === "lines" ? follow : recite)(name, kind); }
    tell(told, name);
  }).catch((error) => { place.textContent = "The chart could not be drawn: " + error; });
}

function tell(signals, only) {
  Object.assign(told, signals);
  panels.forEach(({ view }, name) => {
    if (only && only !== name) { return; }
    const known = view.getState({ signals: (signal) => signal in told }).signals;
    Object.keys(known).forEach((signal) => { if (told[signal] !== known[signal] && known[signal] !== null) { view.signal(signal, told[signal]); } });
    view.runAsync();
  });
}

// The values of all curves where one points, or where the arrow keys are.
function follow(name) {
  const { place } = panels.get(name);
  const figure = place.closest("figure");
  const box = Object.assign(document.createElement("div"), { className: "readout-box", hidden: true });
  const line = Object.assign(document.createElement("div"), { className: "crosshair", hidden: true });
  figure.append(box, line);
  let at = null;
  const hide = () => { box.hidden = line.hidden = true; at = null; };
  const show = (x, aloud) => {
    const { view, values, axis } = panels.get(name);
    const nearest = new Map();
    values.forEach((row) => {
      const found = nearest.get(row.name);
      if (!found || Math.abs(row.x - x) < Math.abs(found.x - x)) { nearest.set(row.name, row); }
    });
    const rows = [...nearest.values()].filter((row) => !told.focus || row.name === told.focus);
    rows.sort((one, other) => other.y - one.y);
    const title = axis + " " + number(x);
    box.replaceChildren(Object.assign(document.createElement("strong"), { textContent: title }), document.createElement("table"));
    rows.forEach((row) => {
      const line = box.lastChild.insertRow();
      line.insertCell().textContent = row.name;
      const spread = row.low !== row.high ? " (" + number(row.low) + " to " + number(row.high) + ")" : "";
      line.insertCell().textContent = (row.sign || "") + number(row.y) + spread;
    });
    box.hidden = line.hidden = false;
    const left = place.offsetLeft + view.origin()[0] + view.scale("x")(x);
    line.style.cssText = `left: ${left}px; top: ${place.offsetTop + view.origin()[1]}px; height: ${view.height()}px`;
    const right = left + 14 + box.offsetWidth > figure.offsetWidth;
    box.style.left = Math.max(0, right ? left - 14 - box.offsetWidth : left + 14) + "px";
    box.style.top = place.offsetTop + 8 + "px";
    if (aloud) {
      figure.querySelector(".readout").textContent = title + ": " + [...box.querySelectorAll("tr")]
        .map((row) => [...row.cells].map((cell) => cell.textContent).join(" ")).join("; ");
    }
  };
  place.addEventListener("pointermove", (event) => {
    const { view } = panels.get(name);
    const x = event.clientX - place.getBoundingClientRect().left - view.origin()[0];
    if (x < 0 || x > view.width()) { hide(); } else { show(view.scale("x").invert(x), false); }
  });
  place.addEventListener("pointerleave", hide);
  place.addEventListener("blur", hide);
  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") { hide(); }
    if (!step) { return; }
    event.preventDefault();
    const { view } = panels.get(name);
    at = at === null ? (step > 0 ? 0 : 20) : Math.min(20, Math.max(0, at + step));
    show(view.scale("x").invert(view.width() * at / 20), true);
  });
}

// What is no curve is read by arrow keys in groups: a client, a strategy, a value.
const GROUPS = {
  bars: ["x", (row) => row.name + " " + number(row.y) + (row.came == null ? "" : " (came back: " + number(row.came) + ")")],
  strip: ["name", (row) => number(row.y) + (row.mark === "reached" ? "" : " " + row.mark)],
  dots: ["x", (row) => (row.sign || "") + number(row.y) + (row.low === row.high ? "" : " (" + number(row.low) + " to " + number(row.high) + ")")],
  heat: ["y", (row) => row.x + ": " + number(row.samples)],
  sizes: ["y", (row) => number(row.size) + " samples"],
  picks: ["y", (row) => (row.seats ? "round " + Math.ceil(row.x) + (row.x2 - row.x > 1 ? " to " + Math.floor(row.x2) : "") + (row.came ? "" : ", did not come back") : "")],
};

function recite(name, kind) {
  const { place } = panels.get(name);
  const figure = place.closest("figure");
  const box = Object.assign(document.createElement("div"), { className: "readout-box", hidden: true });
  figure.append(box);
  let at = -1;
  place.addEventListener("blur", () => { box.hidden = true; });
  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") { box.hidden = true; }
    if (!step) { return; }
    event.preventDefault();
    const [key, words] = GROUPS[kind];
    const rows = panels.get(name).view.data(name).filter((row) => !told.focus || !row.name || row.name === told.focus);
    const groups = [...new Set(rows.map((row) => row[key]))];
    at = Math.min(groups.length - 1, Math.max(0, at + step));
    const said = rows.filter((row) => row[key] === groups[at]).map(words).filter(Boolean).join("; ");
    box.replaceChildren(Object.assign(document.createElement("p"), { textContent: groups[at] + ": " + said }));
    box.hidden = false;
    box.style.cssText = `right: 1rem; top: ${place.offsetTop + 8}px`;
    figure.querySelector(".readout").textContent = box.textContent;
  });
}

const drawn = [...document.querySelectorAll("script[data-panel]")].map((spec) => {
  const name = spec.dataset.panel, plain = JSON.parse(spec.textContent);
  const empty = plain.tables[name] && !plain.tables[name].length;  // where no value is known there is nothing to draw
  if (empty) { document.getElementById(name).hidden = true; }
  return empty ? null : draw(name, plain, spec.dataset.kind, spec.dataset.x);
});

document.querySelectorAll("[data-save]").forEach((button) => button.addEventListener("click", () => {
  const kind = button.dataset.save;
  panels.get(button.dataset.of).view.toImageURL(kind, kind === "png" ? 2 : 1).then((url) =>
    Object.assign(document.createElement("a"), { href: url, download: button.dataset.of + "." + kind }).click());
}));

// The legend: press a strategy to see it alone, press it again to see all.
const keys = [...document.querySelectorAll(".legend button")];
keys.forEach((key) => key.addEventListener("click", () => {
  const alone = key.getAttribute("aria-pressed") === "true" ? "" : key.dataset.name;
  keys.forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.name === alone && alone !== "")));
  tell({ focus: alone });
}));
const crown = (winner) => {
  keys.forEach((key) => key.classList.toggle("winner", key.dataset.name === winner));
  document.querySelectorAll("#scores tbody tr").forEach((row) => row.classList.toggle("winner", row.dataset.name === winner));
};
const first = document.querySelector("#scores tr.winner");
crown(first ? first.dataset.name : "");

// The target and the currency: everything that depends on them was computed when the page was made.
const data = document.getElementById("moves");
if (data) {
  const moves = JSON.parse(data.textContent);
  const slider = document.getElementById("target");
  const caption = document.querySelector("#scores caption");
  const put = (node, texts) => texts.forEach((text, i) => { node.children[i].textContent = text; });
  let shown = document.querySelector("input[name=by]:checked").value;
  const move = () => {
    const by = document.querySelector("input[name=by]:checked").value;
    const at = Number(slider.value);
    const own = moves.by[by];
    const state = own.states[at];
    const goal = moves.goals[at];
    document.getElementById("goal").textContent = goal;
    slider.setAttribute("aria-valuetext", goal);
    put(document.getElementById("answer"), state.answer);
    const cards = document.getElementById("cards");
    state.cards.forEach((card, i) => put(cards.children[i], card));
    caption.textContent = goal === moves.own ? moves.source : "The target is " + goal + ".";
    document.querySelectorAll("#scores tbody tr").forEach((row, i) => moves.columns.forEach((column, j) => {
      const cell = row.cells[column + 1];
      const [value, note] = state.cells[i][j];
      cell.querySelector(".value").textContent = value;
      let small = cell.querySelector("small");
      if (!small && note) { cell.append(" "); small = cell.appendChild(document.createElement("small")); }
      if (small) { small.textContent = note; }
    }));
    crown(state.winner);
    const seeds = panels.get("seeds");
    if (seeds) {
      const rows = state.spent.flatMap((amounts, i) => amounts.map((amount) => (
        { name: moves.names[i], y: amount === null ? own.most : amount, mark: amount === null ? "not reached" : "reached" })));
      seeds.view.data("seeds", rows);
      document.querySelector("#seeds h3").textContent = own.title;
    }
    for (const [name, text, note, rows] of state.sweeps) {
      const values = rows.map((row) => ({ ...row, x: String(row.x) }));
      document.getElementById(name).hidden = !rows.length;
      if (rows.length && panels.has(name)) { panels.get(name).view.data(name, values); }
      else if (rows.length) {  // no value was known at first
        const { text: plain, dataset } = document.querySelector(`script[data-panel=${name}]`);
        draw(name, { spec: { ...JSON.parse(plain).spec, datasets: { [name]: values } }, tables: {} }, dataset.kind, dataset.x);
      }
      document.querySelector(`#${name}-title + .soft`).textContent = text;
      document.querySelector(`#${name} .soft`).textContent = note;
    }
    const rest = () => tell({ target: moves.targets[at], winner: state.winner, leader: state.leader, most: own.most });
    if (by !== shown && own.speed) {
      shown = by;
      const speed = panels.get("speed-up");
      draw("speed-up", own.speed, "lines", speed.axis).then(rest);
      document.querySelector("#speed-up .soft").textContent = own.text;
    } else { rest(); }
  };
  Promise.all(drawn).then(() => {
    slider.addEventListener("input", move);
    document.querySelectorAll("input[name=by]").forEach((way) => way.addEventListener("change", move));
    if (document.querySelector("input[name=by]:checked").value !== shown || slider.value !== slider.defaultValue) { move(); }
  });
}

// On paper nothing is folded.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")].filter((each) => !each.closest(".vega-embed"));
  folded.forEach((each) => { each.open = true; });
});
addEventListener("afterprint", () => folded.forEach((each) => { each.open = false; }));
