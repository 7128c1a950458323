// Numbers as people read them: the rules of analysis/tables/number_format.py, so that page and command print the same digits.

function chooseUnit(units, stored, values) {
  const choices = units[stored] ?? [[stored, 1]];
  const known = values.filter((value) => value && !Number.isNaN(value)).map(Math.abs).sort((a, b) => a - b);
  if (!known.length) return unit(choices.at(-1));
  const middle = known[(known.length - 1) >> 1];
  return unit(choices.findLast(([, size]) => size <= middle) ?? choices[0]);
}

const unit = ([name, size]) => ({ name, size });

function numberText(value) {
  if (Number.isInteger(value)) return value.toFixed(0);
  if (Math.abs(value) < 1e-4) return withTwoDigitExponent(value.toExponential(3));
  return fixed(value, 3 - exponentOf(value));
}

// Where an interval reaches so many times as far as the number, nothing is known, and its digits would fill a line.
const ALL_UNKNOWN = 1e4;

// Share of the distance to the farther end that the nearer one has to be away for ± to say it of both.
const EVEN = 2 / 3;

// Share of the number by which the distances may differ all the same: to read ± then misleads nobody.
const ALL_BUT_EVEN = 0.01;

// The median and its interval, as ± 0.05 or as [41, 117], or null for the interval.
function intervalTexts(median, low, high) {
  const distance = Math.max(median - low, high - median);
  if (Number.isNaN(distance) || distance === 0) return [numberText(median), null];
  const even = isEven(median, low, high);
  const written = (print) => (even ? `± ${print(distance)}` : `[${print(low)}, ${print(high)}]`);
  if (median !== 0 && distance >= ALL_UNKNOWN * Math.abs(median)) {
    return [fixed(median, 1 - exponentOf(median)), written((end) => withTwoDigitExponent(end.toExponential(0)))];
  }
  const measure = even ? distance : high - low;
  const digits = !even || measure < 2 * 10 ** exponentOf(measure) ? 2 : 1;
  let decimals = digits - 1 - exponentOf(measure);
  if (median !== 0) decimals = Math.max(decimals, 1 - exponentOf(median));
  return [fixed(median, decimals), written((end) => fixed(end, decimals))];
}

// Whether median ± distance says the same as both ends.
function isEven(median, low, high) {
  const [nearer, farther] = [median - low, high - median].sort((a, b) => a - b);
  const keepsSign = (low <= 0 || median > farther) && (high >= 0 || median < -farther);
  return (nearer >= EVEN * farther || farther - nearer <= ALL_BUT_EVEN * Math.abs(median)) && keepsSign;
}

const exponentOf = (value) => Math.floor(Math.log10(Math.abs(value)));

// toFixed rounds halves up; Python, whose tables this page agrees with, rounds them to even.
function fixed(value, decimals) {
  if (decimals < 0) {
    const step = 10 ** -decimals;
    return (Number(fixed(value / step, 0)) * step).toFixed(0);
  }
  const text = value.toFixed(decimals);
  const exact = value.toFixed(Math.min(decimals + 30, 100));
  const rest = exact.slice(exact.indexOf(".") + 1 + decimals);
  const isHalf = /^50*$/.test(rest);
  return isHalf && "13579".includes(text.at(-1)) ? exact.slice(0, exact.length - rest.length).replace(/\.$/, "") : text;
}

// As Python writes a float, and so CSV files of `lmsweep table`.
function floatText(value) {
  if (Number.isNaN(value)) return "";
  const exponent = value === 0 ? 0 : Number(value.toExponential().split("e")[1]);
  if (exponent < -4 || exponent >= 16) return withTwoDigitExponent(value.toExponential());
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}

const withTwoDigitExponent = (text) => text.replace(/e([+-])(\d)$/, "e$10$2");
