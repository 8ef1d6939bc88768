// Runs examples one after another in one process. Each line of the input is the path of an example. The values that an
// example prints are written as JSON, one on each line. The line after them begins with the record separator and says
// whether the example succeeded.
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

console.log = (...values) => values.forEach((v) => process.stdout.write(JSON.stringify(v) + '\n'));

for await (const path of createInterface({ input: process.stdin })) {
  let result = 'ok';
  try {
    await import(pathToFileURL(path));
  } catch (error) {
    result = String(error).replaceAll('\n', ' ');
  }
  process.stdout.write('\x1e' + result + '\n');
}
