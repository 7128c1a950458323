// A table as `lmsweep table --format csv` writes it, and the download of files.

function csvOf(table, results) {
  const { rows, cols, values, rowKeys, columnKeys, units } = table;
  const lines = [[...rows, ...cols, "value", "unit", "status", "median", "low", "high", "flags", "reason"]];
  rowKeys.forEach((rowKey, row) => {
    columnKeys.forEach((columnKey, column) => {
      const cell = table.cell(row, column);
      if (!cell) return;
      const index = columnKey.at(-1);
      lines.push([
        ...rows.map((name, i) => results.csvLabel(name, rowKey[i])),
        ...cols.map((name, i) => results.csvLabel(name, columnKey[i])),
        values[index], units[index] ?? "", cell.status,
        ...[cell.median, cell.low, cell.high].map(floatText), cell.flags.join(" "), cell.reason,
      ]);
    });
  });
  return lines.map((line) => `${line.map(quoted).join(",")}\n`).join("");
}

// What a table shows, as CSV.
function csvOfTable(table) {
  const lines = [columnNames(table), ...shownRows(table).map((row) => [...row.cells].map(cellText))];
  return lines.map((line) => `${line.map(quoted).join(",")}\n`).join("");
}

const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
