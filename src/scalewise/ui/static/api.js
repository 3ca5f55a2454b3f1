// Questions to the server. A newer question of the same kind gives up the older one.

export class Refused extends Error {
  constructor(body, status) {
    super(body.error || `the server answered ${status}`);
    this.hint = body.hint;
    this.field = body.field;
    this.status = status;
  }
}

const open = new Map();

export async function ask(path, body, { kind = path, progress } = {}) {
  open.get(kind)?.abort();
  const control = new AbortController();
  open.set(kind, control);
  const headers = { "content-type": "application/json" };
  if (progress) headers.accept = "application/x-ndjson";
  let response;
  try {
    response = await fetch(`/api/${path}`, body === null
      ? { headers, signal: control.signal }
      : { method: "POST", headers, body: JSON.stringify(body), signal: control.signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused({ error: "The server does not answer.", hint: "Is `scalewise ui` still running in its terminal?" }, 0);
  }
  if (progress && (response.headers.get("content-type") || "").includes("ndjson")) return lines(response, progress);
  const told = await response.json();
  if (!response.ok) throw new Refused(told, response.status);
  if (open.get(kind) === control) open.delete(kind);
  return told;
}

export function giveUp(kind) {
  open.get(kind)?.abort();
  open.delete(kind);
}

async function lines(response, progress) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    rest += value;
    for (let end; (end = rest.indexOf("\n")) >= 0; rest = rest.slice(end + 1)) {
      const told = JSON.parse(rest.slice(0, end));
      if (told.result) return told.result;
      if (told.refused) throw new Refused(told.refused, 400);
      progress(told.progress);
    }
  }
  throw new Refused({ error: "The answer broke off.", hint: "Try again." }, 0);
}
