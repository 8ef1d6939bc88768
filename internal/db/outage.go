package db

import (
	"errors"

	"github.com/postrider/postrider/internal/fault"
)

var (
	// ErrUnavailable says that the database could not be asked or did not do what was asked: nothing was stored, and
	// trying again may help. A connection that is lost or refused, a server that does not answer in time, starts,
	// stops or is a standby, and a full disk are of this kind.
	ErrUnavailable = errors.New("the database is not available")

	// ErrUnknown says that the answer to a COMMIT was lost, and that it could not be found out what became of it. The
	// whole transaction was stored, or nothing of it, or it may still be. Whoever tries again must recognise what the
	// first try did.
	ErrUnknown = errors.New("it is not known whether the transaction was committed")
)

// outage is the cause of a fault of the database, as it is logged. It is also the error of its kind.
type outage struct {
	kind error // ErrUnavailable or ErrUnknown
	what string
	err  error
}

func (o *outage) Error() string        { return o.what + ": " + o.err.Error() }
func (o *outage) Unwrap() error        { return o.err }
func (o *outage) Is(target error) bool { return target == o.kind }

// Temporary says that it passes: as long as it does not, everybody meets it.
func (o *outage) Temporary() bool { return true }

// unavailable wraps a failure of the database that is nobody's fault but ours and may pass.
func unavailable(what string, err error) error {
	return fault.New(fault.Unavailable, "", "The database is not available at present. Try again in a moment.").
		Because(&outage{ErrUnavailable, what, err})
}

// unknown wraps the loss of the answer to a COMMIT.
func unknown(what string, err error) error {
	return fault.New(fault.Unavailable, "", "The database was lost before it answered, so this may have been carried out or not. "+
		"Look before you repeat it.").Because(&outage{ErrUnknown, what, err})
}
