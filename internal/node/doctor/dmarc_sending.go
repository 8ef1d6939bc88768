package doctor

import "fmt"

// DMARCSending describes what was counted today for the DMARC reports that this installation sends.
type DMARCSending struct {
	Messages int64 // received messages
	Domains  int   // domains that ask for a report
	More     bool  // there are more domains
	Err      error
}

// checkDMARCSending says what waits for the next DMARC reports, because nothing is sent before midnight.
func checkDMARCSending(f *Facts) []Finding {
	o := one{id: "dmarc.sending"}
	const subject = "DMARC reports about other domains"
	switch x := f.DMARCSending; {
	case x == nil:
	case x.Err != nil:
		o.add(NotChecked, subject, "The counts of today cannot be read: "+x.Err.Error()+".",
			"See the findings about the database.")
	default:
		domains := fmt.Sprint(x.Domains)
		if x.More {
			domains = "at least " + domains
		}
		o.ok(subject, "Today (UTC), %d messages were counted, and %s domains ask for a report. The reports are sent after "+
			"midnight if there are at least 100 messages.", x.Messages, domains)
	}
	return o.all
}
