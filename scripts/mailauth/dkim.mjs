// Prints the number of messages that have a DKIM signature and only valid ones, by the version of mailauth that is named
// in the first argument. Standard input is a JSON object with the paths of the messages and the TXT records by name.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const { dkimVerify } = createRequire(import.meta.url)(process.argv[2] + '/lib/dkim/verify');
const { files, records } = JSON.parse(readFileSync(0, 'utf8'));
const resolver = async (name) => {
	if (records[name]) return [[records[name]]];
	throw Object.assign(new Error('no record'), { code: 'ENOTFOUND' });
};
let valid = 0;
for (const file of files) {
	const { results } = await dkimVerify(readFileSync(file), { resolver });
	if (results.length && results.every((r) => r.status.result === 'pass')) valid++;
	else console.error(file, JSON.stringify(results.map((r) => [r.selector, r.status])));
}
console.log(valid);
