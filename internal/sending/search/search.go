// Package search finds emails by texts in their subjects and addresses, by labels such as their template, and by time.
//
// # How it works
//
// [Find] reads a list from the newest email to the oldest one until a page is full or the time is over. It then returns
// what it has found, and the cursor from which to continue, so the time of a request does not grow with the table.
// Lists of received emails are read row by row.
//
// Sent emails have an [Index]. It is a series of segments (see package termindex), each of which covers a range of a
// team's emails. Find reads a few rows of a segment instead of all emails in its range. It reads those emails from the
// table that no segment covers, so an email is found as soon as it is accepted. Each email that a segment names is read
// and compared with the criteria, because the email may have changed.
//
// # Invariants
//
// Any number of nodes and commands may write the index of a team at the same time: a segment is only used if no other
// one covers the same emails. After an address is erased, nothing writes it into the index again; see [Index.write].
//
// # Failures
//
// A job that fails or is killed leaves rows that searches do not use. The next job deletes them. Without its index, a
// search finds the same emails in more time.
//
// # Out of scope
//
// The package knows neither permissions nor conditions on columns: the package that owns a list adds them.
package search
