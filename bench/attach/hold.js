// As hold.py, with node's own threads: hold.js MIB
'use strict';
const net = require('net');

function content(number, version) {
  return Buffer.alloc(1000, `${number} ${version} `).toString('latin1');
}

const count = Number(process.argv[2]) * 1000;
const blocks = [];
const versions = new Uint32Array(count);
for (let i = 0; i < count; i++) blocks.push(content(i, 0));
let answers = 0;
// A connection to itself: epoll_wait.
const server = net.createServer((peer) => peer.pipe(peer)).listen(0, '127.0.0.1', () => {
  const own = net.connect(server.address().port, '127.0.0.1');
  own.on('data', (bytes) => { answers += bytes.length; });
  for (const what of [server, own]) what.on('error', (error) => { console.log('wrong', error); process.exit(1); });
  console.log('ready');
  const part = Math.floor(count / 10);
  let at = 0;
  let done = 0;
  setInterval(() => {
    for (let n = at; n < at + part; n++) {
      const number = n % count;
      if (blocks[number] !== content(number, versions[number])) {
        console.log('wrong', number);
        process.exit(1);
      }
      if (number % 3 === 0) blocks[number] = content(number, ++versions[number]);
    }
    at = (at + part) % count;
    own.write('x');
    if (done > 50 && answers < done - 40) {
      console.log('wrong: no answers');
      process.exit(1);
    }
    console.log(done++);
  }, 50);
});
