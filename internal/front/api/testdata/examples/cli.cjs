// Runs commands of the official CLI one after another in one process, because a process for each would take a quarter
// of a second. Each line of file descriptor 3 is a JSON list with the words of a command. The line after the output of a
// command begins with the record separator and has the exit code.
//
// Each command gets the CLI's program anew, and an object process of its own. A command is complete when it calls
// process.exit, or when nothing is left to do, as in a process of its own. Nothing after process.exit has an effect.
const { EventEmitter } = require('node:events');
const { readFileSync, readSync } = require('node:fs');
const { dirname } = require('node:path');
const vm = require('node:vm');

const path = process.env.CLI;
const names = ['exports', 'require', 'module', '__filename', '__dirname', 'process'];
const program = vm.compileFunction(readFileSync(path, 'utf8').replace(/^#!.*/, ''), names, { filename: path });

class Exit extends Error {}

for (const event of ['uncaughtException', 'unhandledRejection']) {
  process.on(event, (error) => {
    if (!(error instanceof Exit)) throw error;
  });
}

function start(words) {
  const command = Object.create(process);
  const define = (name, value) => Object.defineProperty(command, name, { value, writable: true });
  const stream = (to) => Object.assign(Object.create(to), { write: (...of) => command.ended || to.write(...of) });
  define('argv', [process.execPath, path, ...words]);
  define('stdout', stream(process.stdout));
  define('stderr', stream(process.stderr));
  define('ended', false);
  define('exitCode', undefined);
  define('exit', (code) => {
    if (!command.ended) command.exitCode = code ?? command.exitCode;
    command.ended = true;
    throw new Exit();
  });
  const events = new EventEmitter();
  for (const name of ['on', 'once', 'off', 'emit', 'addListener', 'removeListener', 'removeAllListeners', 'listeners']) {
    define(name, events[name].bind(events));
  }
  const load = (name) => (name === 'process' || name === 'node:process' ? command : require(name));
  const module = { exports: {} };
  setImmediate(() => program(module.exports, load, module, path, dirname(path), command));
  return command;
}

function nextLine() {
  const byte = Buffer.alloc(1), line = [];
  while (readSync(3, byte) === 1 && byte[0] !== 10) line.push(byte[0]);
  return Buffer.from(line).toString();
}

let running;
process.on('beforeExit', () => {
  if (running) process.stdout.write('\x1e' + (running.exitCode ?? 0) + '\n');
  const line = nextLine();
  running = line === '' ? undefined : start(JSON.parse(line));
});
