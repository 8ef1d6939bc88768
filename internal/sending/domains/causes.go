package domains

import "errors"

// Causes of the faults that [Service.Sender] returns.
var (
	ErrNotAdded        = errors.New("the team does not have the sender's domain")
	ErrSendingDisabled = errors.New("the sender's domain is not enabled for sending")
	ErrNotVerified     = errors.New("the sender's domain is not verified")
)
