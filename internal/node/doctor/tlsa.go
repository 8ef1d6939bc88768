package doctor

// TLSA holds the comparison of the TLSA records of a host that receives mail with its certificate.
type TLSA struct {
	Host      string
	Zone      string // signed, unsigned or unknown
	Published int    // number of records
	Problem   string // why senders that obey the records send no mail; "" if nothing is wrong
}

// checkTLSA judges TLSA records. A host without records needs none.
func checkTLSA(f *Facts) []Finding {
	o := one{id: "mx.tlsa"}
	for _, x := range f.TLSA {
		subject := "_25._tcp." + x.Host
		switch {
		case x.Problem != "":
			o.add(Failure, subject, "Mail from some senders waits: "+x.Problem+".", "Publish the records that `postrider policy tlsa` prints, or "+
				"go back to the former certificate until they are published.")
		case x.Published == 0:
		case x.Zone == "unsigned":
			o.add(Warning, subject, "The host has TLSA records, but its zone is not signed (DNSSEC), so senders ignore them.",
				"Sign the zone, or remove the records.")
		case x.Zone == "unknown":
			o.add(NotChecked, subject, "The host has TLSA records, but no DNS server of this machine validates signatures.",
				"Set dnssec_resolvers to a server that does.")
		default:
			o.ok(subject, "A TLSA record matches the certificate.")
		}
	}
	return o.all
}
