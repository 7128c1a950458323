// Number formatting by the rules of analysis/tables/number_format.py, so that page and command print the same digits.

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

// An interval that reaches this many times as far as the number is printed with an exponent instead of all digits.
const ALL_UNKNOWN = 1e4;

// ± is written if the nearer end of the interval is at least this share of the farther end's distance away.
const EVEN = 2 / 3;

// ± is also written if the two distances differ by at most this share of the number.
const ALL_BUT_EVEN = 0.01;

// The median and its interval as texts, the interval as ± 0.05 or [41, 117], or null if there is none.
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

// Whether median ± the distance to the farther end describes both ends fairly.
function isEven(median, low, high) {
  const [nearer, farther] = [median - low, high - median].sort((a, b) => a - b);
  const keepsSign = (low <= 0 || median > farther) && (high >= 0 || median < -farther);
  return (nearer >= EVEN * farther || farther - nearer <= ALL_BUT_EVEN * Math.abs(median)) && keepsSign;
}

const exponentOf = (value) => Math.floor(Math.log10(Math.abs(value)));

// toFixed rounds halves up; Python, whose digits the page must match, rounds them to even.
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

// A float as Python prints it, and so as `lmsweep table` writes it into CSV.
function floatText(value) {
  if (Number.isNaN(value)) return "";
  const exponent = value === 0 ? 0 : Number(value.toExponential().split("e")[1]);
  if (exponent < -4 || exponent >= 16) return withTwoDigitExponent(value.toExponential());
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}

const withTwoDigitExponent = (text) => text.replace(/e([+-])(\d)$/, "e$10$2");
