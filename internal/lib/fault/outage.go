package fault

import "errors"

// outage is an error that occurs because something that this installation itself needs is not available: its blob
// store or its DNS resolvers. Packages that cannot import this one implement the interface, too.
type outage interface {
	error
	Outage() bool
}

// IsOutage reports whether err occurred because something that this installation itself needs is not available. The
// work that failed is not to blame, and can be repeated as soon as the outage is over.
func IsOutage(err error) bool {
	o, ok := errors.AsType[outage](err)
	return ok && o.Outage()
}
