// Keeps LIVE MiB of records in a map, and replaces records at random, ROUNDS times as many as there are.
'use strict';

let state = 12345;
function random(below) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 4294967296) * below);
}

function fresh(id) {
  return { id, name: `record ${id} of kind ${random(100)}`, values: Array.from({ length: 24 }, () => random(1e6)) };
}

const count = Math.floor((Number(process.argv[2]) * 1048576) / 330);
const rounds = Number(process.argv[3]);
const all = new Map();
for (let id = 0; id < count; id++) all.set(id, fresh(id));
for (let n = 0; n < rounds * count; n++) {
  const id = random(count);
  const one = fresh(id);
  one.values[0] = all.get(id).values[23];
  all.set(id, one);
}
let sum = 0;
for (const one of all.values()) sum = (sum * 31 + one.values[0] + one.name.length) % 1000000007;
console.log(`${count} records ${sum}`);
