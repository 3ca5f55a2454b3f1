// Names of the catalog found by parts of them, as `ask/names.py` finds them.

const plain = (text) => text.toLowerCase().replace(/[^a-z0-9]/g, "");

const words = (text) => text.toLowerCase().match(/[a-z]+|[0-9]+(?:\.[0-9]+)?[a-z]*/g) || [];

// Whether a name starts with the letters and digits of a text: an A10 is no A100.
function starts(name, text) {
  let left = plain(text),
    rest = name.toLowerCase();
  for (; rest && left; rest = rest.slice(1)) {
    if (!/[a-z0-9]/.test(rest[0])) continue;
    if (rest[0] !== left[0]) return false;
    left = left.slice(1);
  }
  return !left && !(/^[0-9]/.test(rest) && /[0-9]$/.test(text));
}

// How well a name fits what was typed; 0 if it does not.
export function score(wanted, name) {
  if (!plain(wanted)) return 1;
  if (plain(wanted) === plain(name)) return 100;
  if (starts(name, wanted)) return 80;
  const asked = words(wanted),
    has = words(name);
  if (asked[0] && asked[0].length === 1)
    asked[0] = { l: "llama", g: "gpt", q: "qwen", m: "mistral" }[asked[0]] || asked[0];
  if (!asked.length || !asked.every((a) => has.some((each) => starts(each, a))))
    return plain(name).includes(plain(wanted)) ? 5 : 0;
  return 20 + 10 * asked.filter((a) => has.includes(a)).length - Math.min(has.length, 9);
}
