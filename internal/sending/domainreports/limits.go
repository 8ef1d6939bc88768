package domainreports

import "github.com/postrider/postrider/internal/mail/dmarcrpt"

// These are the limits of a domain and day, and the part of them that one reporter can use. Reporters that are not
// well-known can use half of the limits together, so that a flood of signed reports leaves room for others.
const (
	maxDayReports  = 2000
	maxDayUnproven = 200
	maxDayRows     = 10_000
	maxDayOthers   = 500       // rows of reports without proof
	maxDayBytes    = 50 << 20  // of files
	maxUnproven    = 256 << 10 // bytes of a file without proof that is kept

	maxReporterReports = 200
	maxReporterRows    = 3000
	maxReporterBytes   = 10 << 20
)

// These are the limits of the files of one message together. The lower ones are for mail without authentication,
// because everybody can send it to the address in a DMARC record.
const (
	messageBytes         = 100 << 20 // unpacked
	messageRows          = 200_000
	messageBytesUnproven = 10 << 20
	messageRowsUnproven  = 20_000
)

func budgetOf(isProven bool) *dmarcrpt.ContentLimit {
	if isProven {
		return &dmarcrpt.ContentLimit{Bytes: messageBytes, Rows: messageRows}
	}
	return &dmarcrpt.ContentLimit{Bytes: messageBytesUnproven, Rows: messageRowsUnproven}
}

// dayCounts counts what a domain received on a day.
type dayCounts struct {
	day             int64
	reports, others int64 // proven ones, and others
	rows, otherRows int64
	bytes, dropped  int64
}

// usage counts what a domain received on a day from one reporter.
type usage struct{ reports, rows, bytes int64 }

// open returns the part of a limit that is open to a report: all of it for well-known reporters, half of it for others.
func (x *draft) open(limit int64) int64 {
	if x.by != "" && isWellKnown(x.Reporter) {
		return limit
	}
	return limit / 2
}

// admits reports whether a report is stored.
func (c *dayCounts) admits(x *draft, by *usage) bool {
	if x.by != "" && by.reports >= maxReporterReports {
		return false
	}
	if x.Proven && x.State == Counted {
		return c.reports < x.open(maxDayReports)
	}
	return c.others < maxDayUnproven
}

// mayAdmit reports whether a report that was not read yet could be stored.
func (c *dayCounts) mayAdmit(x *draft, by *usage) bool {
	asProven := *x
	asProven.Proven, asProven.State = x.by != "", Counted
	return c.admits(x, by) || c.admits(&asProven, by)
}

// keeps reports whether the file of a report is stored. Files without proof can use a tenth of the limit.
func (c *dayCounts) keeps(x *draft, by *usage) bool {
	if x.Size == 0 {
		return false
	}
	if x.by == "" || !x.Proven {
		return x.Size <= maxUnproven && c.bytes+x.Size <= maxDayBytes/10
	}
	return by.bytes+x.Size <= maxReporterBytes && c.bytes+x.Size <= x.open(maxDayBytes)
}

// rowsLeft returns the number of rows of a report that keep their details.
func (c *dayCounts) rowsLeft(x *draft, by *usage) int {
	if !x.Proven {
		return int(max(maxDayOthers-c.otherRows, 0))
	}
	return int(max(min(maxReporterRows-by.rows, x.open(maxDayRows)-c.rows), 0))
}
