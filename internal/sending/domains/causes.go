package domains

import "errors"

// RefusedSender is the cause of the faults that [Service.Sender] returns. It wraps one of the errors below.
type RefusedSender struct {
	Name string // the sender's domain
	Err  error
}

func (e *RefusedSender) Error() string { return e.Err.Error() + ": " + e.Name }
func (e *RefusedSender) Unwrap() error { return e.Err }

// IsRefusedSender reports whether err means that a sender's domain was deleted, is not verified or may not send, and
// returns the domain.
func IsRefusedSender(err error) (name string, ok bool) {
	refused, ok := errors.AsType[*RefusedSender](err)
	if !ok {
		return "", false
	}
	return refused.Name, true
}

// Causes of the faults that [Service.Sender] returns.
var (
	ErrNotAdded        = errors.New("the team does not have the sender's domain")
	ErrSendingDisabled = errors.New("the sender's domain is not enabled for sending")
	ErrNotVerified     = errors.New("the sender's domain is not verified")
)
