// Reads cases as a JSON array from standard input, and prints the DMARC verdicts of mailauth as a JSON array.
// A case consists of TXT records by name, the names that exist, and the domains of a message.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const { dmarc } = createRequire(import.meta.url)('mailauth/lib/dmarc');

const resolverFor = ({ records, exists }) => async (name, type) => {
	if (type === 'TXT' && records[name]) return records[name].map(text => [text]);
	// A name also exists if a name below it does.
	const known = [...Object.keys(records), ...exists].some(other => other === name || other.endsWith('.' + name));
	throw Object.assign(new Error('no record'), { code: known ? 'ENODATA' : 'ENOTFOUND' });
};

const verdicts = [];
for (const c of JSON.parse(readFileSync(0, 'utf8'))) {
	const r = await dmarc({ headerFrom: ['a@' + c.from], spfDomains: [c.spf], dkimDomains: c.dkim.map(domain => ({ domain })),
		resolver: resolverFor(c) });
	verdicts.push({ result: r.status.result, record: r.policyDomain ?? '', policy: r.policy ?? '' });
}
console.log(JSON.stringify(verdicts));
