// Requests to the server. A newer request of the same kind aborts the older one.

// An error of the server: one sentence, a hint, and the field it is about.
export class Refused extends Error {
  constructor(body, status) {
    super(body.error || `HTTP status ${status}`);
    this.hint = body.hint;
    this.field = body.field;
    this.status = status;
  }
}

const open = new Map();

// POST a body, or GET if it is null. `progress` receives fractions of a long answer.
export async function ask(path, body, { kind = path, progress } = {}) {
  open.get(kind)?.abort();
  const control = new AbortController();
  open.set(kind, control);
  const headers = { "content-type": "application/json" };
  if (progress) headers.accept = "application/x-ndjson";
  let response;
  try {
    response = await fetch(
      `/api/${path}`,
      body === null
        ? { headers, signal: control.signal }
        : { method: "POST", headers, body: JSON.stringify(body), signal: control.signal },
    );
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(
      {
        error: "the server does not respond",
        hint: "check that `scalewise ui` is still running",
      },
      0,
    );
  }
  if (progress && (response.headers.get("content-type") || "").includes("ndjson"))
    return lines(response, progress);
  const answer = await response.json();
  if (!response.ok) throw new Refused(answer, response.status);
  if (open.get(kind) === control) open.delete(kind);
  return answer;
}

export function giveUp(kind) {
  open.get(kind)?.abort();
  open.delete(kind);
}

// NDJSON: progress, then a result or an error.
async function lines(response, progress) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    rest += value;
    for (let end; (end = rest.indexOf("\n")) >= 0; rest = rest.slice(end + 1)) {
      const answer = JSON.parse(rest.slice(0, end));
      if (answer.result) return answer.result;
      if (answer.refused) throw new Refused(answer.refused, 400);
      progress(answer.progress);
    }
  }
  throw new Refused({ error: "the connection was closed", hint: "try again" }, 0);
}
