// Reads handwritten digits in Node, by WebAssembly: node digits.mjs digits.wasm FILE. Each 64 floats of the file, 8 x 8 pixels of 0
// to 1, are one. Prints a line for each. A browser does the same; it only gets the two files in another way.
import { readFileSync } from "node:fs";

const PIXELS = 64, CLASSES = 10, ALIGNMENT = 64; // DIGITS_INPUT_image, DIGITS_OUTPUT_logits, DIGITS_ALIGNMENT
const PAGE = 65536;

class Digits {
  constructor(bytes) {
    this.wasm = new WebAssembly.Instance(new WebAssembly.Module(bytes), {}).exports;
    this.end = this.wasm.__heap_base.value; // memory behind it is ours
    const nbytes = this.wasm.digits_arena_size();
    this.arena = this.taken(nbytes);
    this.image = this.taken(4 * PIXELS);
    this.logits = this.taken(4 * CLASSES);
    this.inputs = this.taken(4); // structs of one pointer
    this.outputs = this.taken(4);
    const words = new DataView(this.wasm.memory.buffer);
    words.setUint32(this.inputs, this.image, true);
    words.setUint32(this.outputs, this.logits, true);
    this.check(this.wasm.digits_init(this.arena, nbytes, this.wasm.digits_weights.value));
  }

  taken(nbytes) {
    const start = Math.ceil(this.end / ALIGNMENT) * ALIGNMENT;
    this.end = start + nbytes;
    const missing = this.end - this.wasm.memory.buffer.byteLength;
    if (missing > 0) this.wasm.memory.grow(Math.ceil(missing / PAGE));
    return start;
  }

  check(code) {
    if (code === 0) return;
    const bytes = new Uint8Array(this.wasm.memory.buffer, this.wasm.digits_error(code));
    throw new Error(Buffer.from(bytes.subarray(0, bytes.indexOf(0))).toString());
  }

  read(image) {
    new Float32Array(this.wasm.memory.buffer, this.image, PIXELS).set(image);
    this.check(this.wasm.digits_run(this.arena, this.inputs, this.outputs, 0));
    const logits = new Float32Array(this.wasm.memory.buffer, this.logits, CLASSES);
    return logits.indexOf(Math.max(...logits));
  }
}

const [program, file] = process.argv.slice(2);
const digits = new Digits(readFileSync(program));
const content = readFileSync(file);
const floats = new Float32Array(content.buffer.slice(content.byteOffset, content.byteOffset + content.byteLength));
for (let at = 0; at + PIXELS <= floats.length; at += PIXELS) console.log(digits.read(floats.subarray(at, at + PIXELS)));
