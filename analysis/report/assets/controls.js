// The page's controls: fields as chips, filters as menus, axes. Each changes the Explorer that it is given.

// A button for each workload's question; pressing it lays the table out to answer it.
function showViews(explorer) {
  const target = document.getElementById("views");
  if (explorer.views.length < 2) return;
  const same = (view) => ["rows", "cols", "values"].every((part) => view[part].join() === explorer[part].join())
    && Object.keys(explorer.where).length === 1 && [...view.where.workload].join() === [...(explorer.where.workload ?? [])].join();
  target.replaceChildren(...explorer.views.map(({ question, ...view }, i) => element("button", {
    type: "button", id: `view-${i}`, "aria-pressed": String(same({ ...view })),
    onclick: () => explorer.change({ ...view, drawn: null, x: null, colour: null, facet: null }),
  }, question)));
}

function showLayout(explorer) {
  const { results, values, rows, cols } = explorer;
  const varying = results.varying();
  const unused = (name) => !rows.includes(name) && !cols.includes(name);
  const free = varying.filter(unused);
  const same = Object.keys(results.data.keys).filter((name) => !varying.includes(name) && unused(name));
  document.getElementById("layout").replaceChildren(
    chips(explorer, "values", "Values", Object.keys(results.data.values).filter((name) => !values.includes(name))),
    chips(explorer, "rows", "Rows", free, same),
    chips(explorer, "cols", "Columns", free, same),
  );
}

function chips(explorer, part, title, free, same = []) {
  const chosen = explorer[part];
  const chip = (name, i) => element(
    "button", {
      type: "button", class: "chip", id: `${part}-${i}`, "aria-label": `remove ${name} from ${title}`,
      onclick: () => explorer.change({ [part]: chosen.filter((other) => other !== name) }),
    }, name, element("span", { "aria-hidden": "true" }, " ×"));
  const option = (name) => element("option", { value: name }, name);
  const add = element(
    "select", {
      id: `add-${part}`, "aria-label": `add to ${title}`,
      onchange: (event) => explorer.change({ [part]: [...chosen, event.target.value] }),
    },
    element("option", { value: "" }, "add…"), ...free.map(option),
    same.length ? element("optgroup", { label: "same in all results" }, ...same.map(option)) : null);
  return element("fieldset", {}, element("legend", {}, title), ...chosen.map(chip), add);
}

function showFilters(explorer) {
  if (!explorer.filters) {
    explorer.filters = explorer.results.worthFiltering().map((name) => filter(explorer, name));
    document.getElementById("filters").replaceChildren(...explorer.filters.map(({ menu }) => menu));
  }
  for (const { update } of explorer.filters) update();
}

function filter(explorer, name) {
  const { labels } = explorer.results.data.keys[name];
  const choose = (codes) => {
    const { [name]: _, ...where } = explorer.where;
    if (codes.size < labels.length) where[name] = codes;
    explorer.change({ where });
  };
  const boxes = labels.map(() => element(
    "input", { type: "checkbox", onchange: () => choose(new Set(boxes.flatMap((box, code) => (box.checked ? [code] : [])))) }));
  const lines = labels.map((text, code) => element("label", {}, boxes[code], ` ${text}`));
  const all = element("button", { type: "button", onclick: () => choose(new Set(labels.keys())) }, "all");
  const summary = element("summary");
  const menu = element("details", { class: "filter", name: "filter" }, summary, element("div", { class: "menu" }, ...lines, all));
  const update = () => {
    const chosen = explorer.where[name];
    boxes.forEach((box, code) => { box.checked = !chosen || chosen.has(code); });
    const words = labels.filter((_, code) => chosen?.has(code));
    const said = words.length > 2 ? `${words.length} of ${labels.length}` : words.join(", ") || "none";
    summary.replaceChildren(name, chosen ? element("b", {}, ` ${said}`) : "");
    menu.classList.toggle("active", Boolean(chosen));
  };
  return { menu, update };
}

function showAxisControls(explorer, { values, value, possible, others, x, colour, facet, numeric }) {
  const select = (id, text, names, chosen, part) => (names.length ? [element(
    "label", {}, `${text} `,
    element("select", { id, onchange: (event) => explorer.change({ [part]: event.target.value }) },
      ...names.map((name) => element("option", { value: name, selected: name === chosen }, name))))] : []);
  const box = (id, text, part) => element(
    "label", {},
    element("input", { id, type: "checkbox", checked: explorer[part], onchange: (event) => explorer.change({ [part]: event.target.checked }) }),
    ` ${text}`);
  document.getElementById("axes").replaceChildren(
    ...select("drawn", "y axis", values.length > 1 ? values : [], value, "drawn"),
    ...select("x-axis", "x axis", possible, x, "x"),
    ...select("colour", "colour by", others.filter((name) => !facet?.includes(name)), colour, "colour"),
    ...(others.length > 1 ? [element(
      "label", {}, "panels by ",
      element("select", { id: "facet", onchange: (event) => explorer.change({ facet: event.target.value.split(",").filter(Boolean) }) },
        element("option", { value: "", selected: !facet.length }, "none"),
        ...[...new Set([...others, ...(facet.length > 1 ? [facet.join(",")] : [])])].map(
          (name) => element("option", { value: name, selected: name === facet.join(",") }, name.replaceAll(",", ", ")))))] : []),
    ...(numeric ? [box("log-x", "log x", "logX")] : []),
    box("log-y", "log y", "logY"),
  );
}
