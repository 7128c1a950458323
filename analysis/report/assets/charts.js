// Charts: Plotly in the page's own colours, redrawn when these change.

// Okabe and Ito's colour-blind safe palette, without yellow, which has too little contrast on white.
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "circle-open", "square-open", "diamond-open"];
const DASHES = ["solid", "dash", "dot", "dashdot"];

// Listed one by one, because the default buttons include one that sends the chart to Plotly's server.
const BUTTONS = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"];

const drawn = new Map();

// Plotly interprets tags in texts; names from a store must stay plain text.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function draw(target, traces, layout) {
  drawn.set(target, { traces, layout });
  const { clientWidth } = target;
  const narrow = clientWidth < 560;
  const below = narrow || document.documentElement.classList.contains("printing");
  const legend = below ? { orientation: "h", y: -0.28, yanchor: "top", x: 0 } : { x: 1.02, y: 1, yanchor: "top" };
  const style = getComputedStyle(document.body);
  const ink = style.getPropertyValue("color");
  const line = resolved("--line");
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line, ticks: "outside", automargin: true };
  const styled = { hoverlabel: { bgcolor: resolved("--paper"), bordercolor: line, font: { color: ink, family: style.fontFamily } } };
  const axes = Object.fromEntries(["xaxis", "yaxis"].map((name) => {
    const title = { font: { size: 13 }, ...layout[name]?.title };
    return [name, { ...axis, ...layout[name], title }];
  }));
  const title = { font: { size: 12 }, ...layout.legend?.title };
  return Plotly.react(target, traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: style.fontFamily, size: narrow ? 12 : 13, color: ink },
    margin: { l: 56, r: 12, t: narrow ? 12 : 30, b: 48 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: resolved("--muted"), activecolor: ink },
    hovermode: "closest", ...styled, ...layout, ...axes, legend: { ...legend, title },
    width: clientWidth,
    height: layout.height ?? (narrow ? 420 : Math.min(Math.max(460, 30 + 20 * traces.length), 620)),
  }, { displaylogo: false, displayModeBar: narrow ? false : "hover", modeBarButtons: [BUTTONS] });
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
  for (const [target, { traces, layout }] of drawn) draw(target, traces, layout);
}

// Draws a figure made by charts.py: a trace's `colour` is an index into COLOURS, `lines` its points' tooltips.
function drawFigure(target, { traces, layout }) {
  const made = traces.map(({ colour, lines, ...trace }) => {
    const own = COLOURS[colour % COLOURS.length];
    const marker = { color: own, line: { width: 0 }, ...trace.marker };
    const styled = { ...trace, line: { color: own, ...trace.line }, marker };
    if (!lines) return styled;
    const texts = lines.map((text) => text.map(plain).join("<br>"));
    const bar = trace.type === "bar" ? { y: trace.y.map(plain) } : {};
    return { ...styled, ...bar, customdata: texts, hovertemplate: `${bar.y ? "<b>%{y}</b><br>" : ""}%{customdata}<extra>%{fullData.name}</extra>` };
  });
  const line = resolved("--muted");
  const shapes = layout.shapes?.map((shape) => ({ line: { color: line, width: 1, dash: "dot" }, ...shape }));
  const annotations = layout.annotations?.map((one) => ({ showarrow: false, font: { size: 12, color: line }, ...one }));
  draw(target, made, { ...layout, ...(shapes && { shapes }), ...(annotations && { annotations, margin: { l: 56, r: 12, t: 40, b: 48 } }) });
}
