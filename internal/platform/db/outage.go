package db

import (
	"context"
	"errors"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/postrider/postrider/internal/lib/fault"
)

var (
	// ErrUnavailable means that the database could not be reached or could not execute a statement. If an operation
	// returns ErrUnavailable, nothing was stored, and a retry may succeed. Causes are a lost or refused connection, a
	// full disk, or a server that answers too late, is starting, is stopping or is a standby.
	ErrUnavailable = errors.New("the database is not available")

	// ErrUnknown means that the outcome of a COMMIT is unknown: its answer was lost, or SQLite's disk failed during the
	// COMMIT. After ErrUnknown, the transaction may be stored completely, may not be stored, or may still be stored later.
	// A caller that retries after ErrUnknown must detect whether the first attempt had an effect.
	ErrUnknown = errors.New("it is not known whether the transaction was committed")
)

// outage is the cause of a database fault, as it appears in the log. With errors.Is, an outage matches the error in its
// kind field.
type outage struct {
	kind error // ErrUnavailable or ErrUnknown
	what string
	err  error
}

func (o *outage) Error() string        { return o.what + ": " + o.err.Error() }
func (o *outage) Unwrap() error        { return o.err }
func (o *outage) Is(target error) bool { return target == o.kind }

// diskFull is PostgreSQL's SQLSTATE for a full disk.
const diskFull = "53100"

// IsFull reports whether the disk of the database is full.
func IsFull(err error) bool {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()&0xff == lib.SQLITE_FULL
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == diskFull || errors.Is(err, syscall.ENOSPC)
}

// Cause returns what the engine reported about an outage, for operators, or "" if err is none. Error texts of outages
// are for users, and do not contain it.
func Cause(err error) string {
	if o, ok := errors.AsType[*outage](err); ok {
		return o.Error()
	}
	return ""
}

// Temporary reports that the failure is temporary. Until the outage ends, all requests fail.
func (o *outage) Temporary() bool { return true }

// unavailable returns the fault for a temporary database failure that the user did not cause.
func unavailable(what string, err error) error {
	return fault.New(fault.Unavailable, "", "The database is not available at present. Try again in a moment.").
		Because(&outage{ErrUnavailable, what, err})
}

// unknown returns the fault for a COMMIT whose outcome is not known.
func unknown(what string, err error) error {
	return fault.New(fault.Unavailable, "",
		"The database was lost before it answered, so this may have been carried out or not. "+
			"Look before you repeat it.").Because(&outage{ErrUnknown, what, err})
}

// isGone reports whether err means that the caller canceled or timed out, rather than that the database failed.
func isGone(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
