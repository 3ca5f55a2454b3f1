// Perfetto's trace processor behind an HTTP address, for the Python package `perfetto`.
//
//     node bridge.cjs FOLDER     prints the port on 127.0.0.1 it listens on, then serves
//
// FOLDER holds a build of Perfetto's page: engine_bundle.js, which is its web worker, and
// trace_processor.wasm, which that loads. It is run as it is, in a context that looks like a
// browser's. The page talks to it in streams of TraceProcessorRpc
// messages; the Python client posts the arguments alone to one address per method. Between
// the two, this adds and removes the envelope. It ends when its standard input does, so that no
// test leaves it behind.
"use strict";

const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const vm = require("node:vm");

// Numbers of TraceProcessorRpc, from trace_processor.descriptor of the PyPI package `perfetto`:
// what the client asks for, as [method, field of the arguments, field of the answer].
const METHODS = {
  "/parse": [1, 101, 201],
  "/notify_eof": [2, 0, 212],
  "/query": [3, 103, 203],
  "/status": [10, 0, 210],
};
const REQUEST = 2;
const INVALID_REQUEST = 4;
const FATAL_ERROR = 5;
const APPEND_ERROR = 2; // AppendTraceDataResult.error
const FINALIZE_ERROR = 1; // FinalizeDataResult.error
const QUERY_ERROR = 2; // QueryResult.error

// Protocol buffers, as far as an envelope needs them.

function varint(number) {
  const bytes = [];
  for (; number > 127; number = Math.floor(number / 128)) bytes.push((number % 128) | 128);
  return Buffer.from([...bytes, number]);
}

function field(number, bytes) {
  return Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes]);
}

// The fields of a message as [number, bytes or integer].
function* fields(message) {
  let at = 0;
  const next = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = message[at++];
      if (byte === undefined) throw new Error("a message ends within a number");
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = next();
    const kind = tag % 8;
    const size = { 0: 0, 1: 8, 5: 4 }[kind] ?? next();
    if (at + size > message.length) throw new Error("a message ends within a field");
    yield [Math.floor(tag / 8), kind === 0 ? next() : message.subarray(at, at + size)];
    at += size;
  }
}

function text(message, number) {
  for (const [found, value] of fields(message)) if (found === number) return value.toString();
  return "";
}

// Start the worker; resolves to a function that sends it bytes and returns the bytes it replies.
async function startWorker(folder) {
  let replies = [];
  const port = { postMessage: (bytes) => replies.push(Buffer.from(bytes)) };
  const log = (...words) => console.error(...words);
  const self = { location: { href: "http://127.0.0.1/engine_bundle.js" } };
  const context = vm.createContext({
    self,
    WorkerGlobalScope: Object,
    XMLHttpRequest: class {
      open(method, name) {
        this.file = path.join(folder, path.basename(name));
      }
      send() {
        this.response = new Uint8Array(fs.readFileSync(this.file)).buffer;
      }
    },
    Uint8Array, // the worker asks whether a message is one: it must be the same class
    console: { log, warn: log, error: log },
    ...{ URL, TextDecoder, TextEncoder, performance },
    ...{ setTimeout, clearTimeout, setInterval, clearInterval },
  });
  // The worker tries whether it may have memory of 64 bits, with a module that is nothing but a
  // memory (section 5), and would then take another program. Refused, it takes the same one in
  // every version of Node.
  const assembly = vm.runInContext("WebAssembly", context);
  assembly.Module = class extends assembly.Module {
    constructor(bytes) {
      if (new Uint8Array(bytes)[8] === 5) throw new Error("no memory of 64 bits");
      super(bytes);
    }
  };
  const file = path.join(folder, "engine_bundle.js");
  // The bundle is one line of 150 kB, which an error need not show.
  const options = { filename: file, displayErrors: false };
  vm.runInContext(fs.readFileSync(file, "utf8"), context, options);
  // It compiles the program at once, and starts it in promises that this outwaits.
  await new Promise(setImmediate);
  self.onmessage({ data: port });
  return (bytes) => {
    replies = [];
    port.onmessage({ data: bytes });
    return Buffer.concat(replies);
  };
}

// One call: the arguments in, the answer out, both without their envelope.
function call(send, [method, argument, answer], body) {
  const request = [varint(REQUEST * 8), varint(method)];
  if (argument) request.push(field(argument, body));
  const parts = [];
  for (const [, message] of fields(send(field(1, Buffer.concat(request))))) {
    for (const [number, value] of fields(message)) {
      if (number === FATAL_ERROR) throw new Error(`fatal error: ${value}`);
      if (number === INVALID_REQUEST) throw new Error(`no such method: ${value}`);
      // A long answer comes in several messages; one after the other, their bytes are the whole.
      if (number === answer) parts.push(value);
    }
  }
  return Buffer.concat(parts);
}

async function main(folder) {
  const send = await startWorker(folder);
  let broken = ""; // why the trace could not be read
  const serve = (name, body) => {
    // The client does not look at what the end of a trace answers: tell it when it next asks.
    if (name === "/query" && broken) return field(QUERY_ERROR, Buffer.from(broken));
    const answer = call(send, METHODS[name], body);
    if (name === "/parse") broken = text(answer, APPEND_ERROR);
    if (name === "/notify_eof") broken ||= text(answer, FINALIZE_ERROR);
    return answer;
  };
  const server = http.createServer((request, response) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      try {
        if (!Object.hasOwn(METHODS, request.url)) throw new Error(`no bridge to ${request.url}`);
        response.end(serve(request.url, Buffer.concat(chunks)));
      } catch (error) {
        console.error(error);
        request.socket.destroy(); // the client reads any body as an answer: give it none
      }
    });
  });
  server.keepAliveTimeout = 0; // tests may think for minutes between two queries
  server.listen(0, "127.0.0.1", () => console.log(server.address().port));
}

process.stdin.on("end", () => process.exit(0)).resume();
main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
