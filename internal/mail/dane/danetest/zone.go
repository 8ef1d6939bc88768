package danetest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// zone is a DNS zone.
type zone struct {
	name    string
	unsafe  bool     // not signed
	badDS   bool     // the parent's DS record belongs to another key
	options []string // of ldns-signzone
	records []string
	edits   []edit

	file string // with the finished zone
	ds   string // "" if the zone is not signed
}

// edit is a change of a zone after it was signed.
type edit struct {
	owner, kind string // of the record
	from, to    string // part of the record's data that is replaced; if to is "", the record is deleted
}

func (z *zone) add(records ...string) { z.records = append(z.records, records...) }

// sign writes the zone to its file.
func (z *zone) sign(l *Lab) {
	l.t.Helper()
	text := "$TTL 300\n" + z.name + ". SOA ns." + Zone + ". root." + Zone + ". 1 3600 600 86400 300\n" +
		z.name + ". NS ns." + Zone + ".\n" + strings.Join(z.records, "\n") + "\n"
	plain := filepath.Join(l.dir, z.name+".zone")
	write(l.t, plain, text)
	if z.file = plain; z.unsafe {
		return
	}
	key := l.run("ldns-keygen", "ldnsutils", "-a", "ECDSAP256SHA256", "-k", z.name)
	z.file = plain + ".signed"
	l.run("ldns-signzone", "ldnsutils", slices.Concat(z.options, []string{"-f", z.file, plain, key})...)
	if z.badDS {
		key = l.run("ldns-keygen", "ldnsutils", "-a", "ECDSAP256SHA256", "-k", z.name)
	}
	ds, err := os.ReadFile(filepath.Join(l.dir, key+".ds"))
	if err != nil {
		l.t.Fatal(err)
	}
	z.ds = strings.TrimSpace(string(ds))
	z.edit(l)
}

// edit changes the signed zone.
func (z *zone) edit(l *Lab) {
	l.t.Helper()
	if len(z.edits) == 0 {
		return
	}
	signed, err := os.ReadFile(z.file)
	if err != nil {
		l.t.Fatal(err)
	}
	lines := strings.Split(string(signed), "\n")
	for _, e := range z.edits {
		found := false
		for i, line := range lines {
			fields := strings.Fields(line)
			if len(fields) < 5 || !strings.EqualFold(fields[0], e.owner+".") || fields[3] != e.kind {
				continue
			}
			at := strings.Index(line, e.kind) + len(e.kind)
			if !strings.Contains(line[at:], e.from) {
				continue
			}
			if found = true; e.to == "" {
				lines[i] = ""
			} else {
				lines[i] = line[:at] + strings.Replace(line[at:], e.from, e.to, 1)
			}
		}
		if !found {
			l.t.Fatalf("the zone %s has no record for the change %+v:\n%s", z.name, e, signed)
		}
	}
	write(l.t, z.file, strings.Join(lines, "\n"))
}
