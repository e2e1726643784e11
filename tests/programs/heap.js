// A node program with a large heap: objects, strings, arrays and a Map that stay alive while
// others come and go. Prints a digest that depends on every object.
//
//     node heap.js ENTRIES          about 0.6 KB per entry
'use strict';
const { createHash } = require('crypto');

let state = 12345;
function random(below) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 4294967296) * below);
}

function entry(i) {
  return {
    id: i,
    name: `entry ${i} of kind ${random(100)}`,
    values: Array.from({ length: 24 }, () => random(1e9)),
    parts: { left: `l${random(1e6)}`, right: `r${random(1e6)}`, weight: random(1000) / 7 },
  };
}

function replaceSome(store, count, rounds) {
  for (let n = 0; n < rounds; n++) {
    const i = random(count);
    const old = store.get(i);
    const fresh = entry(i);
    fresh.values[0] = old.values[23] ^ old.id;
    store.set(i, fresh);
  }
}

function digest(store) {
  const hash = createHash('sha256');
  for (const [i, e] of store) {
    hash.update(`${i}:${e.name}:${e.values.join()}:${e.parts.left}${e.parts.right}${e.parts.weight}`);
  }
  return hash.digest('hex');
}

const count = Number(process.argv[2]);
const store = new Map();
for (let i = 0; i < count; i++) store.set(i, entry(i));
replaceSome(store, count, count);
console.log(`${store.size} entries, ${digest(store)}`);
