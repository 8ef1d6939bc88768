package db

import (
	"errors"

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
