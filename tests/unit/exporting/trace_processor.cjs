// Perfetto's own trace processor, compiled to wasm, behind a pipe: requests in on stdin, replies out on stdout.
// Both are what its RPC speaks (TraceProcessorRpcStream), so nothing is decoded here.
//
// Usage: node trace_processor.cjs FOLDER, with engine_bundle.js and the wasm files of Perfetto's web build in FOLDER.
// The bundle is a web worker: it wants to see one, a synchronous request for its wasm, and a port to talk over.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const folder = process.argv[2];
const { stdin, stdout, stderr, exit } = process;
const say = (...words) => stderr.write(words.join(" ") + "\n"); // stdout is for replies
Object.assign(console, { log: say, warn: say, info: say });

class FileRequest {
  open(_method, address) {
    this.file = path.join(folder, path.basename(address));
  }
  send() {
    this.status = 200;
    this.response = new Uint8Array(fs.readFileSync(this.file)).buffer;
  }
}
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = Object;
globalThis.location = { href: "file:///" };
globalThis.XMLHttpRequest = FileRequest;

const script = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
globalThis.process = undefined; // else the bundle takes this for Node, which it was not built for
try {
  vm.runInThisContext(script, { filename: "engine_bundle.js" });
} catch (error) {
  say(String(error.stack).slice(-2000)); // without `process`, Node can't say it itself
  exit(1);
}
const port = { postMessage: (bytes) => stdout.write(Buffer.from(bytes)) };
globalThis.onmessage({ data: port });

// The processor begins in a promise that is resolved by now: one turn of the event loop later it runs.
setTimeout(() => {
  stdin.on("data", (chunk) => {
    try {
      port.onmessage({ data: new Uint8Array(chunk) });
    } catch (error) {
      say(String(error.stack).slice(-2000));
      exit(1);
    }
  });
  stdin.on("end", () => exit(0));
}, 0);
