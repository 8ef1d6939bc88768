package doctor

import (
	"net/netip"
	"strings"
)

// List is a block list in the DNS (RFC 5782).
type List struct {
	Zone  string // without the key of a customer
	Names bool   // a list of names, not of addresses
	// Alive is whether the list has its test entry and lacks the entry that must not exist. A list that was given up may
	// answer everything.
	Alive   bool
	Err     error // of the look-ups of these entries
	Entries []Entry
}

// Entry is the answer of a list about one address or name.
type Entry struct {
	Subject string
	Answers []netip.Addr // none if the subject is not listed
	Err     error        // no answer; the error for a name that does not exist does not count
}

// refusals are the answers with which lists refuse a question. They do not mean that the subject is listed.
var refusals = netip.MustParsePrefix("127.255.255.0/24")

// answersOfLists are the answers that mean that the subject is listed.
var answersOfLists = netip.MustParsePrefix("127.0.0.0/8")

func checkLists(f *Facts) []Finding {
	o := one{id: "block_list"}
	for _, l := range f.Lists {
		o.checkList(&l)
	}
	return o.all
}

func (o *one) checkList(l *List) {
	var clean, unknown []string
	for _, e := range l.Entries {
		refused, listed := false, false
		for _, a := range e.Answers {
			refused = refused || refusals.Contains(a) || !answersOfLists.Contains(a)
			listed = listed || answersOfLists.Contains(a)
		}
		switch {
		case e.Err != nil || refused:
			unknown = append(unknown, e.Subject)
		case !listed:
			clean = append(clean, e.Subject)
		case l.Alive:
			o.add(Failure, e.Subject+" in "+l.Zone, "The block list has "+e.Subject+" ("+joined(e.Answers)+"), so servers "+
				"that use it refuse email.", "Find out why on the web page of the list, remove the cause, and ask there for "+
				"removal.")
		}
	}
	switch {
	case !l.Alive && l.Err == nil:
		o.add(NotChecked, l.Zone, "The block list does not have the test entries of RFC 5782, so its answers mean "+
			"nothing. It may have been given up, or it refuses the question.", "Remove it from the settings, or ask through "+
			"a DNS server of your own.")
	case l.Err != nil || len(unknown) > 0:
		o.add(NotChecked, l.Zone, "The block list does not answer this machine's questions. Many lists refuse those of "+
			"public DNS servers and those of heavy users.", "Run a DNS server on this machine and set dns_servers to it, or "+
			"get a key from the list.")
	case len(clean) > 0 && len(clean) == len(l.Entries):
		o.ok(l.Zone, "The block list does not have %s.", strings.Join(clean, ", "))
	}
}
