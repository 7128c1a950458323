// Charts: Plotly in the page's own colours, redrawn when these change.

// The number of colours of lines; each has 3:1 contrast on both papers (page.css).
const COLOUR_COUNT = 7;
const colours = () => Array.from({ length: COLOUR_COUNT }, (_, i) => resolved(`--line-${i}`));
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "circle-open", "square-open", "diamond-open"];
const DASHES = ["solid", "dash", "dot", "dashdot"];

// Listed one by one, because the default buttons include one that sends the chart to Plotly's server.
const BUTTONS = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"];

// Charts that are narrower, in pixels, are on a phone: smaller letters, fewer columns, the legend below.
const NARROW = 560;

// Each chart on the page, and the function that makes its traces and layout for a width.
const drawn = new Map();

// Plotly interprets tags in texts; names from a store must stay plain text.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

// The width of a text in pixels, roughly: a letter of a proportional font is about 0.56 times as wide as its size.
const LETTER = 0.56;
const widthOf = (text, size = 12) => text.length * size * LETTER;

// A text on as many lines as its width asks for, broken after commas and, if need be, after spaces; at most `most` lines.
function wrapped(text, width, { size = 12, most = 2 } = {}) {
  const lines = [""];
  for (const part of text.split(/(?<=, | )/)) {
    if (lines.at(-1) && widthOf(lines.at(-1) + part.trimEnd(), size) > width) lines.push("");
    lines[lines.length - 1] += part;
  }
  const kept = lines.slice(0, most).map((line) => line.trimEnd());
  const room = Math.max(4, Math.floor(width / (size * LETTER)) - 1);
  const cut = (line) => (line.length > room + 1 ? `${line.slice(0, room)}…` : line);
  return kept.map((line, i) => plain(i === most - 1 && lines.length > most ? `${cut(line).replace(/[,…]$/, "")}…` : cut(line))).join("<br>");
}

const inLegend = (traces) => traces.filter((trace) => trace.name && trace.showlegend !== false);

// The width of the legend in pixels: 50 are for the symbol and the margins.
const legendWidth = (traces) => Math.max(0, ...inLegend(traces).map((trace) => widthOf(trace.name, 13) + 50));

const printing = () => document.documentElement.classList.contains("printing");

// Whether the legend stands below the chart: where it would take too much of the width.
const legendIsBelow = (traces, width) => width < NARROW || legendWidth(traces) > 0.3 * width || printing();

// Draws what `make` returns, and again with it whenever colours or widths change.
function draw(target, make) {
  drawn.set(target, make);
  const { traces, layout } = make(target.clientWidth);
  const { clientWidth } = target;
  const narrow = clientWidth < NARROW;
  const entries = layout.showlegend === false ? 0 : inLegend(traces).length;
  const below = legendIsBelow(traces, clientWidth);
  const most = narrow || printing() ? Infinity : Math.max(460, innerHeight - 60); // a screen below the bar
  const rows = below && entries > 0 ? Math.min(19 * (entries + 1) + 24, most / 2) : 0; // at most one entry to a line
  const plot = Math.min(layout.height ?? (narrow ? 380 : 460), most - rows);
  const height = below ? plot + rows : Math.min(Math.max(plot, 120 + 30 * entries), most); // a longer legend scrolls
  const margin = { l: 56, r: 12, t: 44, b: 48, ...layout.margin };
  margin.b += rows;
  const legend = rows
    ? { orientation: "h", y: -74 /* pixels: below the ticks and the title of the x axis */ / Math.max(height - margin.t - margin.b, 100), yanchor: "top", x: 0 }
    : { x: 1.02, y: 1, yanchor: "top" };
  const style = getComputedStyle(document.body);
  const ink = style.getPropertyValue("color");
  const line = resolved("--line");
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line, ticks: "outside", automargin: true };
  const styled = { hoverlabel: { bgcolor: resolved("--paper"), bordercolor: line, font: { color: ink, family: style.fontFamily } } };
  const names = ["xaxis", "yaxis", ...Object.keys(layout).filter((name) => /^[xy]axis\d+$/.test(name))];
  const axes = Object.fromEntries(names.map((name) => {
    const title = { font: { size: 13 }, ...layout[name]?.title };
    return [name, { ...axis, ...layout[name], title }];
  }));
  const title = { font: { size: 12 }, side: "top", ...layout.legend?.title };
  return Plotly.react(target, traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: style.fontFamily, size: narrow ? 12 : 13, color: ink },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: resolved("--muted"), activecolor: ink },
    hovermode: "closest", ...styled, ...layout, ...axes, margin, legend: { ...legend, title },
    title: { x: 0, xref: "container", xanchor: "left", pad: { l: 6 }, y: 1, yanchor: "top", automargin: false, ...layout.title, font: { size: narrow ? 12 : 14 }, pad: { t: 12, l: 6 } },
    width: clientWidth, height,
  }, { displaylogo: false, displayModeBar: narrow ? false : "hover", modeBarButtons: [BUTTONS] });
}

// Buttons that keep a chart as a picture, with its title, on white or dark paper as it is shown.
function pictureButtons(target, name) {
  const keep = (format) => element("button", {
    type: "button", "aria-label": `Save chart as ${format.toUpperCase()}`, onclick: () => Plotly.downloadImage(target, {
      format, filename: name(), width: target.clientWidth, height: target.offsetHeight, scale: format === "png" ? 2 : 1,
      setBackground: () => {},
    }),
  }, format.toUpperCase());
  return element("span", { class: "pictures" }, keep("svg"), " ", keep("png"));
}

// A custom property holds the text light-dark(...); the browser resolves it only where it is used as a colour.
function resolved(property) {
  const probe = element("span", { style: `color: var(${property})`, hidden: true });
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function redrawAll() {
  for (const [target, make] of drawn) draw(target, make);
}

// Draws a figure made by charts.py: a trace's `colour` is an index into the colours, `lines` its points' tooltips.
// top: the end of the axis that it shares with another figure; 0 if it shares none.
function drawFigure(target, { title, traces, layout }, heading, top = 0) {
  draw(target, (width) => {
    const palette = colours();
    const ink = getComputedStyle(document.body).color;
    const made = traces.map(({ colour, lines, ...trace }) => {
      const own = palette[colour % COLOUR_COUNT];
      const marker = { color: own, line: { width: 0 }, ...trace.marker };
      const styled = { ...trace, name: plain(trace.name), line: { color: own, ...trace.line }, marker };
      if (!lines) return styled;
      const texts = lines.map((text) => text.map(plain).join("<br>"));
      const bar = trace.type !== "bar" ? {} : layout.icicle
        ? { text: trace.text.map(plain), textposition: "inside", insidetextanchor: "start", textangle: 0, insidetextfont: { color: ink }, marker: { ...marker, opacity: 0.35, line: { color: resolved("--paper"), width: 1 } } }
        : { y: trace.y.map(plain) };
      return { ...styled, ...bar, customdata: texts, hovertemplate: `${bar.y && !layout.icicle ? "<b>%{y}</b><br>" : ""}%{customdata}<extra>%{fullData.name}</extra>` };
    });
    const line = resolved("--muted");
    const names = layout.barmode && !layout.icicle ? [...new Set(made.flatMap((trace) => trace.y))] : [];
    const tall = names.length && width < NARROW; // the names of bars take two lines
    const bars = names.length ? { yaxis: { ...layout.yaxis, ...(tall && { tickvals: names, ticktext: names.map((name) => wrapped(name, 112)) }) }, ...(tall && { height: 1.3 * layout.height }) } : {};
    const wider = tall ? 1.35 : 1; // room for the numbers at the ends of bars
    const shapes = layout.shapes?.map((shape) => ({ line: { color: line, width: 1, dash: "dot" }, ...shape }));
    const annotations = layout.annotations?.map((one) => ({
      showarrow: false, font: { size: 12, color: line }, ...one, ...(typeof one.y === "string" && { y: plain(one.y) }),
    }));
    const shared = layout.barmode ? "xaxis" : "yaxis";
    return {
      traces: made,
      layout: {
        ...layout, ...bars, ...(layout.icicle && { uniformtext: { mode: "hide", minsize: 10 } }), ...((top || tall) && { [shared]: { ...layout[shared], range: [0, wider * (top || layout[shared].range[1])] } }), title: { text: wrapped([heading, title].filter(Boolean).join(": "), width - 24, { size: width < NARROW ? 12 : 14 }) }, ...(shapes && { shapes }),
        ...(annotations && { annotations }), margin: { l: 56, r: 12, t: annotations ? 76 : 62, b: 48 },
      },
    };
  });
}

const axisNumber = (letter, panel) => (panel ? `${letter}${panel + 1}` : letter);

// Draws the lines that lines.py chose; returns its traces, each with the cells of its points, and what a log axis hides.
function drawLines(target, chart, { isLog, allowed, compared }) {
  const parts = chart.traces.flatMap(({ x, y, above, below, text, cell, out, ...trace }) => {
    const kept = x.map((_, i) => i).filter((i) => allowed(cell[i]));
    const of = (isOut) => kept.filter((i) => out.includes(i) === isOut);
    return [false, true].map((isOut) => [of(isOut), isOut]).filter(([places]) => places.length).map(([places, isOut]) => ({
      ...trace, isOut, ...Object.fromEntries(Object.entries({ x, y, above, below, text, cells: cell }).map(([name, all]) => [name, places.map((i) => all[i])])),
    }));
  });
  const used = [...new Set(parts.map((part) => part.panel))].sort((a, b) => a - b);
  const panels = used.map((number, index) => ({ name: chart.panels[number], index }));
  const hidden = parts.flatMap((part) => part.y).filter((value) => value <= 0).length;
  draw(target, (width) => {
    const palette = colours();
    const named = new Set();
    const traces = parts.map((part) => {
      const colour = palette[part.colour];
      const axes = { xaxis: axisNumber("x", used.indexOf(part.panel)), yaxis: axisNumber("y", used.indexOf(part.panel)) };
      const name = part.isOut ? "oom: the device's memory" : part.name;
      const first = !named.has(name);
      named.add(name);
      const common = { type: "scatter", name: plain(name), legendgroup: name, showlegend: first, ...axes, x: part.x, y: part.y };
      const tip = part.text.map((text, i) => `<b>${plain(part.isOut ? "oom" : text)}</b><br>${plain([chart.title, part.name, `${chart.x} ${chart.labels[chart.ticks.indexOf(part.x[i])] ?? ""}`].filter(Boolean).join(", "))}`);
      const shown = { customdata: tip, hovertemplate: "%{customdata}<extra></extra>" };
      if (part.isOut) return { ...common, ...shown, mode: "markers", marker: { color: colour, size: 10, symbol: "x-thin", line: { color: colour, width: 2 } } };
      const joined = chart.ordered && new Set(part.x).size === part.x.length;
      return {
        ...common, ...shown, mode: joined ? "lines+markers" : "markers",
        error_y: { type: "data", symmetric: false, thickness: 1.2, width: 3, color: colour, array: part.above, arrayminus: part.below },
        line: { color: colour, width: 1.8, dash: DASHES[part.dash] }, marker: { color: colour, size: 7, symbol: SYMBOLS[(part.colour + 2 * part.dash) % SYMBOLS.length] },
      };
    });
    const across = panels.length === 1 ? 1 : Math.min(panels.length, width < NARROW ? 1 : width < 900 || panels.length === 4 ? 2 : 3);
    const legend = chart.legend && !legendIsBelow(traces, width) ? legendWidth(traces) : 0;
    const room = (width - 100 - legend) / across;
    const ends = parts.flatMap((part) => part.y.flatMap((value, i) => [value - part.below[i], value + part.above[i]]));
    const yAxis = yAxisOf(ends, isLog, compared);
    const logX = chart.numeric && chart.ticks[0] > 0;
    const xAxis = { type: logX ? "log" : "linear", showgrid: chart.numeric, zeroline: false, ...ticksOf(chart, logX, room) };
    const unit = compared ? chart.title : `${chart.title} (${chart.unit})`;
    return {
      traces,
      layout: {
        title: { text: `<b>${plain(unit)}</b>` }, margin: { l: 56, r: 12, t: panels.length > 1 ? 70 : 50, b: 48 }, showlegend: Boolean(chart.legend),
        legend: { title: { text: chart.legend === "option" ? "" : plain(chart.legend) } }, ...(panels.length === 1 && width < NARROW && { height: 320 }),
        ...panelAxes(panels, across, { xAxis, yAxis, room, xTitle: chart.x, yTitle: "" }),
      },
    };
  });
  return { traces: parts, hidden };
}

// The labels of the x axis, without those that would touch.
function ticksOf({ ticks, labels, numeric }, isLog, room) {
  if (!numeric) return { range: [ticks[0] - 0.5, ticks.at(-1) + 0.5], tickvals: ticks, ticktext: labels.map((text) => wrapped(text, room / labels.length - 4, { size: 12, most: 2 })) };
  if (ticks.length > 12) return {};
  const at = (number) => (isLog ? Math.log(number) : number);
  // The axis takes 0.86 of the room: the rest is for the labels of y, and for what is beyond the outer ticks.
  const place = (number) => (room * 0.86 * (at(number) - at(ticks[0]))) / (at(ticks.at(-1)) - at(ticks[0]) || 1);
  let free = -Infinity;
  const ticktext = ticks.map((number, i) => {
    const half = widthOf(labels[i]) / 2 + 3;
    if (place(number) - half < free) return "";
    free = place(number) + half;
    return labels[i];
  });
  return { tickvals: ticks, ticktext };
}

// The y axis of these numbers: with two ticks or more, however close they are; of differences, zero is drawn.
function yAxisOf(values, isLog, compared = false) {
  if (compared) { // Plotly finds no range for panels that share one with values below zero
    const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
    const room = 0.06 * (high - low || 1);
    return { type: "linear", range: [low && low - room, high && high + room], zeroline: true, zerolinewidth: 2 };
  }
  if (!isLog) return { type: "linear", rangemode: "tozero" };
  const shown = values.filter((value) => value > 0);
  if (!shown.length) return { type: "log" };
  let [low, high] = [Math.min(...shown), Math.max(...shown)];
  if (high / low < 1.1) [low, high] = [low / 1.1, high * 1.1];
  const room = (high / low) ** 0.07;
  const range = [Math.log10(low / room), Math.log10(high * room)];
  // From a decade on, ticks at 1, 2 and 5; within one, these may be too few.
  if (range[1] - range[0] > 1) return { type: "log", range, dtick: "D2", tickformat: "~r" };
  return { type: "log", range, tickvals: linearTicks(10 ** range[0], 10 ** range[1]), tickformat: "~r" };
}

// About six round numbers between two.
function linearTicks(low, high) {
  const rough = (high - low) / 6;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 5, 10].find((factor) => factor * size >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i += 1) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

// The axes of each panel, all of the same scale, and the panels' names.
function panelAxes(panels, across, { xAxis, yAxis, room, xTitle, yTitle }) {
  if (panels.length === 1) {
    return { xaxis: { ...xAxis, title: { text: plain(xTitle) } }, yaxis: { ...yAxis, title: { text: plain(yTitle) } } };
  }
  const down = Math.ceil(panels.length / across);
  const [gapX, gapY] = [across === 1 ? 0 : 0.05, down === 1 ? 0 : Math.min(0.16, 0.3 / down)];
  const [width, height] = [(1 - gapX * (across - 1)) / across, (1 - gapY * (down - 1)) / down];
  const layout = { annotations: [], height: Math.max(460, 150 + 210 * down) };
  panels.forEach(({ name, index }) => {
    const [row, column] = [Math.floor(index / across), index % across];
    const left = column * (width + gapX);
    const top = 1 - row * (height + gapY);
    const lowest = index + across >= panels.length;
    layout[`xaxis${index ? index + 1 : ""}`] = {
      ...xAxis, domain: [left, left + width], anchor: axisNumber("y", index), ...(index && { matches: "x" }),
      title: { text: lowest && column === Math.floor((across - 1) / 2) ? plain(xTitle) : "" }, showticklabels: lowest,
    };
    layout[`yaxis${index ? index + 1 : ""}`] = {
      ...yAxis, domain: [Math.max(0, top - height), top], anchor: axisNumber("x", index), ...(index && { matches: "y" }),
      title: { text: column === 0 ? plain(yTitle) : "", font: { size: 12 } }, showticklabels: column === 0,
    };
    layout.annotations.push({
      text: wrapped(name, room - 8), align: "left", x: left, xref: "paper", xanchor: "left", y: top, yref: "paper", yanchor: "bottom", showarrow: false, font: { size: 12 },
    });
  });
  return layout;
}
